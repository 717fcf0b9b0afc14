"""Everything of a run killed at a random moment, two hundred times: not one loss differs from the run that lived.

    OMP_NUM_THREADS=1 python -m campaigns.kills [--kills 200] [--state FOLDER]

`torchrun --nproc-per-node 2 -m ropewalk train RECIPE --out RUN --resume`, killed by SIGKILL, launcher and workers, and
started again, until a run has reached its end; then the next, with another seed. Half of the kills wait until a save is
under way. Every loss that was ever written is compared with the same run left alone, and so are the weights at the end.
A campaign that was ended goes on where it was: runs and counts are in --state.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks import bars
from campaigns import pieces
from ropewalk.train.checkpoint import manifest
from ropewalk.yaml_text import to_yaml
from tests.train import small_recipe

RANKS, EVERY = 2, 3
SOURCES = ("src/ropewalk/train", "campaigns/kills.py", "tests/train/small_recipe.py")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kills", type=int, default=200)
    options.add_argument("--steps", type=int, default=240, help="of a run; 240 unless given")
    options.add_argument("--state", type=Path, default=Path("runs/kills"), help="a folder; runs/kills unless given")
    options.add_argument("--minutes", type=float, default=25.0, help="nothing is begun after this; 25 unless given")
    options.add_argument("--out", type=Path, default=pieces.RESULTS / "kills.json")
    options.add_argument("--json", action="store_true", help="print the result as JSON")
    given = options.parse_args()
    given.state.mkdir(parents=True, exist_ok=True)
    campaign = Campaign(given.state, given.steps, time.monotonic() + 60 * given.minutes)
    while campaign.kills < given.kills:
        if not campaign.round(given.kills):
            print(f"{campaign.kills} of {given.kills} kills; the same command goes on", file=sys.stderr)
            break
    command = f"OMP_NUM_THREADS=1 python -m campaigns.kills --kills {given.kills}"
    said = pieces.result(command, campaign.rounds(), whole, pieces.digest(SOURCES))
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

    def __init__(self, folder: Path, steps: int, end: float) -> None:
        self.folder, self.steps, self.end = folder, steps, end

    def rounds(self) -> dict[str, Any]:
        files = sorted(self.folder.glob("round-*.json"))
        return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}

    @property
    def kills(self) -> int:
        return sum(each["trials"] for each in self.rounds().values())

    def round(self, wanted: int) -> bool:
        """One run, until it has reached its end; False where the time is over before."""
        rounds = self.rounds()
        number = next((n for n in range(len(rounds) + 1) if not rounds.get(f"round-{n:03d}", {}).get("done")), 0)
        run = Round(self.folder, number, self.steps)
        if not run.alone.exists():
            run.leave_alone()
        while not run.said["done"]:
            if time.monotonic() > self.end:
                return False
            run.attempt(kill=self.kills < wanted)
        shutil.rmtree(run.out, ignore_errors=True)
        return True


class Round:
    def __init__(self, folder: Path, number: int, steps: int) -> None:
        self.name, self.steps = f"round-{number:03d}", steps
        self.file, self.out, self.alone = (
            folder / f"{self.name}.json",
            folder / self.name,
            folder / f"alone-{number:03d}.json",
        )
        self.recipe = folder / f"{self.name}.yaml"
        save = {"every": EVERY, "keep": 2, "asynchronous": number % 2 == 1}
        self.recipe.write_text(
            to_yaml(small_recipe.recipe(steps, EVERY, seed=number, save=save).model_dump(mode="json"))
        )
        self.said: dict[str, Any] = {"trials": 0, "in a save": 0, "steps again": 0, "done": False, "failures": []}
        self.said["sources"] = pieces.digest(SOURCES)
        if self.file.exists():
            self.said = json.loads(self.file.read_text(encoding="utf-8"))

    def leave_alone(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        code = self.launch().wait()
        if code:
            raise RuntimeError(f"{self.name} ended with {code} though nobody killed it: {self.log.read_text()[-800:]}")
        found = {"losses": small_recipe.losses(self.out), "weights": self.weights()}
        self.alone.write_text(json.dumps(found), encoding="utf-8")
        shutil.rmtree(self.out)

    def attempt(self, *, kill: bool) -> None:
        """Started once, and killed unless it comes to its end before."""
        random_ = random.Random(f"{self.name} {self.said['trials']}")
        process = self.launch()
        if kill and self.killed(process, random_):
            self.said["trials"] += 1
            self.said["in a save"] += any((self.out / "checkpoints").glob("tmp-*"))
        elif code := process.wait():
            self.fail(f"ended with {code}: {self.log.read_text()[-800:]}")
        else:
            self.said["done"] = True
            self.compare()
        pieces.keep(self.file, self.said)

    def killed(self, process: psutil.Popen, random_: random.Random) -> bool:
        """Killed after it has begun to train again; False where it came to its end."""
        written = self.metrics()
        while self.metrics() == written:
            if process.poll() is not None:
                return False
            time.sleep(0.01)
        time.sleep(random_.uniform(0.0, 0.7))
        if random_.random() < 0.6:
            while not any((self.out / "checkpoints").glob("tmp-*")):
                if process.poll() is not None:
                    return False
            time.sleep(random_.uniform(0.0, 0.03))
        if process.poll() is not None:
            return False
        everything = [*process.children(recursive=True), process]
        for each in everything:
            each.suspend()
        for each in everything:
            each.kill()
        psutil.wait_procs(everything, timeout=30)
        return True

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

    @property
    def log(self) -> Path:
        return self.recipe.with_suffix(".log")

    def launch(self) -> psutil.Popen:
        paths = os.pathsep.join([str(pieces.REPOSITORY / "src"), str(pieces.REPOSITORY)])
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--standalone"]
        train = ["-m", "ropewalk", "train", str(self.recipe), "--out", str(self.out), "--resume", "--quiet"]
        with self.log.open("w", encoding="utf-8") as log:
            return psutil.Popen(
                [*torchrun, *train],
                env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
                stdout=log,
                stderr=subprocess.STDOUT,
            )


def whole(done: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    kills, saving = pieces.summed(done, "trials"), pieces.summed(done, "in a save")
    return (
        {
            "kills": bars.bar(kills, 200, at_least=True),
            "losses or weights that differ": bars.bar(pieces.failures(done), 0, at_least=False),
            "share of kills during a save": bars.bar(saving / max(1, kills), 0.4, at_least=True),
        },
        {
            "kills during a save": saving,
            "steps taken again and compared": pieces.summed(done, "steps again"),
            "runs that came to their end": sum(each["done"] for each in done),
        },
    )


if __name__ == "__main__":
    sys.exit(main())
