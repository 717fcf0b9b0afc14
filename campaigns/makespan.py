"""Eight equal trials of `ropewalk compare`: one after the other with one thread and with two, and by two Ray workers.

    python -m campaigns.makespan [--json]

Nothing else may run. Each way three times in turn, each a command of its own in an empty folder; figures are ratios
within a turn, of which the median is taken. What Ray costs a trial is the time of the command, less the time that a
study of no trial takes on Ray (its start), less what the trials took by their own clocks on two workers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import bars
from campaigns import pieces
from campaigns.study_kills import small
from ropewalk.yaml_text import to_yaml

SOURCES = ("campaigns/makespan.py", "campaigns/study_kills.py", "src/ropewalk/compare", "src/ropewalk/trials")
WAYS = {
    "one thread": (1, ["--workers", "1"]),
    "two threads": (2, ["--workers", "1"]),
    "two Ray workers": (1, ["--on", "ray", "--workers", "2"]),
}
STEPS, TURNS, TRIALS = 100, 3, 8
SIZES, BATCH = {"width": 128, "layers": 4, "heads": 4, "hidden": 384}, 1920
"""Of models as studies train them: two threads are of use."""


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", action="store_true", help="print the result as JSON")
    options.add_argument("--steps", type=int, default=STEPS, help=f"of a trial, {STEPS} unless given")
    options.add_argument("--turns", type=int, default=TURNS, help=f"{TURNS} unless given")
    given = options.parse_args()
    return bars.tell(measured(given.steps, given.turns), as_json=given.json)


def measured(steps: int, turns: int) -> dict[str, Any]:
    rounds: list[dict[str, dict[str, float]]] = []
    for turn in range(turns):
        rounds.append({name: timed(steps, *how) for name, how in WAYS.items()})
        print(f"turn {turn + 1}: {rounds[-1]}", file=sys.stderr, flush=True)

    def ratio(over: str, under: str) -> float:
        return statistics.median(each[over]["seconds"] / each[under]["seconds"] for each in rounds)

    ray = [each["two Ray workers"] for each in rounds]
    extra = statistics.median((one["seconds"] - one["start"] - one["trials"] / 2) / (TRIALS / 2) for one in ray)
    return {
        "command": f"python -m campaigns.makespan --steps {steps} --turns {turns}",
        "bars": {
            "two Ray workers over one thread, at most": bars.bar(
                ratio("two Ray workers", "one thread"), 0.6, at_least=False
            ),
            "two Ray workers over two threads, at most": bars.bar(
                ratio("two Ray workers", "two threads"), 1.0, at_least=False
            ),
            "seconds beyond its start that Ray costs a trial, at most": bars.bar(extra, 5.0, at_least=False),
        },
        "measured": rounds,
        "versions": bars.versions(("ray",)),
        "sources": pieces.digest(SOURCES),
    }


def timed(steps: int, threads: int, options: list[str]) -> dict[str, float]:
    """Seconds of the command, of the same command when nothing is left to do, and of the trials by their own clocks."""
    study = small(steps, seeds=TRIALS // 4, arms=("rope", "alibi", "none", "t5"), **SIZES)
    study.recipe["train"]["batch"] = BATCH
    study = study.model_copy(update={"threads": threads})
    with tempfile.TemporaryDirectory(prefix="ropewalk-makespan-") as made:
        file = Path(made, "study.yaml")
        file.write_text(to_yaml(study.model_dump(mode="json")), encoding="utf-8")
        command = [sys.executable, "-m", "ropewalk", "compare", str(file), "--quiet", "--out", f"{made}/out", *options]

        def seconds() -> float:
            began = time.monotonic()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            return time.monotonic() - began

        whole = seconds()
        done = [json.loads(file.read_text(encoding="utf-8")) for file in Path(made, "out/trials").glob("*.json")]
        assert len(done) == TRIALS
        trials = sum(one["timing"]["train"] + one["timing"]["measure"] for one in done)
        return {"seconds": round(whole, 1), "start": round(seconds(), 1), "trials": round(trials, 1)}


if __name__ == "__main__":
    sys.exit(main())
