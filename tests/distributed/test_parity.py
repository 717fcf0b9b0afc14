"""Every mesh computes the step that one process computes, in real processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.parity_worker import HARD, LONG, MESHES, SHORT

HERE = Path(__file__).parent


def python(*arguments: str) -> str:
    root = HERE.parents[1]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def torchrun(processes: int, worker: str, *arguments: str, options: tuple[str, ...] = ("--standalone",)) -> str:
    count = ("--nproc-per-node", str(processes))
    return python("torch.distributed.run", *count, *options, str(HERE / worker), *arguments)


def check_parity(processes: int, steps: int) -> None:
    said = python("tests.distributed.parity_worker", str(processes), str(steps))
    lines: list[dict[str, Any]] = [json.loads(line) for line in said.splitlines()]
    compared = [line for line in lines if "gradient" in line]
    due = {(mesh, model) for mesh in MESHES[processes] for model in LONG}
    due |= {(mesh, model) for mesh in HARD[processes] for model in SHORT}
    assert {(line["mesh"], line["model"]) for line in compared} == due
    for line in compared:
        # Sums in another order: the norms and scalars that every token adds to lose a digit more.
        assert line["gradient"] <= (1e-6 if line["model"] in LONG else 5e-6), line
        assert line["loss"] <= 1e-4, line
        assert line["norm"] <= 1e-6, line
        assert line["together"], line
    assert [line["without private names"] for line in lines if len(line) == 1] == [True] * (processes == 2)
    repeated = {line["mesh"]: line["repeats"] for line in lines if "repeats" in line}
    assert repeated == dict.fromkeys(HARD[processes], True)


@pytest.mark.parametrize("processes", MESHES)
def test_parity(processes: int) -> None:
    check_parity(processes, steps=3)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("processes", MESHES)
def test_parity_over_fifty_steps(processes: int) -> None:
    check_parity(processes, steps=50)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_compiled_blocks() -> None:
    said = torchrun(2, "compiled_worker.py")
    assert said.count("as uncompiled") == 3, said


def test_a_killed_rank_is_replaced(tmp_path: Path) -> None:
    """On another machine than the first: a launcher counts the failures of its own workers, so the two do not agree on
    how often the run was restarted."""
    options = ("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{free_port()}")
    options += ("--max-restarts", "2", "--monitor-interval", "0.2")
    with ThreadPoolExecutor(2) as both:
        agents = [both.submit(torchrun, 1, "restart_worker.py", str(tmp_path), options=options) for _ in range(2)]
        said = "".join(agent.result() for agent in agents)
    for rank in (0, 1):
        # A thread of gloo that outlives its group may abort the interpreter as it ends, which torchrun calls a failure.
        assert f"rank {rank}: sum 3, agreed True, 0 threads left" in said, said
    assert {"attempt 0", "attempt 1"} == {line.partition(",")[0] for line in said.splitlines() if "agreed" in line}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return one.getsockname()[1]
