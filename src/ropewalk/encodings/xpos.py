"""xPos: RoPE whose scores also fade with distance, each pair at its own rate (Sun et al., 2022).

    q_m -> R(m) q * z_i^((m - c) / 512),   k_n -> R(n) k * z_i^(-(n - c) / 512),   z_i = (2i + 0.4 R) / 1.4 R
                                                                                 arXiv:2212.10554, section 3.2
The score gets z^((m - n)/512): it fades towards the past and grows towards the future, so it is causal only. The centre
c cancels; it is half the limit, the same for queries and keys of a generation, because powers of one sign only would
leave float32 within 36,000 positions. One library centres cached keys by another number and decodes 15 % wrong.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from ropewalk.encodings._rotation import rotate
from ropewalk.encodings.base import Claims, Encoding, Role
from ropewalk.phase import cos_sin, phase
from ropewalk.positions import FARTHEST, Positions
from ropewalk.scaling.exact import ladder, turns

LARGEST_POWER = 60.0
"""z >= 2/7, and (2/7)^-60 = 4e32 still leaves room for the vectors themselves in float32."""


class XPos(Encoding):
    class Config(Encoding.Config):
        kind: Literal["xpos"] = "xpos"
        base: float = Field(default=10_000.0, gt=1, le=1e12)
        layout: Literal["half", "pairs"] = "half"
        fade: float = Field(default=512.0, gt=0)
        """Positions over which a pair fades by its own z."""

    config: Config
    claims = Claims(shift_invariant=True, keeps_norm=False, bidirectional=False, needs_limit=True)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.head_width % 2:
            raise ValueError(f"xpos turns pairs of features: head_width={self.head_width} must be even")
        self._turns = turns(ladder(self.config.base, self.head_width))

    def forward(self, at: Positions) -> tuple[Tensor, Tensor, Tensor]:  # cos, sin, log2 of the fade (B, 1, L, K/2)
        self.check(at)
        power = at.limit / 2 / self.config.fade
        if power > LARGEST_POWER:
            room = int(2 * LARGEST_POWER * self.config.fade)
            told = "no limit was declared; at(..., limit=N)" if at.limit == FARTHEST else f"the limit is {at.limit:,}"
            raise ValueError(
                f"xpos with fade={self.config.fade:g} stays within float32 up to limit {room:,}, and {told}; "
                "shorten it, raise fade, or use rope"
            )
        cos, sin = cos_sin(phase(at.index, self._turns)[:, None])
        centred = (at.index - at.limit // 2)[:, None, :, None].to(torch.float64) / self.config.fade
        return cos, sin, (centred * self._log2_rate(at.index.device)).to(torch.float32)

    def _log2_rate(self, device: torch.device) -> Tensor:  # (K/2,)
        K = self.head_width
        rate = (2 * torch.arange(K // 2, dtype=torch.float64, device=device) + 0.4 * K) / (1.4 * K)
        return rate.log2()

    def rotate(self, x: Tensor, table: tuple[Tensor, Tensor, Tensor], role: Role) -> Tensor:
        cos, sin, log2_fade = table
        fade = torch.exp2(log2_fade if role == "query" else -log2_fade)
        return rotate(x, cos * fade, sin * fade, self.config.layout)

    def move(self, k: Tensor, delta: Tensor) -> Tensor:
        cos, sin = cos_sin(phase(delta, self._turns)[:, None])
        power = delta[:, None, :, None].to(torch.float64) / self.config.fade * self._log2_rate(delta.device)
        fade = torch.exp2(-power).to(torch.float32)
        return rotate(k, cos * fade, sin * fade, self.config.layout)
