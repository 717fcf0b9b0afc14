"""Everything of a run killed, 200 times, at every stage of a save: not one loss differs from the run that lived.

    OMP_NUM_THREADS=1 python -m campaigns.kills [--kills 200] [--state FOLDER]

`ropewalk train RECIPE --out RUN --resume` on two ranks, killed by SIGKILL and started again, until the run has reached
its end; then the next. Four of five kills wait for a stage of a save, the one that was hit least: an empty folder,
tensor files, the manifest, the rename, the removal of an older checkpoint. The stage is told by what the kill left on
the disk. Every loss that was ever written is compared with the same run left alone, and so are the weights at the end.

Every tenth start is torchrun's, killed with its workers. The others are forks of this process, which has done the
imports, entered at the same command with the environment of torchrun's workers. Rounds and counts are in --state, by
the digest of the sources: a campaign that was ended goes on where it was, and takes nothing from other sources.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from benchmarks import bars
from campaigns import pieces
from ropewalk.data.prepare.sample import sample
from ropewalk.train.checkpoint import manifest
from ropewalk.train.config import Recipe
from tests.train import forked, small_recipe

RANKS, EVERY, KEEP = 2, 3, 2
STAGES = ("folder", "tensor files", "manifest", "rename", "prune")
BETWEEN = "between saves"
EACH = 5
"""Kills that every stage must have had, of 200."""
SOURCES = (
    "src/ropewalk/train",
    "src/ropewalk/distributed",
    "src/ropewalk/data",
    "campaigns/kills.py",
    "tests/train/forked.py",
    "tests/train/small_recipe.py",
)
VARIANTS: tuple[dict[str, Any], ...] = (
    {"train": {}, "mesh": {}, "text": False, "asynchronous": False},
    {"train": {"precision": "bfloat16", "micro": 32}, "mesh": {}, "text": True, "asynchronous": True},
    {"train": {}, "mesh": {"tp": 2}, "text": True, "asynchronous": True},
    {"train": {"micro": 64}, "mesh": {"cp": 2}, "text": True, "asynchronous": False},
)
"""Of rounds, in turn. All but the first have dropout, and data of prepared text."""


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kills", type=int, default=200)
    options.add_argument("--steps", type=int, default=120, help="of a run; 120 unless given")
    options.add_argument("--state", type=Path, default=Path("runs/kills"), help="a folder; runs/kills unless given")
    options.add_argument("--minutes", type=float, default=25.0, help="nothing is begun after this; 25 unless given")
    options.add_argument("--out", type=Path, default=pieces.RESULTS / "kills.json")
    options.add_argument("--json", action="store_true", help="print the result as JSON")
    given = options.parse_args()
    known = pieces.digest(SOURCES)
    folder = given.state.absolute() / known
    folder.mkdir(parents=True, exist_ok=True)
    forked.warm()
    campaign = Campaign(folder, given.steps, time.monotonic() + 60 * given.minutes, known)
    while campaign.kills < given.kills:
        if not campaign.round(given.kills):
            print(f"{campaign.kills} of {given.kills} kills; the same command goes on", file=sys.stderr)
            break
    command = f"OMP_NUM_THREADS=1 python -m campaigns.kills --kills {given.kills}"
    said = pieces.result(command, campaign.rounds(), whole, known)
    pieces.keep(given.out, said)
    if given.json:
        json.dump(said, sys.stdout, indent=2)
        print()
    else:
        bars.show(said)
    if campaign.kills < given.kills:
        return pieces.UNFINISHED
    return 0 if all(each["holds"] for each in said["bars"].values()) else 1


class Campaign:
    """Rounds of one run each, each with its own seed and a record of its kills."""

    def __init__(self, folder: Path, steps: int, end: float, known: str) -> None:
        self.folder, self.steps, self.end, self.known = folder, steps, end, known

    def rounds(self) -> dict[str, Any]:
        files = sorted(self.folder.glob("round-*.json"))
        return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}

    @property
    def kills(self) -> int:
        return sum(each["trials"] for each in self.rounds().values())

    def hits(self) -> dict[str, int]:
        done = self.rounds().values()
        return {stage: sum(each["stages"].get(stage, 0) for each in done) for stage in STAGES}

    def round(self, wanted: int) -> bool:
        """One run, until it has reached its end; False where the time is over before."""
        rounds = self.rounds()
        number = next((n for n in range(len(rounds) + 1) if not rounds.get(f"round-{n:03d}", {}).get("done")), 0)
        run = Round(self.folder, number, self.steps, self.known)
        if not run.alone.exists():
            run.leave_alone()
        while not run.said["done"]:
            if time.monotonic() > self.end:
                return False
            run.attempt(self.hits() if self.kills < wanted else None)
        shutil.rmtree(run.out, ignore_errors=True)
        return True


class Started:
    """`ropewalk ...` on two ranks: by torchrun, or forks of this process."""

    def __init__(self, arguments: list[str], log: Path, *, torchrun: bool) -> None:
        self.launcher, self.ranks = None, []
        if torchrun:
            paths = os.pathsep.join([str(pieces.REPOSITORY / "src"), str(pieces.REPOSITORY)])
            launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--standalone"]
            environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
            with log.open("w", encoding="utf-8") as file:
                self.launcher = psutil.Popen(
                    [*launch, "-m", "ropewalk", *arguments], env=environment, stdout=file, stderr=subprocess.STDOUT
                )
        else:
            self.ranks = forked.command(arguments, RANKS, log)
        self.codes: dict[int, int] = {}

    @property
    def ended(self) -> bool:
        if self.launcher is not None:
            return self.launcher.poll() is not None
        for pid in self.ranks:
            if pid not in self.codes and (status := os.waitpid(pid, os.WNOHANG))[0]:
                self.codes[pid] = os.waitstatus_to_exitcode(status[1])
        if any(self.codes.values()):
            self.kill()  # as a launcher does when one of its workers fails
        return len(self.codes) == RANKS

    def wait(self) -> int:
        while not self.ended:
            time.sleep(0.01)
        return self.launcher.returncode if self.launcher is not None else max(map(abs, self.codes.values()))

    def aim(self) -> None:
        """Looks for the processes to kill, which takes a while: before the moment comes."""
        if self.launcher is not None:
            self.ranks = [child.pid for child in self.launcher.children(recursive=True)]

    def kill(self) -> None:
        for pid in [*self.ranks, *([self.launcher.pid] if self.launcher is not None else [])]:
            if pid not in self.codes:
                os.kill(pid, signal.SIGKILL)
        if self.launcher is not None:
            psutil.wait_procs([self.launcher, *filter(None, map(process, self.ranks))], timeout=30)
        for pid in self.ranks if self.launcher is None else ():
            if pid not in self.codes:
                self.codes[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def stage(checkpoints: Path, kept: int) -> str:
    """What a save is at, by what lies there; kept: checkpoints that stay."""
    try:
        names = os.listdir(checkpoints)
        if any(name.startswith("tmp-removed") for name in names):
            return "prune"
        if partial := next((name for name in names if name.startswith("tmp-")), None):
            files = os.listdir(checkpoints / partial)
            return "manifest" if manifest.NAME in files else "tensor files" if files else "folder"
    except FileNotFoundError:
        return BETWEEN  # it was renamed in between
    return "rename" if sum(name.startswith("step-") for name in names) > kept else BETWEEN


class Round:
    def __init__(self, folder: Path, number: int, steps: int, known: str) -> None:
        self.name, self.steps = f"round-{number:03d}", steps
        self.file, self.out = folder / f"{self.name}.json", folder / self.name
        self.alone, self.recipe = folder / f"alone-{number:03d}.json", folder / f"{self.name}.yaml"
        self.log = self.recipe.with_suffix(".log")
        variant = VARIANTS[number % len(VARIANTS)]
        if not self.recipe.exists():
            self.recipe.write_text(small_recipe.text(recipe(variant, folder, steps, number)))
        self.said: dict[str, Any] = {"trials": 0, "stages": {}, "steps again": 0, "done": False, "failures": []}
        self.said |= {"variant": variant, "sources": known}
        if self.file.exists():
            self.said = json.loads(self.file.read_text(encoding="utf-8"))

    def start(self, *changes: str, torchrun: bool = False) -> Started:
        arguments = ["train", str(self.recipe), *changes, "--out", str(self.out), "--resume", "--quiet"]
        return Started(arguments, self.log, torchrun=torchrun)

    def leave_alone(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        # Saves change nothing of what is learned: one is enough to have the weights.
        if code := self.start(f"train.save.every={self.steps}").wait():
            raise RuntimeError(f"{self.name} ended with {code} though nobody killed it: {self.log.read_text()[-800:]}")
        found = {"losses": small_recipe.losses(self.out), "weights": self.weights()}
        self.alone.write_text(json.dumps(found), encoding="utf-8")
        shutil.rmtree(self.out)

    def attempt(self, hits: dict[str, int] | None) -> None:
        """Started once, and killed unless it comes to its end before. hits: of each stage so far; None: no kill."""
        random_ = random.Random(f"{self.name} {self.said['trials']}")
        started = self.start(torchrun=self.said["trials"] % 10 == 9)
        if hits is not None and self.killed(started, random_, hits):
            self.said["trials"] += 1
            found = stage(self.out / "checkpoints", KEEP)
            self.said["stages"][found] = self.said["stages"].get(found, 0) + 1
        elif code := started.wait():
            self.fail(f"ended with {code}: {self.log.read_text()[-800:]}")
        else:
            self.said["done"] = True
            self.compare()
        pieces.keep(self.file, self.said)

    def killed(self, started: Started, random_: random.Random, hits: dict[str, int]) -> bool:
        """Killed after it has begun to train again; False where it came to its end."""
        written, checkpoints = self.metrics(), self.out / "checkpoints"
        if not until(lambda: self.metrics() != written, started):
            return False
        started.aim()
        # So far that the run comes on: what is killed in a save is computed again.
        step = self.newest() + random_.choice((0, EVERY, 2 * EVERY))
        if not until(lambda: self.newest() >= step, started):
            return False
        if random_.random() < 0.2:
            time.sleep(random_.uniform(0.0, 0.5))
        else:
            wanted = min(STAGES, key=hits.__getitem__)
            if not until(lambda: stage(checkpoints, KEEP) == wanted, started, pause=0.0):
                return False
        if started.ended:
            return False
        started.kill()
        return True

    def newest(self) -> int:
        return max(
            (int(path.name.removeprefix("step-")) for path in self.out.glob("checkpoints/step-*[0-9]")), default=0
        )

    def compare(self) -> None:
        wanted = json.loads(self.alone.read_text(encoding="utf-8"))
        got = small_recipe.losses(self.out)
        for step, (loss,) in wanted["losses"].items():
            each = got.get(int(step), [])
            self.said["steps again"] += len(each) - 1
            if not each or any(other != loss for other in each):
                self.fail(f"step {step}: {each} where {loss} is right")
        if self.weights() != wanted["weights"]:
            self.fail("the weights at the end differ")

    def fail(self, fault: str) -> None:
        self.said["failures"].append({"round": self.name, "after kills": self.said["trials"], "fault": fault})
        self.said["done"] = True

    def weights(self) -> dict[str, str]:
        files = manifest.verify(self.out / "checkpoints" / f"step-{self.steps:08d}").files
        return {name: each.sha256 for name, each in files.items() if name.endswith(".distcp")}

    def metrics(self) -> int:
        file = self.out / "metrics.jsonl"
        return file.stat().st_size if file.exists() else 0


def until(holds: Callable[[], bool], started: Started, pause: float = 0.005) -> bool:
    """Waits; False where the run ended before."""
    looked = 0
    while not holds():
        looked += 1
        if (pause or looked % 100 == 0) and started.ended:
            return False
        if pause:
            time.sleep(pause)
    return True


def recipe(variant: dict[str, Any], folder: Path, steps: int, seed: int) -> Recipe:
    save = {"every": EVERY, "keep": KEEP, "asynchronous": variant["asynchronous"]}
    written = small_recipe.recipe(steps, EVERY, seed=seed, save=save, **variant["train"]).model_dump(
        mode="json", exclude_unset=True
    )
    written["mesh"] = variant["mesh"]
    if variant["text"]:
        text = folder / "text"
        path = text if text.exists() else sample("text", text)
        written["data"] = {"kind": "text", "path": str(path), "length": 16}
        written["model"]["dropout"] = {"attention": 0.1, "residual": 0.1}
    return Recipe.model_validate(written)


def whole(done: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    kills = pieces.summed(done, "trials")
    hits = {each: sum(round_["stages"].get(each, 0) for round_ in done) for each in (*STAGES, BETWEEN)}
    return (
        {
            "kills": bars.bar(kills, 200, at_least=True),
            "losses or weights that differ": bars.bar(pieces.failures(done), 0, at_least=False),
            **{f"kills in a save: {each}": bars.bar(hits[each], EACH, at_least=True) for each in STAGES},
        },
        {
            "kills during a save": kills - hits[BETWEEN],
            "kills between saves": hits[BETWEEN],
            "steps taken again and compared": pieces.summed(done, "steps again"),
            "runs that came to their end": sum(each["done"] for each in done),
        },
    )


if __name__ == "__main__":
    sys.exit(main())
