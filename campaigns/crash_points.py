"""A run that dies at every named place of a save or an export, and goes on as if it had not: losses and weights alike.

    OMP_NUM_THREADS=1 python -m campaigns.crash_points

Each place of a save, the first and the third time it comes by, on one rank and on two, in line and beside the steps;
each place of the export at the end. Trials take turns in mesh, precision and passes. The process dies as by `kill -9`,
and so do its peers; then the run is resumed to its end. Losses, tensor files of the last checkpoint and the export are
compared bit for bit; the milestone is there.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks import bars
from campaigns import pieces
from ropewalk.checkpoints.files.run_folder import committed
from ropewalk.train.checkpoint import manifest, model_directory, store
from tests.train import forked, small_recipe

STEPS, EVERY, KEEP_EVERY = 12, 2, 6
POINTS = (*store.POINTS, *model_directory.POINTS)
VARIANTS = list(product((1, 3), (1, 2), (False, True)))
# In rounds: the first visits every place once, each in another way.
TRIALS = [
    *((point, *VARIANTS[number % 8]) for number, point in enumerate(store.POINTS)),
    *((point, 1, 1 + number % 2, False) for number, point in enumerate(model_directory.POINTS)),
    *((point, *VARIANTS[(number + r) % 8]) for r in range(1, 8) for number, point in enumerate(store.POINTS)),
    *((point, 1, 2 - number % 2, False) for number, point in enumerate(model_directory.POINTS)),
]
HOW = {1: list(small_recipe.VARIANTS)[:2], 2: list(small_recipe.VARIANTS)}
SOURCES = (
    *(f"src/ropewalk/train/checkpoint/{name}.py" for name in ("store", "manifest", "tensors", "model_directory")),
    *(f"src/ropewalk/train/checkpoint/{name}.py" for name in ("recorded_writer", "restricted_reader")),
    "src/ropewalk/train/guard/lease.py",
    "src/ropewalk/distributed/ranks.py",
    "campaigns/crash_points.py",
    "tests/train/small_recipe.py",
)


def piece(start: int, count: int) -> dict[str, Any]:
    forked.warm()
    failures: list[dict[str, Any]] = []
    repeated = died = 0
    with tempfile.TemporaryDirectory(prefix="ropewalk-crash-") as made:
        references: dict[tuple[int, str], Run] = {}
        for trial in range(start, start + count):
            point, time, ranks, asynchronous = TRIALS[trial]
            variant = HOW[ranks][trial % len(HOW[ranks])]
            if (ranks, variant) not in references:
                references[ranks, variant] = Run(Path(made) / f"whole-{len(references)}", ranks, False, variant)
                references[ranks, variant].go()
            run = Run(Path(made) / str(trial), ranks, asynchronous, variant)
            fault, times = trial_of(run, f"{point}:{time}", references[ranks, variant])
            repeated, died = max(repeated, times), died + (not fault)
            if fault:
                what = {"point": point, "time": time, "ranks": ranks, "asynchronous": asynchronous, "variant": variant}
                failures.append({"trial": trial, **what, "fault": fault})
    return {"trials": count, "failures": failures, "deaths": died, "repeated": repeated}


class Run:
    def __init__(self, out: Path, ranks: int, asynchronous: bool, variant: str) -> None:
        self.out, self.ranks = out, ranks
        save = {"every": EVERY, "keep": 2, "keep_every": KEEP_EVERY, "asynchronous": asynchronous}
        self.recipe = small_recipe.variant(variant, STEPS, EVERY, save=save)

    def go(self, crash_at: str = "", until: int | None = None) -> list[int]:
        from ropewalk.train.run import train

        def work(rank: int) -> None:
            sys.stderr = open(os.devnull if crash_at else f"{self.out}-{rank}.err", "w")  # noqa: SIM115
            os.environ["ROPEWALK_CRASH_AT"] = crash_at
            train(self.recipe, self.out, resume=True, until=until)

        return forked.run(work, self.ranks)

    def damage_newest(self) -> None:
        newest = max((self.out / "checkpoints").glob("step-*"))
        (newest / "state.json").write_bytes(b"{}")

    def weights(self) -> dict[str, str]:
        newest = self.out / "checkpoints" / f"step-{STEPS:08d}"
        files = manifest.verify(newest).files
        return {name: each.sha256 for name, each in files.items() if name.endswith(".distcp")}

    def kept(self) -> list[int]:
        return [step for step, folder in committed(self.out / "checkpoints") if manifest.verify(folder)]

    def export(self) -> dict[str, str]:
        return {file.name: manifest.digest(file).sha256 for file in sorted((self.out / "export").iterdir())}


def trial_of(run: Run, crash_at: str, whole: Run) -> tuple[str, int]:
    """What went wrong, and how often the most repeated step was taken."""
    if crash_at.startswith("save.aside"):
        # A checkpoint is put in the place of another only where that one was found damaged.
        run.go(until=4)
        run.damage_newest()
        crash_at = "save.aside"
    if -signal.SIGKILL not in run.go(crash_at):
        return "it did not die", 0
    if any(codes := run.go()):
        return f"resumed it ended with {codes}: {Path(f'{run.out}-0.err').read_text()[-500:]}", 0
    left = [path.name for path in (run.out / "checkpoints").iterdir() if not path.name.startswith("step-")]
    if left:
        return f"left {left}", 0
    wanted, got = small_recipe.losses(whole.out), small_recipe.losses(run.out)
    wrong = [step for step in wanted if any(each != wanted[step][0] for each in got.get(step, [0.0]))]
    if wrong or len(wanted) != STEPS:
        return f"losses of steps {wrong} differ", 0
    if run.weights() != whole.weights():
        return "the last weights differ", 0
    if run.kept() != [KEEP_EVERY, STEPS - EVERY, STEPS]:
        return f"checkpoints of steps {run.kept()} are there", 0
    if run.export() != whole.export():
        return "the export differs", 0
    times = [len(each) for each in got.values()]
    if sum(each > 1 for each in times) > 2 * EVERY:
        return f"steps were taken {times} times: more was lost than lies between two saves", max(times)
    return "", max(times)


def whole(done: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    return (
        {
            "wrong resumes": bars.bar(pieces.failures(done), 0, at_least=False),
            "deaths, each at its place": bars.bar(pieces.summed(done, "deaths"), len(TRIALS), at_least=True),
        },
        {
            "named places": len(POINTS),
            "deaths": pieces.summed(done, "deaths"),
            "most often a step was taken": max(each["repeated"] for each in done),
        },
    )


if __name__ == "__main__":
    sys.exit(pieces.main(__doc__, "crash_points", piece, whole, trials=len(TRIALS), piece=37, sources=SOURCES))
