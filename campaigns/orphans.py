"""torchrun killed by `kill -9`, forty times: its workers are gone within 5 seconds, and the run is started again.

    OMP_NUM_THREADS=1 python -m campaigns.orphans [--count 40]

Workers are in sessions of their own, so nothing tells them that their launcher died. Every fifth trial kills while they
start, the others while `ropewalk train` trains or saves. Then the same run is resumed, goes past where it was, and is
asked to stop: every loss that was written twice is the same both times, and the last checkpoint is whole.
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
from ropewalk.checkpoints.files.run_folder import committed
from ropewalk.train.checkpoint import manifest
from tests.train import forked, small_recipe

RANKS, LIMIT, FURTHER = 2, 5.0, 3
SOURCES = ("src/ropewalk/train", "src/ropewalk/distributed", "campaigns/orphans.py", "tests/train/forked.py")


def piece(start: int, count: int) -> dict[str, Any]:
    forked.warm()
    failures, longest, again = [], 0.0, 0
    for trial in range(start, start + count):
        with tempfile.TemporaryDirectory(prefix="ropewalk-orphans-", ignore_cleanup_errors=True) as made:
            run = Run(Path(made), asynchronous=trial % 2 == 1)
            seconds, left = run.orphaned(random.Random(trial), starting=trial % 5 == 0)
            longest = max(longest, seconds)
            fault = f"{left} workers were alive after {LIMIT} s" if left else run.resumed()
            again += not fault
            if fault:
                failures.append({"trial": trial, "fault": fault})
    return {"trials": count, "failures": failures, "longest": round(longest, 3), "again": again}


class Run:
    def __init__(self, folder: Path, *, asynchronous: bool) -> None:
        self.out, self.log = folder / "run", folder / "log"
        recipe = folder / "recipe.yaml"
        save = {"every": 4, "keep": 2, "asynchronous": asynchronous}
        recipe.write_text(small_recipe.text(small_recipe.recipe(100_000, save=save)), encoding="utf-8")
        self.arguments = ["train", str(recipe), "--out", str(self.out), "--resume", "--quiet"]

    def orphaned(self, random_: random.Random, *, starting: bool) -> tuple[float, int]:
        """How long the workers outlived their launcher, and how many were left at the limit."""
        paths = os.pathsep.join([str(pieces.REPOSITORY / "src"), str(pieces.REPOSITORY)])
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--standalone"]
        launcher = psutil.Popen(
            [*torchrun, "-m", "ropewalk", *self.arguments],
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        workers: list[psutil.Process] = []
        while len(workers) < RANKS or not (starting or small_recipe.losses(self.out)):
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

    def resumed(self) -> str:
        """What went wrong when the run was started again, if anything."""
        last = max(small_recipe.losses(self.out), default=0) + FURTHER
        ranks = forked.command(self.arguments, RANKS, self.log)
        end = time.monotonic() + 60
        while last not in small_recipe.losses(self.out) and time.monotonic() < end:
            time.sleep(0.02)
        for pid in ranks:
            os.kill(pid, signal.SIGTERM)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]
        got = small_recipe.losses(self.out)
        if last not in got:
            return f"did not come to step {last}, ended with {codes}: {self.log.read_text()[-500:]}"
        if wrong := [step for step, each in got.items() if len(set(each)) > 1]:
            return f"losses of steps {wrong} differ"
        saved = committed(self.out / "checkpoints")
        if not saved or saved[-1][0] < last:
            return f"the last checkpoint is {saved[-1:]}, step {last} was reached"
        manifest.verify(saved[-1][1])
        return ""


def whole(done: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    trials = pieces.summed(done, "trials")
    return (
        {
            "launchers with workers alive after 5 s, or runs that could not go on": bars.bar(
                pieces.failures(done), 0, at_least=False
            ),
            "longest life of an orphan, s": bars.bar(max(each["longest"] for each in done), LIMIT, at_least=False),
            "runs started again": bars.bar(pieces.summed(done, "again"), trials, at_least=True),
        },
        {"launchers killed": trials},
    )


if __name__ == "__main__":
    sys.exit(pieces.main(__doc__, "orphans", piece, whole, trials=40, piece=4, sources=SOURCES))
