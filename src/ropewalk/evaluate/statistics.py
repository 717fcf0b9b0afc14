"""Intervals whose unit is the document: tokens of one text are not independent of each other.

    mean +- t(0.975, n - 1) s / sqrt(n)          paired differences, one a document
    Wilson's interval                            shares, such as needles found
    Holm's step-down correction                  several candidates against one baseline

Below `FEWEST` documents an interval is shown and nothing is concluded from it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal

FEWEST = 8
"""Documents below which no verdict is given."""
LEVEL = 0.95

Verdict = Literal["better", "worse", "no difference", "too few documents"]


@dataclass(frozen=True)
class Interval:
    """A mean over documents with its confidence interval. Positive differences are gains."""

    mean: float
    low: float
    high: float
    documents: int
    deviation: float
    """The standard deviation over documents, which decides how many are needed."""

    @property
    def verdict(self) -> Verdict:
        if self.documents < FEWEST:
            return "too few documents"
        return "better" if self.low > 0 else "worse" if self.high < 0 else "no difference"

    def to_dict(self) -> dict[str, Any]:
        """Without the verdict, which takes a positive number for a gain: of a cost it would say the opposite. What one
        document does not give is None: JSON has no infinity."""
        return {name: value if math.isfinite(value) else None for name, value in asdict(self).items()}

    def __str__(self) -> str:
        if math.isinf(self.low):
            return f"{self.mean:+.4f} (one document)"
        return f"{self.mean:+.4f} [{self.low:+.4f}, {self.high:+.4f}]"


def paired(differences: Sequence[float], level: float = LEVEL) -> Interval:
    """Student's t over differences, one a document; infinite for a single one."""
    count = len(differences)
    if not count:
        raise ValueError("no document gave a difference; give longer documents, or a shorter length")
    mean = statistics.fmean(differences)
    if count == 1:
        return Interval(mean, -math.inf, math.inf, 1, math.nan)
    deviation = statistics.stdev(differences)
    half = t_quantile((1 + level) / 2, count - 1) * deviation / math.sqrt(count)
    return Interval(mean, mean - half, mean + half, count, deviation)


def p_value(differences: Sequence[float]) -> float:
    """Two-sided, of the hypothesis that the mean difference is zero."""
    count = len(differences)
    if count < 2:
        return 1.0
    deviation = statistics.stdev(differences)
    mean = statistics.fmean(differences)
    if deviation == 0:
        return 1.0 if mean == 0 else 0.0
    return 2 * (1 - t_cdf(abs(mean) * math.sqrt(count) / deviation, count - 1))


def holm(p_values: Mapping[str, float], level: float = LEVEL) -> dict[str, bool]:
    """Which of several hypotheses are rejected, with at most 1 - level chance of a single false rejection."""
    rejected = dict.fromkeys(p_values, False)
    for place, (name, value) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        if value > (1 - level) / (len(p_values) - place):
            break
        rejected[name] = True
    return rejected


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """The correlation of two rankings, equal values sharing the mean of their ranks; 0 where one ranks nothing."""
    a, b = _ranks(one), _ranks(other)
    if len({*a}) < 2 or len({*b}) < 2:
        return 0.0
    return statistics.correlation(a, b)


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]


def wilson(found: float, asked: int, level: float = LEVEL) -> tuple[float, float]:
    """The interval of a share; with 10 of 10 it is 0.72 to 1, not 1 to 1."""
    if not asked:
        raise ValueError("nothing was asked, so there is no share")
    z = statistics.NormalDist().inv_cdf((1 + level) / 2)
    share = found / asked
    middle = (share + z * z / (2 * asked)) / (1 + z * z / asked)
    half = z / (1 + z * z / asked) * math.sqrt(share * (1 - share) / asked + z * z / (4 * asked * asked))
    return max(0.0, middle - half), min(1.0, middle + half)


def t_cdf(t: float, freedom: int) -> float:
    """Student's distribution, by its closed form in sine and cosine for whole degrees of freedom."""
    angle = math.atan(abs(t) / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine, cosine if freedom > 1 else 0.0) if odd else (1.0, 1.0)
    for step in range(3 if odd else 2, freedom - 1, 2):
        term *= cosine * cosine * (step - 1) / step
        total += term
    between = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return 0.5 + math.copysign(between / 2, t)


@cache
def t_quantile(probability: float, freedom: int) -> float:
    """Where Student's distribution reaches a probability above one half, by bisection."""
    low, high = 0.0, 1.0
    while t_cdf(high, freedom) < probability:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, freedom) < probability else (low, middle)
    return high
