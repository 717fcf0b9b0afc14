"""Llama 3.1's: the published ramp of YaRN between 1 and 4 turns, without a gain."""

from __future__ import annotations

from collections.abc import Iterator

from ropewalk.checkpoints.inspect.lengths import as_before
from ropewalk.extend.candidates.base import Candidate, Rope, scaled
from ropewalk.scaling import Llama3


def candidates(rope: Rope) -> Iterator[Candidate]:
    scaling = as_before(rope.scaling, Llama3(factor=rope.ratio, trained=rope.trained))
    yield scaled("llama3", "Llama 3.1's ramp, no gain", scaling, rope)
