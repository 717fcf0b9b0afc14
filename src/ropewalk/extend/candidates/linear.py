"""Position interpolation: every frequency divided by the same number (arXiv 2306.15595)."""

from __future__ import annotations

from collections.abc import Iterator

from ropewalk.extend.candidates.base import Candidate, Rope, scaled
from ropewalk.scaling import Linear


def candidates(rope: Rope) -> Iterator[Candidate]:
    yield scaled("linear", "every frequency divided, arXiv 2306.15595", Linear(factor=rope.ratio), rope)
