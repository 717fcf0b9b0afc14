"""A larger base and YaRN on top of it, each for the square root of what is wanted (llama.cpp#2268)."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ropewalk.extend.candidates.base import Candidate, Missing, Rope, listed, no_ramp, usual_gain
from ropewalk.scaling import NTK, YaRN
from ropewalk.scaling.exact import LARGEST_BASE

NAME = "base and yarn"


def candidates(rope: Rope) -> Iterator[Candidate | Missing]:
    half = math.sqrt(rope.ratio)
    if rope.width < 4:
        yield Missing(NAME, "a base changes nothing for a single pair")
        return
    base = float(NTK(factor=half).scaled_base(rope.base, rope.width))
    if base > LARGEST_BASE:
        yield Missing(NAME, f"its base is {base:.3g}, and the largest is {LARGEST_BASE:.3g}")
        return
    try:
        frequencies = YaRN(factor=half, trained=rope.trained).frequencies(base, rope.width)
    except ValueError:
        yield Missing(NAME, no_ramp(rope.trained, base))
        return
    divisors = [before / float(after) for before, after in zip(rope.plain, frequencies, strict=True)]
    yield listed(NAME, "half by a larger base, half by YaRN", divisors, usual_gain(half), rope)
