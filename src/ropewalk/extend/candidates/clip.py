"""Pairs that never finish a turn in training are stopped, so that they reach no angle they have not shown.

hard    their frequency is 0: p-RoPE (arXiv 2410.06205), without training
soft    a cosine from 1 at the fastest of them to 0 at the slowest: CoPE (arXiv 2602.05258), without training
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ropewalk.extend.candidates.base import STILL, Candidate, Missing, Rope, listed


def candidates(rope: Rope) -> Iterator[Candidate | Missing]:
    turns = rope.turns()
    slow = sum(one < 1 for one in turns)
    if slow < 2:
        for name in ("soft clip", "hard clip"):
            yield Missing(name, "fewer than 2 pairs never complete a turn within the trained length")
        return
    kept = [1.0] * (len(turns) - slow)
    falling = [0.5 * (1 + math.cos(math.pi * i / (slow - 1))) for i in range(slow)]
    soft = [*kept, *(min(1 / max(one, 1 / STILL), STILL) for one in falling)]
    yield listed("soft clip", f"the {slow} slowest pairs fade out, arXiv 2602.05258", soft, 1.0, rope)
    yield listed(
        "hard clip", f"the {slow} slowest pairs stopped, arXiv 2410.06205", [*kept, *[STILL] * slow], 1.0, rope
    )
