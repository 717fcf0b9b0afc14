"""What the absolute encodings share: a vector for each position, added to the token's vector or set beside it."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from ropewalk.encodings.base import Encoding


class Absolute(Encoding):
    """Computes a table (B, L, P) of position vectors in `forward`; `embed` joins it to the tokens."""

    class Config(Encoding.Config):
        combine: Literal["add", "concat"] = "add"
        """add: x + p, both of the model's width. concat: [x, p], the positions taking `share` of the width."""
        share: int | None = Field(default=None, gt=0)
        """Features the positions take of the model's width under concat; half of it unless given."""

    config: Config

    @property
    def position_width(self) -> int:
        """P: how wide a position's vector is."""
        if self.config.combine == "add":
            if self.config.share is not None:
                raise ValueError(f"share={self.config.share} belongs to combine=concat; under add it has no meaning")
            return self.width
        share = self.width // 2 if self.config.share is None else self.config.share
        if not 0 < share < self.width:
            raise ValueError(f"share={share} must leave the tokens some of the width {self.width}")
        return share

    @property
    def token_width(self) -> int:
        return self.width if self.config.combine == "add" else self.width - self.position_width

    def embed(self, x: Tensor, table: Tensor) -> Tensor:  # x (B, L, token_width), table (B or 1, L, P)
        if x.shape[-1] != self.token_width:
            raise ValueError(f"token vectors must be {self.token_width} wide before `embed`, got {x.shape[-1]}")
        table = table.to(x.dtype)
        if self.config.combine == "add":
            return x + table
        return torch.cat([x, table.expand(*x.shape[:-1], -1)], dim=-1)
