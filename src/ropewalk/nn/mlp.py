"""The position-wise feed-forward network.

FFN(x) = act(x W_1 + b_1) W_2 + b_2                        arXiv:1706.03762, 3.3
gated:   (g(x W) * x V) W_2                                arXiv:2002.05202
"""

from __future__ import annotations

from torch import Tensor, nn

from ropewalk.nn.activation import FUNCTIONS, GATES, PLAIN, Activation
from ropewalk.nn.initial import fill_linear
from ropewalk.nn.linear import Linear


class MLP(nn.Module):
    """The feed-forward network of a block, gated or not by its activation."""

    def __init__(
        self,
        width: int,
        hidden: int,
        activation: Activation = "relu",
        *,
        bias: bool = True,
        fused: bool = True,
        std: float | None = 0.02,
        gain: float = 1.0,
    ) -> None:
        super().__init__()
        self.gated, self.activation, self._start = activation in GATES, activation, (std, gain)
        self.act = FUNCTIONS[activation]
        # A gate and its values are one matrix product when fused; apart, they are two weights as some files have them.
        self.fused = fused and self.gated
        self.up = Linear(width, 2 * hidden if self.fused else hidden, bias=bias)
        self.gate = Linear(width, hidden, bias=bias) if self.gated and not fused else None
        self.down = Linear(hidden, width, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        std, gain = self._start
        for linear in (self.up, self.gate, self.down):
            if linear is not None:
                parts = 2 if linear is self.up and self.fused else 1
                fill_linear(linear, std, [(len(linear.weight) // parts, gain)] * parts)

    def forward(self, x: Tensor) -> Tensor:
        if self.fused:
            gate, values = self.up(x).chunk(2, dim=-1)  # rows of the weight: [gate, values]
            return self.down(self.act(gate) * values)
        if self.gate is not None:
            return self.down(self.act(self.gate(x)) * self.up(x))
        return self.down(self.act(self.up(x)))

    def extra_repr(self) -> str:
        return self.activation


def matched_hidden(width: int, activation: Activation, multiple: int = 64) -> int:
    """4 widths, or 8/3 of it under a gate, whose third matrix then costs nothing extra (arXiv:2002.05202)."""
    hidden = 4 * width if activation in PLAIN else -(-8 * width // 3)
    return -(-hidden // multiple) * multiple
