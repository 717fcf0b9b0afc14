"""The checkpoint's own scaling, kept, and another on top of it for what is still wanted: from the length it reads to N.

The other candidates count from the trained length and replace what the checkpoint has. One that was trained with its
scaling, as Llama 3.1 was, has learned the frequencies that they would replace.

own and linear   every frequency that it has, divided by N / n
own and yarn     those of 32 turns or more within n kept, those of 1 or fewer divided, in turns between; YaRN's gain
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ropewalk.extend.candidates.base import ON_SCORES, Candidate, Missing, Rope, listed, usual_gain

FAST, SLOW = 32.0, 1.0


def candidates(rope: Rope) -> Iterator[Candidate | Missing]:
    own = rope.scaling
    if own is None or rope.own:
        return
    if own.logit_gain != 1:
        yield Missing("own and linear", ON_SCORES)
        yield Missing("own and yarn", ON_SCORES)
        return
    s = rope.to / rope.reads
    now = [float(omega) for omega in own.for_length(rope.reads).frequencies(rope.base, rope.width)]
    divisors = [plain / omega for plain, omega in zip(rope.plain, now, strict=True)]
    linear = [divisor * s for divisor in divisors]
    about = f"its own {own.kind}, and every frequency divided by {s:.4g}"
    yield listed("own and linear", about, linear, own.rotary_gain, rope)
    turns = [rope.reads * omega / (2 * math.pi) for omega in now]
    kept = [min(max((each - SLOW) / (FAST - SLOW), 0.0), 1.0) for each in turns]
    ramp = [divisor / (share + (1 - share) / s) for divisor, share in zip(divisors, kept, strict=True)]
    about = f"its own {own.kind}, and YaRN's published ramp for {s:.4g} times more"
    yield listed("own and yarn", about, ramp, own.rotary_gain * usual_gain(s), rope)
