"""Runs what a study needs: trial after trial or several at once, here or on Ray, until nothing is missing.

    OUT/study.yaml        what is compared, every default written out
    OUT/registered.jsonl  its hash and when it was first run, before anything was; a line for each version of it
    OUT/trials/           results
    OUT/study.json        what they say together

Any number of commands may work on one folder: `--shard i/n` takes every n-th trial. Each continues what was killed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ropewalk.compare.cost import Cost, said_before
from ropewalk.compare.plan import Plan
from ropewalk.compare.run_trial import run_trial
from ropewalk.compare.study import Study
from ropewalk.compare.trials import Trial, digest
from ropewalk.trials.jobs import Workers, mapped
from ropewalk.yaml_text import to_yaml

TRIES = 50
"""Workers that a trial may lose: each continues from the last checkpoint."""


class Shard(NamedTuple):
    number: int = 0
    of: int = 1

    @classmethod
    def read(cls, text: str) -> Shard:
        """0/4 is the first of four."""
        number, slash, of = text.partition("/")
        if not slash or not number.isdecimal() or not of.isdecimal() or not int(number) < int(of):
            raise ValueError(f"{text!r} is no shard; write i/n with i from 0 to n - 1, for example 0/4")
        return cls(int(number), int(of))

    def has(self, trial: Trial) -> bool:
        """By the hash, so that every command comes to the same answer, whatever is done already."""
        return int(trial.hash, 16) % self.of == self.number


@dataclass(frozen=True)
class Watcher:
    """Who is told how a study goes."""

    say: Callable[[str], None] = lambda text: None
    begin: Callable[[Sequence[Trial], Path], None] = lambda trials, out: None
    """Trials that are about to be run, and the folder in which they write."""
    done: Callable[[Trial], None] = lambda trial: None


WHOLE, NOBODY = Shard(), Watcher()


def results_in(out: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for file in sorted((out / "trials").glob("*.json")):
        try:
            found[file.stem] = json.loads(file.read_text(encoding="utf-8"))
        except json.JSONDecodeError:
            raise ValueError(f"{file} is not what a trial writes; remove it, and the trial is done again") from None
    return found


def register(study: Study, out: Path) -> str:
    """Writes down what is to be compared before it is; the hash of it."""
    out.mkdir(parents=True, exist_ok=True)
    said = study.model_dump(mode="json")
    name, file = digest(said), out / "registered.jsonl"
    known = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []
    written, text = out / "study.yaml", to_yaml(said)
    # Also of one that was run before another: the file is what is run now.
    if not written.is_file() or written.read_text(encoding="utf-8") != text:
        written.write_text(text, encoding="utf-8")
    if name not in [one["hash"] for one in known]:
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"hash": name, "time": time.time()}) + "\n")
    return name


def run(
    study: Study,
    out: Path,
    workers: Workers,
    shard: Shard = WHOLE,
    watcher: Watcher = NOBODY,
    most: int | None = None,
) -> tuple[Plan, dict[str, dict[str, Any]]]:
    """Does what is missing; the plan and all results. Trials of other shards may be missing at the end. most: trials to
    run before it stops."""
    plan, begun = Plan(study), 0
    register(study, out)

    def over(results: dict[str, dict[str, Any]]) -> bool:
        return study.budget is not None and Cost.of(plan.needed(results), results).hours >= study.budget

    while True:
        results = results_in(out)
        missing = [trial for trial in plan.missing(results) if shard.has(trial)]
        missing = missing if most is None else missing[: most - begun]
        if not missing:
            return plan, results
        if over(results):
            watcher.say(f"the budget of {study.budget:g} hours is used up; {len(missing)} trials not started")
            return plan, results
        if not begun:
            watcher.say(said_before(plan.needed(results), missing, results, workers.count))
        watcher.begin(missing, out)
        given: list[Trial] = []

        def in_budget(missing: Sequence[Trial] = missing, given: list[Trial] = given) -> Iterator[Trial]:
            # Asked whenever a worker is free, so that none waits for the others.
            for trial in missing:
                if given and study.budget is not None and over(results_in(out)):
                    return
                given.append(trial)
                yield trial

        for number, _ in enumerate(mapped(run_trial, str(out), in_budget(), workers._replace(tries=TRIES))):
            watcher.done(given[number])
        begun += len(given)
