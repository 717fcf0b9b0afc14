"""What a study costs: said before from the trials that are done, or from the operations they take; and after."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ropewalk.amounts import counted, duration
from ropewalk.compare.trials import Trial
from ropewalk.train.plan.cost import gemm_peak, step_flops
from ropewalk.train.plan.sizes import sizes

USED = 0.2
"""Share of the peak of a matrix product that small models reach on one thread, where nothing is measured yet."""
MEASURE = 0.2
"""Share of a training that its measurement takes, where nothing is measured yet."""
START = 6.0
"""Seconds in which a worker starts."""


class Cost(NamedTuple):
    trials: int
    seconds: float

    @property
    def hours(self) -> float:
        return self.seconds / 3600

    @classmethod
    def of(cls, trials: Sequence[Trial], results: Mapping[str, Mapping[str, Any]]) -> Cost:
        done = [results[trial.hash]["timing"] for trial in trials if trial.hash in results]
        return cls(len(done), sum(one["train"] + one["measure"] for one in done))


def expected(trials: Sequence[Trial], results: Mapping[str, Mapping[str, Any]]) -> tuple[float, bool]:
    """Seconds of these trials if run one at a time, and whether that is from trials that were measured."""
    rates: dict[str, list[float]] = {}
    measuring: dict[str, list[float]] = {}
    for one in results.values():
        if one["timing"]["train"] > 0:
            rates.setdefault(one["part"], []).append(one["timing"]["train"] / (one["steps"] * one["step_flops"]))
        if one["measured"] is not None:
            measuring.setdefault(one["part"], []).append(one["timing"]["measure"])
    known = all(trial.part in rates for trial in trials)
    guess = 0.0 if known else 1 / (USED * _peak(trials[0].threads))
    seconds = 0.0
    for trial in trials:
        cut = sizes(trial.recipe.train, trial.recipe.data.length, 1)
        flops = cut.steps * step_flops(trial.recipe.model, cut.rows, cut.length)
        each = statistics.median(rates[trial.part]) if trial.part in rates else guess
        seconds += flops * each
        if trial.measure is not None:
            known_ones = measuring.get(trial.part)
            seconds += statistics.median(known_ones) if known_ones else MEASURE * flops * each
    return seconds, known


def _peak(threads: int) -> float:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return gemm_peak("float32", size=512)
    finally:
        torch.set_num_threads(before)


def said_before(
    needed: Sequence[Trial], missing: Sequence[Trial], results: Mapping[str, Mapping[str, Any]], workers: int
) -> str:
    seconds, known = expected(missing, results)
    done = sum(trial.hash in results for trial in needed)
    each = max(seconds / max(1, min(workers, len(missing))), seconds / len(missing)) + START
    basis = "as measured on those" if known else "a guess until the first are done"
    search = " (more follow when learning rates are chosen)" if any(trial.share != 1 for trial in missing) else ""
    return (
        f"{counted(len(needed), 'trial')} · {done} done before · {len(missing)} to run{search} · {workers} at a time · "
        f"about {duration(each)}, {duration(seconds)} if run one at a time, {basis}"
    )
