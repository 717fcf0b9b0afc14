"""FIRE: a small network reads the distance as a share of the query's own position (Li et al., 2023).

    bias(h, i, j) = f_h( psi(i - j) / psi(max(i, T)) ),   psi(x) = ln(1 + c x)        arXiv:2310.04418, section 3.2

f is one hidden layer of ReLU, c and the threshold T are learned; T as a multiple of where it starts, since steps of
0.001 would never leave 512. Distances lie in [0, 1] at any length, which is the idea; the bias depends on i itself, so
FIRE is not shift invariant, and it is defined for keys up to the query only. In whatever dtype the parameters are, and
under autocast, it is computed in float32: bfloat16 takes the 64 distances from 4,032 to 4,095 for 5.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from ropewalk.encodings.base import Claims, Encoding, distance
from ropewalk.positions import Positions, known_range


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
        self.multiplier = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.uniform_(self.inner, -1, 1)
        bound = self.config.hidden**-0.5
        nn.init.uniform_(self.outer, -bound, bound)
        nn.init.zeros_(self.offset)
        nn.init.constant_(self.slope, self.config.slope)
        nn.init.ones_(self.multiplier)

    @property
    def threshold(self) -> Tensor:
        """T; |c| and |T| keep psi defined wherever training takes them."""
        return (self.multiplier * self.config.threshold).abs()

    def forward(self, at: Positions) -> tuple[Tensor, ...]:
        table = self.inner, self.outer, self.offset, self.slope.abs(), self.threshold
        return tuple(part.to(torch.promote_types(part.dtype, torch.float32)) for part in table)

    def bias(self, table: tuple[Tensor, ...], head: Tensor, q_index: Tensor, k_index: Tensor) -> Tensor:
        if head.ndim == 3:
            return self._all_heads(table, head.flatten(), q_index, k_index)
        _, outer, offset, *_ = table
        return (self._hidden(table, q_index, k_index) * outer[head]).sum(-1) + offset[head]

    def _all_heads(self, table: tuple[Tensor, ...], heads: Tensor, q_index: Tensor, k_index: Tensor) -> Tensor:
        """(..., 1, L, 1) and (..., 1, 1, S) -> (..., H, L, S), as one matrix product."""
        _, outer, offset, *_ = table
        at, few = (q_index, k_index), _few(q_index, k_index)
        if few is not None:
            places = torch.arange(few, device=q_index.device)
            at = places[:, None], places
        with torch.autocast(q_index.device.type, enabled=False):
            score = self._hidden(table, *at) @ outer[heads].T + offset[heads]
        if few is not None:
            score = F.embedding(q_index * few + k_index, score.flatten(0, 1))
        wide = max(q_index.ndim, k_index.ndim) > 2
        return score.movedim(-1, -3).squeeze(-4) if wide else score.movedim(-1, -3)

    def _hidden(self, table: tuple[Tensor, ...], q_index: Tensor, k_index: Tensor) -> Tensor:
        """(..., U)"""
        inner, _, _, slope, threshold = table
        reach = torch.maximum(q_index.to(slope.dtype), threshold)
        # Keys after the query are outside the definition; the rule hides them, |i - j| only keeps them finite.
        share = torch.log1p(slope * distance(q_index, k_index).to(slope.dtype)) / torch.log1p(slope * reach)
        return torch.relu(share[..., None] * inner[0] + inner[1])

    def bias_bytes(self, heads: int) -> int:
        """The hidden layer twice, before and after the ReLU, or once and what all heads read from it."""
        hidden = 4 * self.config.hidden
        return max(2 * hidden, hidden + 8 * heads) + 16


def _few(q_index: Tensor, k_index: Tensor) -> int | None:
    """How many positions there are, where pairs come again and again, as in packed documents: then the network reads
    each pair of positions once. None where they do not, or are not known."""
    known = known_range(q_index), known_range(k_index)
    if known[0] is None or known[1] is None or min(known[0][0], known[1][0]) < 0:
        return None
    count = max(known[0][1], known[1][1]) + 1
    pairs = math.prod(torch.broadcast_shapes(q_index.shape, k_index.shape))
    return count if 2 * count**2 <= pairs else None
