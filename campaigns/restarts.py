"""A run over two torchrun agents, as on two machines; a worker is killed, and both meet again: 20 of 20.

    OMP_NUM_THREADS=1 python -m campaigns.restarts [--count 20]

Each agent has one rank and restarts what fails by itself; the other's worker is healthy and waits. Trials take turns in
whose worker is killed, in whether the save is beside the steps, and in the moment. Nobody resumes the run: it is to be
found that it was there before. Every loss that was written is compared with the run of two ranks that nobody killed.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks import bars
from campaigns import pieces
from tests.train import forked, small_recipe

STEPS, LIMIT = 60, 180.0
SOURCES = ("src/ropewalk/train", "src/ropewalk/distributed", "campaigns/restarts.py", "tests/train/forked.py")


def piece(start: int, count: int) -> dict[str, Any]:
    forked.warm()
    failures, slowest = [], 0.0
    with tempfile.TemporaryDirectory(prefix="ropewalk-restarts-") as made:
        wanted = alone(Path(made))
        for trial in range(start, start + count):
            began = time.monotonic()
            fault = trial_of(Path(made) / str(trial), trial, wanted)
            slowest = max(slowest, time.monotonic() - began)
            if fault:
                failures.append({"trial": trial, "fault": fault})
    return {"trials": count, "failures": failures, "slowest": round(slowest, 1)}


def arguments(folder: Path, *, asynchronous: bool) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    save = {"every": 5, "keep": 2, "asynchronous": asynchronous}
    (folder / "recipe.yaml").write_text(small_recipe.text(small_recipe.recipe(STEPS, save=save)), encoding="utf-8")
    return ["train", str(folder / "recipe.yaml"), "--out", str(folder / "run"), "--quiet"]


def alone(folder: Path) -> dict[int, list[float]]:
    ranks = forked.command(arguments(folder, asynchronous=False), 2, folder / "log")
    codes = [os.waitpid(pid, 0)[1] for pid in ranks]
    if any(codes):
        raise RuntimeError(f"ended though nobody killed it: {(folder / 'log').read_text()[-800:]}")
    return small_recipe.losses(folder / "run")


def trial_of(folder: Path, trial: int, wanted: dict[int, list[float]]) -> str:
    random_, train = random.Random(trial), arguments(folder, asynchronous=trial % 4 > 1)
    agents = [agent(train, folder / f"log-{n}", port) for port in [free_port()] for n in range(2)]
    try:
        at = random_.randrange(1, STEPS // 2)
        end = time.monotonic() + LIMIT
        while len(small_recipe.losses(folder / "run")) < at:
            if any(each.poll() is not None for each in agents) or time.monotonic() > end:
                return f"did not come to step {at}: {said(folder)}"
            time.sleep(0.01)
        (worker,) = agents[trial % 2].children()
        worker.send_signal(signal.SIGKILL)
        gone, alive = psutil.wait_procs(agents, timeout=LIMIT)
        if alive or any(each.returncode for each in gone):
            return f"{len(alive)} agents wait, {[each.returncode for each in gone]}: {said(folder)}"
    finally:
        for each in agents:
            for child in each.children(recursive=True) if each.is_running() else ():
                child.kill()
            each.poll() is None and each.kill()
    got = small_recipe.losses(folder / "run")
    wrong = [step for step, (loss,) in wanted.items() if not got.get(step) or set(got[step]) != {loss}]
    return f"losses of steps {wrong} differ" if wrong else ""


def agent(train: list[str], log: Path, port: int) -> psutil.Popen:
    paths = os.pathsep.join([str(pieces.REPOSITORY / "src"), str(pieces.REPOSITORY)])
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    torchrun += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}", "--rdzv-id", "restarts"]
    torchrun += ["--max-restarts", "2", "--monitor-interval", "0.2", "-m", "ropewalk"]
    with log.open("w", encoding="utf-8") as file:
        return psutil.Popen(
            [*torchrun, *train],
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            stdout=file,
            stderr=subprocess.STDOUT,
        )


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return one.getsockname()[1]


def said(folder: Path) -> str:
    return " | ".join((folder / f"log-{n}").read_text()[-400:] for n in range(2))


def whole(done: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    trials = pieces.summed(done, "trials")
    return (
        {"restarts that met again and ended alike": bars.bar(trials - pieces.failures(done), 20, at_least=True)},
        {"workers killed": trials, "slowest run, s": max(each["slowest"] for each in done)},
    )


if __name__ == "__main__":
    sys.exit(pieces.main(__doc__, "restarts", piece, whole, trials=20, piece=4, sources=SOURCES))
