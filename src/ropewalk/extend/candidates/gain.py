"""YaRN's gain and nothing else: sharper attention against more keys, every frequency as it is."""

from __future__ import annotations

from collections.abc import Iterator

from ropewalk.extend.candidates.base import Candidate, Rope, listed, usual_gain


def candidates(rope: Rope) -> Iterator[Candidate]:
    own = rope.divisors(None)
    yield listed("gain only", "YaRN's gain, frequencies as they are", own, usual_gain(rope.ratio), rope)
