"""Does a study find what is known, and nothing where there is nothing? Of a finished `studies/extrapolation.yaml`.

    python -m campaigns.anchors STUDY OUT [--json]        OUT is the folder that `ropewalk compare STUDY --out` wrote

splits    every way to halve the seeds of the reference: how often one half is called better or worse than the other
anchors   on the same tokens, perplexity at six times the trained length over that at the trained one: ALiBi's within
          3 % (17.98 to 18.30 in its paper), sinusoidal's at least 5, T5's between; in windows end to end ALiBi seems to
          improve; copying at twice the trained size, the better of NoPE and T5 is 20 points above RoPE, which has the
          lower loss on text within its length
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import bars
from campaigns import pieces
from ropewalk.compare.derived import middle, ratios
from ropewalk.compare.difference import noise_floor
from ropewalk.compare.driver import results_in
from ropewalk.compare.measure_text import seed_means
from ropewalk.compare.plan import Plan
from ropewalk.compare.result import _judged, _verdicts, compared
from ropewalk.compare.study import load_study
from ropewalk.report.comparison.numbers import mean

SOURCES = (
    "campaigns/anchors.py",
    "src/ropewalk/compare/derived.py",
    "src/ropewalk/compare/difference.py",
    "src/ropewalk/compare/result.py",
)
FAR = 6
"""Times the trained length."""


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("study", type=Path)
    options.add_argument("out", type=Path)
    options.add_argument("--json", action="store_true", help="print the result as JSON")
    given = options.parse_args()
    plan, results = Plan(load_study(given.study)), results_in(given.out)
    found = compared(plan, results, given.out)
    if missing := found["trials"]["missing"]:
        print(f"{len(missing)} trials are missing, the first of them {missing[0]}", file=sys.stderr)
        return 2
    reference = [one["measured"] for one in _judged(plan, "text", found["reference"], results)]
    different = {length: split(reference, length) for length in found["text"]["lengths"]}
    said = {
        "command": f"python -m campaigns.anchors {given.study} {given.out}",
        "study": found["hash"],
        "bars": {
            **{
                f"halves of {len(reference)} seeds called different at {length}, of all, at most": bars.bar(
                    share, 0.07, at_least=False
                )
                for length, share in different.items()
            },
            **anchors(found),
        },
        "measured": {
            f"perplexity at {length} over that at the trained length": worse(found["text"], length)
            for length in found["text"]["lengths"][1:]
        }
        | {
            f"{task} at {length}, arm over rope, points": over_rope(found["tasks"], task, length)
            for task in ("copy", "sort")
            for length in found["tasks"]["lengths"]
            if length > found["tasks"]["longest"]
        },
        "versions": bars.versions(()),
        "sources": pieces.digest(SOURCES),
    }
    return bars.tell(said, as_json=given.json)


def split(seeds: Sequence[Mapping[str, Any]], length: int) -> float:
    """The share of all halvings that are called better or worse, each half the reference once."""
    half, called = len(seeds) // 2, []
    for chosen in itertools.combinations(range(2 * half), half):
        done = {
            "reference": [seeds[number] for number in chosen],
            "arm": [seeds[number] for number in range(2 * half) if number not in chosen],
        }
        values = {name: seed_means(each, length) for name, each in done.items()}
        floor = noise_floor([value for value in values["reference"] if isinstance(value, float)])
        called.append(_verdicts(values, done, "reference", length, floor)["arm"]["verdict"])
    return sum(one in ("better", "worse") for one in called) / len(called)


def worse(text: Mapping[str, Any], length: int) -> dict[str, float | None]:
    """Perplexity over that at the trained length, by arm: the geometric mean over seeds, as in the report; None where
    one has none."""
    return {name: middle(ratios(text, name, length)) for name in text["arms"]}


def over_rope(tasks: Mapping[str, Any], task: str, length: int) -> dict[str, float]:
    """By arm, the median over seeds of what it answers without an error less that of RoPE, in points."""
    exact = {name: arm["exact"][task][str(length)]["points"] for name, arm in tasks["arms"].items()}
    reached = {name: statistics.median(points) for name, points in exact.items() if not isinstance(points, str)}
    return {name: 100 * (each - reached["rope"]) for name, each in reached.items() if name != "rope"}


def anchors(found: Mapping[str, Any]) -> dict[str, Any]:
    text, tasks = found["text"], found["tasks"]
    far = str(FAR * text["trained"])
    over = {name: math.nan if ratio is None else ratio for name, ratio in worse(text, int(far)).items()}
    windows = text["arms"]["alibi"]["non_overlapping"]
    within = {name: mean(arm["same_tokens"][str(text["trained"])]) for name, arm in text["arms"].items()}
    copied = over_rope(tasks, "copy", 2 * tasks["longest"])
    best = max(("nope", "t5"), key=lambda name: copied[name])
    return {
        f"alibi, perplexity at {far} over that at the trained length, at most": bars.bar(
            over["alibi"], 1.03, at_least=False
        ),
        f"sinusoidal, the same, at least: {far}": bars.bar(over["sinusoidal"], 5.0, at_least=True),
        f"t5 over alibi at {far}, at least": bars.bar(over["t5"] / over["alibi"], 1.0, at_least=True),
        f"t5 over sinusoidal at {far}, at most": bars.bar(over["t5"] / over["sinusoidal"], 1.0, at_least=False),
        f"alibi in windows end to end, nats at {far} less those at the trained length, below": bars.bar(
            _less(windows[far], windows[str(text["trained"])]), 0.0, at_least=False
        ),
        f"copy at {2 * tasks['longest']}, {best} over rope, points, at least": bars.bar(
            copied[best], 20.0, at_least=True
        ),
        f"text within the trained length, {best} less rope, nats, above": bars.bar(
            _less([within[best]], [within["rope"]]), 0.0, at_least=True
        ),
    }


def _less(one: Any, other: Any) -> float:
    a, b = mean(one), mean(other)
    return math.nan if a is None or b is None else a - b


if __name__ == "__main__":
    sys.exit(main())
