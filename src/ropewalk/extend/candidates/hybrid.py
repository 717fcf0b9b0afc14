"""A larger base and YaRN on top of it, each for the square root of what is wanted (llama.cpp#2268)."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ropewalk.extend.candidates.base import Candidate, Rope, listed, usual_gain
from ropewalk.scaling import NTK, YaRN
from ropewalk.scaling.exact import LARGEST_BASE


def candidates(rope: Rope) -> Iterator[Candidate]:
    half = math.sqrt(rope.ratio)
    if rope.width < 4:
        return
    base = float(NTK(factor=half).scaled_base(rope.base, rope.width))
    try:
        frequencies = YaRN(factor=half, trained=rope.trained).frequencies(min(base, LARGEST_BASE), rope.width)
    except ValueError:
        return  # no ramp for such a base
    divisors = [before / float(after) for before, after in zip(rope.plain, frequencies, strict=True)]
    yield listed("base and yarn", "half by a larger base, half by YaRN", divisors, usual_gain(half), rope)
