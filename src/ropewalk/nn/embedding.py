"""Learned vectors by number."""

from __future__ import annotations

from torch import Tensor, nn

from ropewalk.encodings.base import look_up


class Embedding(nn.Embedding):
    """torch's, whose gradients are summed in float32 at least."""

    def forward(self, input: Tensor) -> Tensor:
        return look_up(input, self.weight)
