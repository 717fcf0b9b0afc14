"""Temperature: queries further on get sharper attention, since they choose among more keys.

    log-n      q_m * max(1, ln(m + 1) / ln T)            the entropy-invariant softmax of arXiv:2202.12172, section 5
    llama4     q_m * (1 + s ln(1 + floor((m + 1) / T)))  on the layers without rotation
    ministral  q_m * (1 + s ln(1 + floor(m / T)))

A whole layer's positions can be this and nothing else; `chain` joins it to a rotation. The two floor forms differ at
one position in T, which is where engines that mix them up drift apart. The papers number from 0; before that, as below
T, nothing changes.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from ropewalk.encodings.base import Claims, Encoding, Role
from ropewalk.phase import widest
from ropewalk.positions import Positions


class Temperature(Encoding):
    """Multiplies queries by a factor that grows with their position: Temperature(trained=8192).

    form: log-n, llama4 or ministral. `chain` joins it to a rotation.
    """

    class Config(Encoding.Config):
        kind: Literal["temperature"] = "temperature"
        form: Literal["log-n", "llama4", "ministral"] = "log-n"
        trained: int = Field(gt=1)
        """T, the length below which nothing changes."""
        strength: float = Field(default=0.1, gt=0)
        """s of the two floor forms; log-n has none."""

    config: Config
    claims = Claims(keeps_norm=False)

    def forward(self, at: Positions) -> Tensor:  # (B, 1, L, 1)
        # The index of padding may be negative: a NaN there would be in every gradient.
        m, T = at.index.clamp(min=0), self.config.trained
        if self.config.form == "log-n":
            factor = ((m + 1).to(widest(m.device)).log() / math.log(T)).clamp(min=1)
        else:
            steps = torch.div(m + 1 if self.config.form == "llama4" else m, T, rounding_mode="floor")
            factor = 1 + self.config.strength * torch.log1p(steps.to(widest(m.device)))
        return factor.to(torch.float32)[:, None, :, None]

    def rotate(self, x: Tensor, table: Tensor, role: Role) -> Tensor:
        return (x * table).to(x.dtype) if role == "query" else x

    def move(self, k: Tensor, delta: Tensor) -> Tensor:
        """Only queries are changed, so keys are the same at every position."""
        return k
