"""torchrun killed by `kill -9`, fifty times: its workers are gone within 5 seconds, and the run can be started again.

    OMP_NUM_THREADS=1 python -m campaigns.orphans [--count 50]

Workers are in sessions of their own, so nothing tells them that their launcher died. Every fifth trial kills while they
start, the others while they train or save.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks import bars
from campaigns import pieces

RANKS, LIMIT = 2, 5.0
SOURCES = ("src/ropewalk/train/guard/launcher.py", "campaigns/orphans.py", "tests/train/tiny_run.py")


def piece(start: int, count: int) -> dict[str, Any]:
    failures, longest = [], 0.0
    for trial in range(start, start + count):
        with tempfile.TemporaryDirectory(prefix="ropewalk-orphans-", ignore_cleanup_errors=True) as made:
            seconds, left = trial_of(Path(made), random.Random(trial), starting=trial % 5 == 0)
            longest = max(longest, seconds)
            if left:
                failures.append({"trial": trial, "fault": f"{left} workers were alive after {LIMIT} s"})
    return {"trials": count, "failures": failures, "longest": round(longest, 3)}


def trial_of(out: Path, random_: random.Random, *, starting: bool) -> tuple[float, int]:
    """How long the workers outlived their launcher, and how many were left at the limit."""
    paths = os.pathsep.join([str(pieces.REPOSITORY / "src"), str(pieces.REPOSITORY)])
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--standalone"]
    run = ["-m", "tests.train.tiny_run", str(out / "run"), "--steps", "1000000", "--slow", "0.01"]
    launcher = psutil.Popen(
        [*torchrun, *run],
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        cwd=pieces.REPOSITORY,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    workers: list[psutil.Process] = []
    losses = out / "run" / "losses.jsonl"
    while len(workers) < RANKS or not (starting or (losses.exists() and losses.stat().st_size)):
        if launcher.poll() is not None:
            raise RuntimeError(f"torchrun ended with {launcher.returncode} before it was killed")
        workers = launcher.children(recursive=True)
        time.sleep(0.02)
    time.sleep(random_.uniform(0.0, 1.0))
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    began = time.monotonic()
    _, alive = psutil.wait_procs(workers, timeout=LIMIT)
    seconds = time.monotonic() - began
    for each in alive:
        each.kill()
    return seconds, len(alive)


def whole(done: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    return (
        {
            "launchers with workers alive after 5 s": bars.bar(pieces.failures(done), 0, at_least=False),
            "longest life of an orphan, s": bars.bar(max(each["longest"] for each in done), LIMIT, at_least=False),
        },
        {"launchers killed": pieces.summed(done, "trials")},
    )


if __name__ == "__main__":
    sys.exit(pieces.main(__doc__, "orphans", piece, whole, trials=50, piece=10, sources=SOURCES))
