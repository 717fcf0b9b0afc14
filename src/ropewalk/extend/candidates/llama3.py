"""Llama 3.1's: the published ramp of YaRN between 1 and 4 turns, without a gain."""

from __future__ import annotations

from collections.abc import Iterator

from ropewalk.extend.candidates.base import Candidate, Rope, scaled
from ropewalk.scaling import Llama3


def candidates(rope: Rope) -> Iterator[Candidate]:
    yield scaled("llama3", "Llama 3.1's ramp, no gain", Llama3(factor=rope.ratio, trained=rope.trained), rope)
