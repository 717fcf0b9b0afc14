"""The checkpoint as it is, past its trained length."""

from __future__ import annotations

from collections.abc import Iterator

from ropewalk.extend.candidates.base import Candidate, Rope


def candidates(rope: Rope) -> Iterator[Candidate]:
    own = max(rope.divisors(None))
    gain = 1.0 if rope.scaling is None else rope.scaling.rotary_gain
    yield Candidate("leave", "as it is, nothing changed", factor=own, gain=gain)
