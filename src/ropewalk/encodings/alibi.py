"""ALiBi: a penalty on each score that grows with distance (Press et al., 2022).

    bias(h, i, j) = -m_h |i - j|,   m_h = 2^(-8h/H),   h = 1 .. H        arXiv:2108.12409, section 3

For H not a power of two the authors' code takes the slopes of the power below, then every other one of the power above.
The bias is added after 1/sqrt(K). It is computed from integer distances in float32: in bfloat16 only one in fifteen
neighbouring distances near 4,096 stays distinct. Some codebases add -m_h (S - 1 - j) instead, equal under a causal
softmax and far worse in bfloat16.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from ropewalk.encodings.base import Claims, Encoding, distance
from ropewalk.positions import Positions


class ALiBi(Encoding):
    """Subtracts from each score a penalty that grows with distance, at a slope of each head's own: ALiBi(heads=8)."""

    class Config(Encoding.Config):
        kind: Literal["alibi"] = "alibi"

    claims = Claims(shift_invariant=True)

    def forward(self, at: Positions) -> Tensor:  # (H,)
        return torch.tensor(slopes(self.heads), dtype=torch.float32, device=at.index.device)

    def bias(self, table: Tensor, head: Tensor, q_index: Tensor, k_index: Tensor) -> Tensor:
        return -table[head] * distance(q_index, k_index)

    def bias_bytes(self, heads: int) -> int:
        return max(16, 4 * heads + 4)


def slopes(heads: int) -> list[float]:
    """The slope of each head of the whole model."""
    below = 2 ** math.floor(math.log2(heads))
    even = [2 ** (-8 * h / below) for h in range(1, below + 1)]
    between = [2 ** (-4 * h / below) for h in range(1, 2 * (heads - below), 2)]
    return even + between
