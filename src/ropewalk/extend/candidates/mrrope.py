"""mrRoPE's ramp: between YaRN's ends the logarithm of the divisor grows with the square of the index.

f_i = s^((i - a)(i - a + 1) / ((z - a)(z - a + 1))),   a and z the first and last pair of YaRN's ramp; YaRN's gain
"""

from __future__ import annotations

from collections.abc import Iterator

from ropewalk.extend.candidates.base import Candidate, Rope, listed, usual_gain


def candidates(rope: Rope) -> Iterator[Candidate]:
    first, last = rope.ends()
    span = max(last - first, 1)
    steps = [min(max(i - first, 0), span) for i in range(rope.width // 2)]
    divisors = [rope.ratio ** (step * (step + 1) / (span * (span + 1))) for step in steps]
    yield listed("mrrope", "YaRN's ends, quadratic between them in logarithms", divisors, usual_gain(rope.ratio), rope)
