"""KERPLE: a learned kernel of the distance, added to each score (Chi et al., 2022).

    log    bias(h, i, j) = -a_h ln(1 + b_h |i - j|)
    power  bias(h, i, j) = -a_h |i - j|^b_h,   0 < b_h <= 2       arXiv:2205.09921, section 4.3

a and b are kept at or above 0.01, as the authors do, so that the kernel stays conditionally positive definite.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from ropewalk.encodings.base import Claims, Encoding, distance
from ropewalk.positions import Positions

SMALLEST = 0.01


class Kerple(Encoding):
    """Subtracts from each score a function of the distance that each head learns: Kerple(heads=8)."""

    class Config(Encoding.Config):
        kind: Literal["kerple"] = "kerple"
        form: Literal["log", "power"] = "log"

    config: Config
    claims = Claims(shift_invariant=True)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.scale = nn.Parameter(torch.empty(self.heads))
        self.rate = nn.Parameter(torch.empty(self.heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.uniform_(self.scale, 0, 2)
        nn.init.uniform_(self.rate, 0, 1 if self.config.form == "log" else 2)

    def forward(self, at: Positions) -> tuple[Tensor, Tensor]:  # (H,), (H,)
        highest = None if self.config.form == "log" else 2.0
        return self.scale.clamp(min=SMALLEST), self.rate.clamp(min=SMALLEST, max=highest)

    def bias(self, table: tuple[Tensor, Tensor], head: Tensor, q_index: Tensor, k_index: Tensor) -> Tensor:
        scale, rate = (values[head] for values in table)
        apart = distance(q_index, k_index)
        if self.config.form == "log":
            return -scale * torch.log1p(rate * apart)
        # 0^b is 0, but its gradient in b is ln 0: the token itself is taken out before the power.
        safe = apart.clamp(min=1)
        return -scale * torch.where(apart == 0, 0.0, safe.pow(rate))

    def bias_bytes(self, heads: int) -> int:
        return max(16, 8 * heads + 4)
