"""Is an arm different from the reference? Seeds are the unit: what another run of the same recipe would change.

    difference     Welch's t of two samples, each with its own variance: seeds of the arm, seeds of the reference
    noise floor    t(0.975, n - 1) s sqrt(2): how far apart two single runs of the reference are, 19 times of 20. Means
                   of a and b runs are sqrt((1/a + 1/b) / 2) as far apart. Of an arm it is that of single runs: three
                   seeds know their variance badly, and Welch's test alone would call too many different
    ranks          the exact test of rank sums, for outcomes that are all or nothing

A difference counts where it is past the reference's noise floor of such means and the arm's own, and its hypothesis
falls under Holm's correction over all arms.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from ropewalk.evaluate.statistics import LEVEL, holm, t_cdf, t_quantile

Verdict = Literal["better", "worse", "tie", "no verdict"]


@dataclass(frozen=True)
class Difference:
    """Arm minus reference, over seeds."""

    mean: float
    low: float
    high: float
    p: float
    seeds: tuple[int, int]
    floor: float | None
    """How far apart two runs of the arm itself are."""

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    def to_dict(self) -> dict[str, Any]:
        return {name: None if value in (math.inf, -math.inf) else value for name, value in asdict(self).items()}


def difference(arm: Sequence[float], reference: Sequence[float], level: float = LEVEL) -> Difference:
    count = (len(arm), len(reference))
    mean = statistics.fmean(arm) - statistics.fmean(reference)
    floor = noise_floor(arm, level)
    if min(count) < 2:
        return Difference(mean, -math.inf, math.inf, 1.0, count, floor)
    parts = [statistics.variance(part) / len(part) for part in (arm, reference)]
    spread = math.sqrt(sum(parts))
    if spread == 0:
        return Difference(mean, mean, mean, 1.0 if mean == 0 else 0.0, count, floor)
    # Whole degrees of freedom, rounded down: a little wider than need be.
    freedom = int(sum(parts) ** 2 / sum(part**2 / (n - 1) for part, n in zip(parts, count, strict=True)) + 1e-9)
    half = t_quantile((1 + level) / 2, freedom) * spread
    return Difference(mean, mean - half, mean + half, 2 * (1 - t_cdf(abs(mean) / spread, freedom)), count, floor)


def noise_floor(reference: Sequence[float], level: float = LEVEL) -> float | None:
    """None where there are too few seeds to know it."""
    if len(reference) < 2:
        return None
    return t_quantile((1 + level) / 2, len(reference) - 1) * statistics.stdev(reference) * math.sqrt(2)


def of_means(floor: float, seeds: tuple[int, int]) -> float:
    """The noise floor of the means of so many runs, from that of single ones."""
    return floor * math.sqrt(sum(1 / count for count in seeds) / 2)


def verdicts(
    found: Mapping[str, Difference], floor: float | None, *, lower_is_better: bool = True
) -> dict[str, Verdict]:
    """Of every arm against the reference, together. Without a noise floor there is none, nor of a single seed: it has
    no interval."""
    if floor is None:
        return dict.fromkeys(found, "no verdict")
    rejected = holm({name: one.p for name, one in found.items()})
    return {
        name: "no verdict"
        if math.isinf(one.low)
        else "tie"
        if not rejected[name] or abs(one.mean) <= max(of_means(floor, one.seeds), one.floor or 0.0)
        else "better"
        if (one.mean < 0) == lower_is_better
        else "worse"
        for name, one in found.items()
    }


class RankSum(NamedTuple):
    p: float
    """Two-sided: the share of all ways to deal out the outcomes that are as uneven as this."""
    above: float
    """By how much the arm's ranks sum to more than they would by chance; negative: to less."""


def rank_sum(arm: Sequence[float], reference: Sequence[float]) -> RankSum:
    """The exact test, equal outcomes sharing the mean of their ranks."""
    both = Counter([*arm, *reference])
    # Twice the ranks, which are whole numbers, and how many ways there are to take so many outcomes with such a sum.
    ranks, below = {}, 0
    ways = {(0, 0): 1}
    for value, count in sorted(both.items()):
        ranks[value] = 2 * below + count + 1
        below += count
        more: dict[tuple[int, int], int] = {}
        for ((taken, total), number), some in itertools.product(ways.items(), range(count + 1)):
            if taken + some <= len(arm):
                key = (taken + some, total + some * ranks[value])
                more[key] = more.get(key, 0) + number * math.comb(count, some)
        ways = more
    middle = len(arm) * (below + 1)
    above = sum(ranks[value] for value in arm) - middle
    uneven = sum(n for (taken, total), n in ways.items() if taken == len(arm) and abs(total - middle) >= abs(above))
    return RankSum(uneven / math.comb(below, len(arm)), above / 2)


def least_p(arm: int, reference: int) -> float:
    """The smallest that rank sums of so many seeds can have: one way of all, and its mirror where both have as many."""
    return (2 if arm == reference else 1) / math.comb(arm + reference, arm)
