"""Learned absolute: one trained vector for each position (BERT, GPT-2).

    x'_t = x_t + P[t + first_row]        arXiv:1810.04805, section 3

It knows no position past its last row: such positions raise, they do not wrap and do not read foreign memory.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ropewalk.encodings.absolute import Absolute
from ropewalk.encodings.base import Claims, look_up
from ropewalk.positions import Positions, known_range


class Learned(Absolute):
    """Adds a trained vector for each position to the token vectors (BERT, GPT-2): Learned(longest=512, width=768).

    Positions from `longest` on are an error.
    """

    class Config(Absolute.Config):
        kind: Literal["learned"] = "learned"
        longest: int = Field(gt=0, le=2**40)
        """Positions in the table."""
        first_row: int = Field(default=0, ge=0, le=2**20)
        """Row of position 0: RoBERTa, OPT and MPNet keep two rows for other uses."""
        std: float = Field(default=0.02, gt=0)
        """Spread of the initial values."""

    config: Config

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.claims = Claims(longest=self.config.longest)
        self.weight = nn.Parameter(torch.empty(self.config.longest + self.config.first_row, self.position_width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.config.std)

    def forward(self, at: Positions) -> Tensor:  # (B, L, P)
        if (known := known_range(at.index)) is not None and known[0] < 0:
            raise ValueError(f"position {known[0]:,} is before the first of the learned table, 0; number from 0")
        # Out of range rows, the negative ones included, raise in `embedding`; they never wrap. The reserved rows before
        # the first are no position's either.
        first = self.config.first_row
        row = at.index + first if first == 0 else torch.where(at.index < 0, -1, at.index + first)
        return look_up(row, self.weight)
