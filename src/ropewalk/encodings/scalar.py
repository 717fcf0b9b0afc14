"""Scalar: the position as one number, the two first ideas that do not work (from the second article).

    unit     p = t / (limit - 1), a number in [0, 1]: the distance of neighbours changes with the length
    integer  p = t, the number itself: it grows without bound and drowns the token vector

Kept so that comparisons can show *why* they fail. The number is added to every feature, or set beside them (concat).
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from ropewalk.encodings.absolute import Absolute
from ropewalk.encodings.base import Claims
from ropewalk.phase import widest
from ropewalk.positions import FARTHEST, Positions, known_range


class Scalar(Absolute):
    """Adds the position itself, one number, to the token vectors: Scalar(width=512). Kept to show why that fails."""

    class Config(Absolute.Config):
        kind: Literal["scalar"] = "scalar"
        form: Literal["unit", "integer"] = "unit"

    config: Config

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.claims = Claims(needs_limit=self.config.form == "unit")

    def forward(self, at: Positions) -> Tensor:  # (B, L, P)
        value = at.index.to(widest(at.index.device))
        if self.config.form == "unit":
            if at.limit == FARTHEST:
                raise ValueError(
                    "scalar of form unit divides by the length: pass positions with a limit, at(..., limit=N)"
                )
            if (known := known_range(at.index)) is not None and known[0] < 0:
                raise ValueError(f"position {known[0]:,} is before the first, and scalar of form unit lies in [0, 1]")
            value = value / max(at.limit - 1, 1)
        return value.to(torch.float32)[..., None].expand(*value.shape, self.position_width)
