"""A family of six numbers of which the formulas are points, or nearly.

    ln f_i = ln(factor) x_i^power + ln(base) i / (P - 1)        f_i divides the frequency of pair i of P, fastest first
    x_i    = (i - first) / span, at least 0 and at most 1

    linear      first -1, span 1                ntk       factor 1: `base` is what a larger base divides the slowest by
    yarn        power about 1.6 at 4x           mrrope    power about 2
    base and yarn   both at once                clip      a short span and a large factor

and a gain. An assumed trained length moves `first` and its end. Six smooth numbers can be searched in a hundred passes
and fit a few documents less closely than one divisor a pair would.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ropewalk.extend.candidates import Candidate, Rope, listed
from ropewalk.extend.candidates.base import SEARCHED, usual_gain

BEYOND = 16.0
"""Times the wanted factor: what pairs are divided by at most. Past that they stand almost still."""
POWERS = tuple(0.3 * 1.2**step for step in range(15))  # to 3.9


@dataclass(frozen=True)
class Ramp:
    first: float
    span: float
    power: float
    factor: float
    base: float
    gain: float

    def divisors(self, pairs: int) -> list[float]:
        found = []
        for i in range(pairs):
            x = min(max((i - self.first) / self.span, 0.0), 1.0)
            exponent = math.log(self.factor) * x**self.power + math.log(self.base) * i / max(pairs - 1, 1)
            found.append(math.exp(exponent))
        return found

    def candidate(self, rope: Rope) -> Candidate:
        return as_candidate(self.divisors(rope.width // 2), self.gain, rope)


def as_candidate(divisors: Sequence[float], gain: float, rope: Rope) -> Candidate:
    """Six digits, so that what is measured is what is written."""
    each = [float(f"{divisor:.6g}") for divisor in divisors]
    return listed(SEARCHED, "a ramp of six numbers, searched", each, float(f"{gain:.6g}"), rope)


def ranges(rope: Rope) -> dict[str, tuple[float, float]]:
    """Where each number is searched."""
    pairs, most = rope.width // 2, BEYOND * rope.ratio
    return {
        "first": (-1.0, float(pairs)),
        "span": (1.0, 2.0 * pairs),
        "power": (POWERS[0], POWERS[-1]),
        "factor": (1.0, most),
        "base": (1.0, most),
        "gain": (0.8, usual_gain(rope.ratio) + 0.2),
    }


def nearest(divisors: Sequence[float], gain: float, rope: Rope) -> Ramp:
    """The ramp closest to these divisors, by least squares of their logarithms: for each ramp of a grid, factor and
    base follow from two linear equations, and neither may divide by less than 1. Fast pairs that are left alone stay
    so, where a hundredth more is many radians: the ramp begins after them, without a larger base."""
    pairs = len(divisors)
    most = math.log(BEYOND * rope.ratio)
    wanted = np.clip(np.log(np.asarray(divisors, dtype=np.float64)), 0.0, most)
    index = np.arange(pairs, dtype=np.float64)
    slope = index / max(pairs - 1, 1)
    c, v = max(float(slope @ slope), 1e-12), float(slope @ wanted)
    grid = np.stack(np.meshgrid(np.arange(1.0, 2 * pairs + 1), POWERS, indexing="ij"), -1).reshape(-1, 2)
    span, power = grid[:, :1], grid[:, 1:]
    best, found = math.inf, Ramp(0.0, float(pairs), 1.0, 1.0, 1.0, gain)
    alone = next((number for number, one in enumerate(wanted) if one > 0), pairs)
    for first in range(alone - 1, pairs):
        ramp = np.clip((index - first) / span, 0.0, 1.0) ** power  # (grid, pairs)
        a, b, u = np.maximum((ramp * ramp).sum(1), 1e-12), ramp @ slope, ramp @ wanted
        apart = np.maximum(a * c - b * b, 1e-12)
        by_ramp_alone = (u / a, np.zeros_like(u))
        both = ((c * u - b * v) / apart, (a * v - b * u) / apart)
        by_base_alone = (np.zeros_like(u), np.full_like(u, v / c))
        for by_ramp, by_base in (by_ramp_alone,) if alone > 1 else (both, by_ramp_alone, by_base_alone):
            by_ramp, by_base = np.clip(by_ramp, 0.0, most), np.clip(by_base, 0.0, most)
            off = ((by_ramp[:, None] * ramp + by_base[:, None] * slope - wanted) ** 2).sum(1)
            place = int(off.argmin())
            if off[place] < best - 1e-9:
                best = float(off[place])
                numbers = (first, *grid[place], np.exp(by_ramp[place]), np.exp(by_base[place]))
                found = Ramp(*map(float, numbers), gain=gain)
    return within(found, rope)


def within(ramp: Ramp, rope: Rope) -> Ramp:
    """The same with every number inside its range."""
    limits = ranges(rope)
    return Ramp(**{name: min(max(value, limits[name][0]), limits[name][1]) for name, value in asdict(ramp).items()})
