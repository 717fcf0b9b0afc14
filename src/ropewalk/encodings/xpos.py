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

from ropewalk.encodings.base import Claims, Encoding, Role
from ropewalk.phase import cos_sin, phase, widest
from ropewalk.positions import FARTHEST, Positions
from ropewalk.rotation import rotate
from ropewalk.scaling.exact import ladder, turns

LARGEST_POWER = 60.0
"""z >= 2/7, and (2/7)^-60 = 4e32 still leaves room for the vectors themselves in float32 and bfloat16."""
LARGEST_POWER_HALF = 5.0
"""(2/7)^-5 = 525 leaves vectors of up to 124 in float16, whose largest number is 65,504."""


class XPos(Encoding):
    """RoPE whose scores also fade with distance, each pair of features at its own rate; for causal attention.

    XPos(head_width=64). fade: positions in which a pair fades by its rate. Positions must declare a limit.
    """

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

    def forward(self, at: Positions) -> tuple[Tensor, Tensor, Tensor, int]:
        """cos, sin and log2 of the fade, (B, 1, L, K/2) each, and the limit."""
        self._check_range(at.limit, LARGEST_POWER, "float32")
        cos, sin = cos_sin(phase(at.index, self._turns)[:, None])
        centred = (at.index - at.limit // 2)[:, None, :, None].to(widest(at.index.device)) / self.config.fade
        return cos, sin, (centred * self._log2_rate(at.index.device)).to(torch.float32), at.limit

    def _check_range(self, limit: int, power: float, dtype: str) -> None:
        if limit / 2 / self.config.fade > power:
            told = "no limit was declared; at(..., limit=N)" if limit == FARTHEST else f"the limit is {limit:,}"
            wider = "" if dtype == "float32" else "use bfloat16 or float32, "
            raise ValueError(
                f"xpos with fade={self.config.fade:g} stays within {dtype} up to limit "
                f"{int(2 * power * self.config.fade):,}, and {told}; {wider}shorten it, raise fade, or use rope"
            )

    def _log2_rate(self, device: torch.device) -> Tensor:  # (K/2,)
        K = self.head_width
        rate = (2 * torch.arange(K // 2, dtype=widest(device), device=device) + 0.4 * K) / (1.4 * K)
        return rate.log2()

    def rotate(self, x: Tensor, table: tuple[Tensor, Tensor, Tensor, int], role: Role) -> Tensor:
        cos, sin, log2_fade, limit = table
        if x.dtype == torch.float16:
            self._check_range(limit, LARGEST_POWER_HALF, "float16")
        fade = torch.exp2(log2_fade if role == "query" else -log2_fade)
        return rotate(x, cos * fade, sin * fade, self.config.layout)

    def move(self, k: Tensor, delta: Tensor) -> Tensor:
        cos, sin = cos_sin(phase(delta, self._turns)[:, None])
        power = delta[:, None, :, None].to(widest(delta.device)) / self.config.fade * self._log2_rate(delta.device)
        fade = torch.exp2(-power).to(torch.float32)
        return rotate(k, cos * fade, sin * fade, self.config.layout)
