"""A study of `ropewalk compare`, killed: with its driver, with a worker, here and on Ray; its result is the same.

    OMP_NUM_THREADS=1 python -m campaigns.study_kills

Four scenarios, each with two workers. `local` and `ray`: at ten random moments either the command is killed by SIGKILL
and given again, or a process that runs a trial is killed and the command goes on. `local, steadily`, `ray, steadily`: a
process that runs a trial is killed every 30 seconds until the study ends; its trials take longer than that. Then
study.json is compared with that of the same study left alone, all of it but what stands under `timing`.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks import bars
from campaigns import pieces
from ropewalk.compare.study import Study
from ropewalk.train.metrics import read
from ropewalk.yaml_text import to_yaml
from tests.compare.tiny_study import study

SOURCES = (
    *("src/ropewalk/" + name for name in ("compare", "trials", "train", "data")),
    "campaigns/study_kills.py",
    "tests/compare/tiny_study.py",
)
SCENARIOS = ("local", "ray", "local, steadily", "ray, steadily")
KILLS, STEPS, SLOW_STEPS, EVERY = 10, 240, 2400, 30.0
AGENTS = ("ray::RuntimeEnvAgent", "ray::DashboardAgent")
LIMIT = 1200.0
"""Seconds after which a study that was killed so often is given up."""


def piece(start: int, count: int) -> dict[str, Any]:
    failures, kills, what = [], 0, []
    for name in SCENARIOS[start : start + count]:
        with tempfile.TemporaryDirectory(prefix="ropewalk-studies-", ignore_cleanup_errors=True) as made:
            steps = SLOW_STEPS if "steadily" in name else STEPS
            found = scenario(Path(made), name, kills=KILLS, steps=steps)
        kills += len(found["killed"])
        what.append({name: found})
        failures += [{"scenario": name, "fault": fault} for fault in found["faults"]]
    return {"trials": count, "failures": failures, "kills": kills, "scenarios": what}


def scenario(folder: Path, name: str, *, kills: int, steps: int, **sizes: Any) -> dict[str, Any]:
    on, steadily = name.partition(",")[0], "steadily" in name
    file = folder / "study.yaml"
    file.write_text(to_yaml(small(steps, **sizes).model_dump(mode="json")), encoding="utf-8")
    alone, run = Command(file, folder / "alone", on), Command(file, folder / "killed", on)
    began = time.monotonic()
    alone.begin()
    faults = [] if alone.end() == 0 else [f"left alone it ended with {alone.code}"]
    seconds = time.monotonic() - began
    at = moments(alone.steps(), kills)
    killed = [] if faults else list(run.killed_steadily() if steadily else run.killed_at(at))
    if not faults and run.end() != 0:
        faults.append(f"after {len(killed)} kills it ended with {run.code}: {run.said()}")
    if not faults and (apart := sorted(different(alone.result(), run.result()))):
        faults.append(f"the results differ in {', '.join(apart)}")
    if not faults and len(killed) < kills and not steadily:
        faults.append(f"{len(killed)} of {kills} kills hit")
    return {"killed": killed, "faults": faults, "seconds alone": round(seconds, 1), "steps": alone.steps()}


def different(one: Any, other: Any, where: str = "") -> Iterator[str]:
    """Where two results are not the same, by the names that lead there."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in one.keys() | other.keys():
            # JSON has no Ellipsis: a name that one of them lacks is not one whose value is null.
            yield from different(one.get(name, ...), other.get(name, ...), f"{where}.{name}" if where else name)
    elif one != other:
        yield where


def small(steps: int, *, arms: Sequence[str] = ("rope", "alibi", "none"), seeds: int = 2, **model: Any) -> Study:
    """A trial for each arm and seed, of so many steps. model: of its sizes."""
    changes = {"steps": steps, "compile": False, "evaluate": {"every": steps, "tokens": 96}, "save": {"every": 20}}
    made = study(arms={name: name for name in arms})
    said = made.model_dump(mode="json", exclude_unset=True)
    said["recipe"]["train"] |= changes
    said["recipe"]["model"] |= model
    said["tasks"] |= {"seeds": seeds}
    return Study(**said)


def moments(steps: int, kills: int) -> list[int]:
    """Of the steps of all trials together, in order."""
    return sorted(random.Random(0).sample(range(steps // 20, steps * 3 // 4), kills))


class Command:
    """`ropewalk compare` on one folder, given as often as it is killed."""

    def __init__(self, study: Path, out: Path, on: str) -> None:
        self.out, self.log, self.code = out, out.with_suffix(".log"), None
        self.arguments = ["compare", str(study), "--out", str(out), "--on", on, "--workers", "2", "--quiet"]
        self.process: psutil.Popen | None = None

    def begin(self) -> psutil.Popen:
        paths = os.pathsep.join([str(pieces.REPOSITORY / "src"), str(pieces.REPOSITORY)])
        environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "RAY_ADDRESS": ""}
        with self.log.open("ab") as log:
            self.process = psutil.Popen(
                [sys.executable, "-m", "ropewalk", *self.arguments], env=environment, stdout=log, stderr=log
            )
        return self.process

    def running(self) -> psutil.Popen:
        if self.process is None or self.process.poll() is not None:
            return self.begin()
        return self.process

    def end(self) -> int:
        self.code = self.running().wait()
        return self.code

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-500:]

    def steps(self) -> int:
        """Of all trials, those that are done included; what a kill undid is counted once."""
        done = [json.loads(file.read_text(encoding="utf-8"))["steps"] for file in self.out.glob("trials/*.json")]
        return sum(done) + sum(map(_last_step, self.out.glob("runs/*/metrics.jsonl")))

    def killed_at(self, moments: list[int]) -> Iterator[str]:
        for who, moment in zip(itertools.cycle(("driver", "worker")), moments, strict=False):
            end = time.monotonic() + LIMIT
            # After a kill of the command its workers take a while to come back.
            while self.steps() < moment or (victim := self.running() if who == "driver" else self.worker()) is None:
                if time.monotonic() > end or (self.process and self.process.poll() not in (None, -signal.SIGKILL)):
                    return
                self.running()
                time.sleep(0.05)
            self._kill(victim, who)
            yield f"{who} at step {moment} of all"

    def killed_steadily(self) -> Iterator[str]:
        began = time.monotonic()
        process = self.running()
        while time.monotonic() < began + LIMIT:
            try:
                process.wait(EVERY)
                return
            except psutil.TimeoutExpired:
                victim = self.worker()
            if victim is not None:
                self._kill(victim, "worker")
                yield f"worker after {time.monotonic() - began:.0f} s"

    def worker(self) -> psutil.Process | None:
        """One that has a trial: of those the oldest, whose loss costs most."""
        found = [one for one in self.running().children(recursive=True) if _has_trial(one)]
        return min(found, key=lambda one: one.create_time(), default=None)

    def _kill(self, victim: Any, who: str) -> None:
        # Workers end with their driver, and Ray with the process that began it: all but its agents, which hold no trial
        # and wait a minute for its server to come back.
        below = [one for one in victim.children(recursive=True) if one.name() not in AGENTS]
        victim.kill()
        victim.wait()
        _, left = psutil.wait_procs(below, timeout=60)
        if left:
            raise RuntimeError(f"{len(left)} processes outlived the {who} by a minute: {[one.name() for one in left]}")

    def result(self) -> dict[str, Any]:
        found = json.loads((self.out / "study.json").read_text(encoding="utf-8"))
        return {name: value for name, value in found.items() if name != "timing"}


def _has_trial(process: psutil.Process) -> bool:
    try:
        said = " ".join(process.cmdline())
    except psutil.Error:
        return False
    return said.startswith("ray::_answer") or "spawn_main" in said


def _last_step(file: Path) -> int:
    try:
        done = read(file)["train"]
    except FileNotFoundError:  # its trial was done a moment ago
        return 0
    return done[-1]["step"] if done else 0


def whole(done: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    kills = pieces.summed(done, "kills")
    return (
        {
            "studies with another result than left alone": bars.bar(pieces.failures(done), 0, at_least=False),
            "kills": bars.bar(kills, 2 * KILLS, at_least=True),
        },
        {"scenarios": pieces.summed(done, "trials"), "kills": kills},
    )


if __name__ == "__main__":
    sys.exit(pieces.main(__doc__, "study_kills", piece, whole, trials=len(SCENARIOS), piece=1, sources=SOURCES))
