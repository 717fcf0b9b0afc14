"""FIRE: a small network reads the distance as a share of the query's own position (Li et al., 2023).

    bias(h, i, j) = f_h( psi(i - j) / psi(max(i, T)) ),   psi(x) = ln(1 + c x)        arXiv:2310.04418, section 3.2

f is one hidden layer of ReLU, c and the threshold T are learned. Distances lie in [0, 1] at any length, which is the
idea; the bias depends on i itself, so FIRE is not shift invariant, and it is defined for keys up to the query only. In
whatever dtype the parameters are, and under autocast, it is computed in float32: bfloat16 takes the 64 distances from
4,032 to 4,095 for 5.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ropewalk.encodings.base import Claims, Encoding, distance
from ropewalk.positions import Positions


class Fire(Encoding):
    """Adds to each score what a small network makes of the distance as a share of the query's position: Fire(heads=8).

    It depends on how far into the text the query is, and is for causal attention.
    """

    class Config(Encoding.Config):
        kind: Literal["fire"] = "fire"
        hidden: int = Field(default=32, gt=0)
        threshold: float = Field(default=512.0, gt=0)
        """T at the start of training."""
        slope: float = Field(default=0.1, gt=0)
        """c at the start of training."""

    config: Config
    claims = Claims(bidirectional=False, pointwise=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        U = self.config.hidden
        self.inner = nn.Parameter(torch.empty(2, U))  # weight and offset of the hidden layer
        self.outer = nn.Parameter(torch.empty(self.heads, U))
        self.offset = nn.Parameter(torch.empty(self.heads))
        self.slope = nn.Parameter(torch.empty(()))
        self.threshold = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.uniform_(self.inner, -1, 1)
        bound = self.config.hidden**-0.5
        nn.init.uniform_(self.outer, -bound, bound)
        nn.init.zeros_(self.offset)
        nn.init.constant_(self.slope, self.config.slope)
        nn.init.constant_(self.threshold, self.config.threshold)

    def forward(self, at: Positions) -> tuple[Tensor, ...]:
        # |c| and |T| keep psi defined wherever training takes them.
        table = self.inner, self.outer, self.offset, self.slope.abs(), self.threshold.abs()
        return tuple(part.to(torch.promote_types(part.dtype, torch.float32)) for part in table)

    def bias(self, table: tuple[Tensor, ...], head: Tensor, q_index: Tensor, k_index: Tensor) -> Tensor:
        inner, outer, offset, slope, threshold = table
        reach = torch.maximum(q_index.to(slope.dtype), threshold)
        # Keys after the query are outside the definition; the rule hides them, |i - j| only keeps them finite.
        share = torch.log1p(slope * distance(q_index, k_index).to(slope.dtype)) / torch.log1p(slope * reach)
        hidden = torch.relu(share[..., None] * inner[0] + inner[1])
        if head.ndim == 3:
            # All heads at once as one matrix product: (..., 1, L, S, U) -> (..., H, L, S).
            chosen = head.flatten()
            with torch.autocast(hidden.device.type, enabled=False):
                score = (hidden @ outer[chosen].T + offset[chosen]).movedim(-1, -3)
            return score.squeeze(-4) if share.ndim > 2 else score
        return (hidden * outer[head]).sum(-1) + offset[head]

    def bias_bytes(self, heads: int) -> int:
        """The hidden layer twice, before and after the ReLU, or once and what all heads read from it."""
        hidden = 4 * self.config.hidden
        return max(2 * hidden, hidden + 8 * heads) + 16
