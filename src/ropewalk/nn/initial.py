"""What weights are before training."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def fill(weight: Tensor, std: float | None, gain: float = 1.0) -> None:
    """A weight (out, in): normal of this spread, or Glorot's by its sizes where none is given; times the gain."""
    with torch.no_grad():
        if std is None:
            nn.init.xavier_normal_(weight, gain=gain)
        else:
            nn.init.normal_(weight, std=std * gain)


def fill_linear(linear: nn.Linear, std: float | None, parts: Sequence[tuple[int, float]]) -> None:
    """A linear map that is several in one matrix: each part by its output features and its gain; no bias yet."""
    sizes = [size for size, _ in parts]
    for part, (_, gain) in zip(linear.weight.split(sizes), parts, strict=True):
        fill(part, std, gain)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
