"""Every mesh computes the step that one process computes, in real processes under torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.parity_worker import HARD, LONG, MESHES, SHORT

HERE = Path(__file__).parent


def torchrun(processes: int, worker: str, *arguments: str, options: tuple[str, ...] = ()) -> str:
    root = HERE.parents[1]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    done = subprocess.run(
        [*command, *options, str(HERE / worker), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def check_parity(processes: int, steps: int) -> None:
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in torchrun(processes, "parity_worker.py", str(steps)).splitlines()
    ]
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


def test_a_killed_rank_is_replaced() -> None:
    said = torchrun(2, "restart_worker.py", options=("--max-restarts", "1"))
    for rank in (0, 1):
        # A thread of gloo that outlives its group may abort the interpreter as it ends, which torchrun calls a failure.
        assert f"attempt 1, rank {rank}: sum 3, agreed True, 0 threads left" in said, said
