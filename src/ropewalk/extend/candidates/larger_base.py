"""A larger base and nothing else, which every engine serves as `rope_theta`. How large, with s = N / L:

    ntk        b s^(D / (D - 2))                        the slowest frequency is divided by s     arXiv 2309.00071
    dynamic    b (s^2 - s + 1)^(D / (D - 2))            what dynamic NTK of factor s has reached at N tokens
    gradient   b^(ln(N / 2 pi) / ln(L / 2 pi))          the pair that turns once in L turns once in N

The first and the last differ where a pair stands between one turn and none. Dynamic itself changes with every length,
so cached keys do not fit; its base at N is fixed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ropewalk.extend.candidates.base import Candidate, Missing, Rope, scaled
from ropewalk.scaling import NTK
from ropewalk.scaling.exact import LARGEST_BASE

LARGEST_FACTOR = 4096
"""That `NTK` takes."""


def candidates(rope: Rope) -> Iterator[Candidate | Missing]:
    s = rope.ratio
    yield from _with("ntk", "a larger base, arXiv 2309.00071", s, rope)
    yield from _with("dynamic base", "the base that dynamic NTK has reached at this length", s * s - s + 1, rope)
    if rope.trained <= 2 * math.pi * math.e:
        yield Missing("gradient base", f"its exponent has no meaning for {rope.trained} trained tokens")
    else:
        exponent = math.log(max(rope.to, rope.trained) / (2 * math.pi)) / math.log(rope.trained / (2 * math.pi))
        factor = rope.base ** ((exponent - 1) * (rope.width - 2) / rope.width)
        yield from _with("gradient base", "Gradient's base, ln(N / 2 pi) over ln(L / 2 pi)", factor, rope)


def _with(name: str, about: str, factor: float, rope: Rope) -> Iterator[Candidate | Missing]:
    if rope.width < 4:
        yield Missing(name, "a base changes nothing for a single pair")
    elif factor > LARGEST_FACTOR:
        yield Missing(name, f"its factor is {factor:.4g}, and the largest is {LARGEST_FACTOR:,}")
    elif (base := float(NTK(factor=factor).scaled_base(rope.base, rope.width))) > LARGEST_BASE:
        yield Missing(name, f"its base is {base:.3g}, and the largest is {LARGEST_BASE:.3g}")
    else:
        yield scaled(name, about, NTK(factor=factor), rope)
