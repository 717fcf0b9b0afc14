"""No position encoding at all: x' = x, q' = q, k' = k, bias = 0 (NoPE, arXiv:2305.19466).

A causal decoder still learns order from the mask; an encoder cannot.
"""

from __future__ import annotations

from typing import Literal

from ropewalk.encodings.base import Claims, Encoding
from ropewalk.positions import Positions


class NoPE(Encoding):
    """No position encoding: tokens, queries, keys and scores are left as they are."""

    class Config(Encoding.Config):
        kind: Literal["none"] = "none"

    claims = Claims(shift_invariant=True)

    def check(self, at: Positions) -> None:
        """Nothing to compute, so positions on any number of axes will do."""
