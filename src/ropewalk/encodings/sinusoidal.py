"""Sinusoidal: each position is a row of sines and cosines of geometric wavelengths (Vaswani et al., 2017).

    P(t, 2i) = sin(t w_i),  P(t, 2i+1) = cos(t w_i),  w_i = base^(-2i/D),  i = 0 .. D/2 - 1     arXiv:1706.03762, 3.5

The layout `pairs` is the paper's; `half` puts all sines before all cosines, as tensor2tensor and Marian do. Angles are
exact at any position; peers' float32 product is not. An odd width ends in a sine without its cosine.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from ropewalk.encodings.absolute import Absolute
from ropewalk.phase import cos_sin, phase
from ropewalk.positions import Positions
from ropewalk.scaling.exact import powers, turns


class Sinusoidal(Absolute):
    """Adds sines and cosines of each position to the token vectors, as the Transformer of 2017: Sinusoidal(width=512).

    combine="concat" sets them beside the token's features, in `share` of the width.
    """

    class Config(Absolute.Config):
        kind: Literal["sinusoidal"] = "sinusoidal"
        base: float = Field(default=10_000.0, gt=1, le=1e12)
        layout: Literal["pairs", "half"] = "pairs"

    config: Config

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # The exponent's denominator is the width itself: an odd width only loses its last cosine.
        self._turns = turns(powers(Decimal(self.config.base), self.position_width))

    def forward(self, at: Positions) -> Tensor:  # (B, L, P)
        P = self.position_width
        if P % 2 and self.config.layout == "half":
            raise ValueError(f"layout half needs an even width, got {P}; use layout=pairs")
        cos, sin = cos_sin(phase(at.index, self._turns))
        if self.config.layout == "half":
            return torch.cat([sin, cos], dim=-1)
        return torch.stack([sin, cos], dim=-1).flatten(-2)[..., :P]
