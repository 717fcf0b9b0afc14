"""Verdicts on tasks: every arm against the reference at every length, by the exact rank-sum test of the seeds' shares.

Shares of right answers are nearly all or nothing, so that seeds are ranked and never averaged. Holm's correction is
over the arms at one length of one task, as it is on text: with five seeds an arm the least p there is, 2 of 252, allows
six tests at once, too few for all lengths together. The headline is the verdict at the longest length that any seed
answers, and lengths are fixed before the study is run. Seeds that all say "odd" are told from seeds that all say "even"
by what the questions happen to be, so there is no verdict where no seed is above what one answer to all of them gets.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ropewalk.compare.difference import least_p, rank_sum
from ropewalk.compare.measure_text import CANNOT
from ropewalk.evaluate.statistics import LEVEL, holm, wilson

SOLVED = 0.9
"""Share of right answers from which on a task counts as solved."""

OTHER_QUESTIONS = "other questions"
"""The verdict on an arm that is asked others than the reference."""

GUESSED = 0.1
"""Share of the questions from which on an answer to all of them is a guess that pays."""


def points(each: Sequence[float | str]) -> dict[str, Any]:
    """Every seed's share of right answers, and how many seeds solve it."""
    if CANNOT in each:  # as the encoding is, whether or not a seed diverged
        return {"points": CANNOT}
    numbers = [one for one in each if not isinstance(one, str)]
    if not numbers:
        return {"points": []}
    solved = sum(one >= SOLVED for one in numbers)
    low, high = wilson(solved, len(numbers))
    return {
        "points": numbers,
        "solved": solved,
        "of": len(numbers),
        "low": low,
        "high": high,
        "median": statistics.median(numbers),
    }


def by_chance(constant: float, samples: int) -> float:
    """The share up to which right answers say nothing, where one answer to all questions has so many right: of few
    questions a guess may have more by luck. 0 where no answer comes often enough to be guessed."""
    return wilson(round(constant * samples), samples)[1] if constant >= GUESSED else 0.0


def reach(exact: Mapping[str, Mapping[str, Any]], lengths: Sequence[int]) -> list[float]:
    """Of each seed, the longest of the lengths up to which it solves every one; 0: not even the first."""
    rows = [exact[str(n)]["points"] for n in sorted(lengths)]
    count = max((len(row) for row in rows if not isinstance(row, str)), default=0)
    found = []
    for seed in range(count):
        far = 0
        for length, row in zip(sorted(lengths), rows, strict=True):
            if isinstance(row, str) or row[seed] < SOLVED:
                break
            far = length
        found.append(float(far))
    return found


def judged_task(
    exact: Mapping[str, Mapping[str, Mapping[str, Any]]],
    reference: str,
    lengths: Sequence[int],
    complete: Collection[str],
    chance: Mapping[str, float],
    other: Collection[str] = (),
) -> dict[str, dict[str, Any]]:
    """Of each arm on one task: the verdict at each length, and that on how far its seeds solve all.

    exact: of each arm, `points` by length. complete: arms with all their seeds; others get no verdict.
    chance: by length, the share up to which answers say nothing. other: arms that are asked other questions.
    """
    far = {name: reach(each, lengths) for name, each in exact.items()}
    nowhere = [name for name, each in exact.items() if all(isinstance(one["points"], str) for one in each.values())]
    unlike = dict.fromkeys(other, OTHER_QUESTIONS)
    by_reach = ranked({**far, **dict.fromkeys(nowhere, CANNOT), **unlike}, reference, complete)
    answer = {
        name: {"reach": far[name], "reach_p": one["p"], "reach_verdict": one["verdict"], "lengths": {}}
        for name, one in by_reach.items()
    }
    for length in sorted({*lengths}):
        row = {name: exact[name][str(length)]["points"] for name in answer} | unlike
        for name, one in ranked(row, reference, complete, chance.get(str(length), 0.0)).items():
            answer[name]["lengths"][str(length)] = one
    return answer


def ranked(
    values: Mapping[str, Sequence[float] | str], reference: str, complete: Collection[str], chance: float = 0.0
) -> dict[str, dict[str, Any]]:
    """p and verdict of each arm whose seeds have a number, or that it cannot."""
    base = values.get(reference, ())
    numbers = {name: each for name, each in values.items() if each and not isinstance(each, str)}
    tested = {
        name: rank_sum(each, numbers[reference])
        for name, each in numbers.items()
        if name != reference and reference in numbers
    }
    rejected = holm({name: one.p for name, one in tested.items()})
    answer: dict[str, dict[str, Any]] = {}
    for name, each in values.items():
        verdict = "no verdict"
        if isinstance(each, str):
            verdict = each
        elif name == reference:
            verdict = "reference"
        elif not each:
            continue
        # Where not even the most uneven outcome would count, nothing was tried.
        elif (
            name in tested
            and {name, reference} <= {*complete}
            and least_p(len(each), len(base)) <= (1 - LEVEL) / len(tested)
            and (not chance or max(*each, *numbers[reference]) > chance)
        ):
            verdict = "tie" if not rejected[name] else "better" if tested[name].above > 0 else "worse"
        answer[name] = {"p": tested[name].p if name in tested else None, "verdict": verdict}
    return answer
