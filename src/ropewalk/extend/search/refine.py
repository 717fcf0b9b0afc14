"""The slow pairs, each by a step of its own, from a ramp on: those that turn a few times in the whole text, so that
the loss is smooth.

A random direction is tried, and its opposite; a step that is better is taken and the next is longer, else shorter. In a
fast pair the loss has ripples as narrow as one turn in the text, and such steps would find nothing but noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ropewalk.extend.candidates import Rope
from ropewalk.extend.search.objective import Objective
from ropewalk.extend.search.ramp import as_candidate

TURNS = 8.0
"""In the whole text, of the fastest pair that is changed."""
STEP = 0.1
"""Of logarithms, in a pair that never finishes a turn; a pair of n turns is moved by a share of 1 / n."""


def slow(divisors: Sequence[float], rope: Rope) -> list[int]:
    """Pairs that turn at most `TURNS` times in the whole text."""
    turns = rope.turns(rope.to)
    return [i for i, divisor in enumerate(divisors) if turns[i] / divisor <= TURNS]


def refine(
    objective: Objective, rope: Rope, divisors: Sequence[float], gain: float, value: float, half: float, passes: int
) -> tuple[list[float], float]:
    """The divisors at the end and their value. value, half: of the divisors given, in full and on half of the
    documents."""
    chosen, best = list(divisors), value
    moved = slow(divisors, rope)
    if not moved:
        return chosen, best
    turns = rope.turns(rope.to)
    scale = np.array([1 / max(1.0, turns[i] / divisors[i]) for i in moved])
    draws, step, end = np.random.default_rng(0), STEP, objective.passes + passes
    tries = 0
    while True:
        direction = draws.standard_normal(len(moved)) * scale
        better = False
        for sign in (1.0, -1.0):
            if objective.passes + objective.cost > end:
                return chosen, best
            tries += 1
            tried = list(chosen)
            for i, by in zip(moved, direction, strict=True):
                tried[i] = max(1.0, chosen[i] * float(np.exp(sign * step * by)))
            scaling = as_candidate(tried, gain, rope).scaling
            stage = f"refinement, step {tries}"
            begun = objective.begin(stage, scaling)
            if begun > half:
                continue
            found = objective.finish(stage, scaling)
            if found < best:
                chosen, best, half, better = tried, found, begun, True
                break
        step *= 1.5 if better else 0.7
