"""YaRN's gain and nothing else: sharper attention against more keys, every frequency as it is."""

from __future__ import annotations

from collections.abc import Iterator

from ropewalk.extend.candidates.base import ON_SCORES, Candidate, Missing, Rope, listed, usual_gain


def candidates(rope: Rope) -> Iterator[Candidate | Missing]:
    if rope.scaling is not None and rope.scaling.logit_gain != 1:
        yield Missing("gain only", ON_SCORES)
        return
    own = rope.divisors(None)
    yield listed("gain only", "YaRN's gain, frequencies as they are", own, usual_gain(rope.ratio), rope)
