"""Norms, and what DeepNorm adds to one.

LayerNorm   (x - mean) / sqrt(var + eps) * w + b        per token, over the features        arXiv:1607.06450
RMSNorm     x / sqrt(mean(x^2) + eps) * w                                                  arXiv:1910.07467
DeepNorm    LayerNorm(alpha x + f(x)), f's FFN, value and output weights started beta times smaller
                                                                                           arXiv:2203.00555
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NormKind = Literal["layer", "rms"]


class LayerNorm(nn.LayerNorm):
    """torch's, in float32 at least: where x is bfloat16, its backward pass on a CPU sums the gradients of weight and
    bias over all tokens in that, and loses most of them."""

    def forward(self, input: Tensor) -> Tensor:
        wide = torch.promote_types(input.dtype, torch.float32)
        weight, bias = (None if part is None else part.to(wide) for part in (self.weight, self.bias))
        return F.layer_norm(input.to(wide), self.normalized_shape, weight, bias, self.eps).to(input.dtype)


class ShiftedRMSNorm(nn.RMSNorm):
    """RMSNorm whose weight is stored as its distance from 1 (Gemma): weight decay then pulls it to 1, not to 0."""

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        # In float32 at least: 1 + w in bfloat16 would round away all but the largest weights.
        wide = torch.promote_types(x.dtype, torch.float32)
        return F.rms_norm(x.to(wide), self.normalized_shape, 1 + self.weight.to(wide), self.eps).to(x.dtype)


class AcrossHeads(nn.Module):
    """A norm over all heads of a token together (OLMo 2), for x (B, H, L, K)."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        heads = x.shape[1]
        return self.norm(x.transpose(1, 2).flatten(2)).unflatten(-1, (heads, -1)).transpose(1, 2)


def norm(kind: NormKind, width: int, *, eps: float = 1e-5, bias: bool = True, shifted: bool = False) -> nn.Module:
    if kind == "layer":
        if shifted:
            raise ValueError("shifted weights belong to the rms norm; use kind=rms or shifted=False")
        return LayerNorm(width, eps=eps, bias=bias)
    return ShiftedRMSNorm(width, eps=eps) if shifted else nn.RMSNorm(width, eps=eps)


def deepnorm(
    side: Literal["encoder", "decoder"], *, encoder_layers: int = 0, decoder_layers: int = 0
) -> tuple[float, float]:
    """alpha and beta of one side (arXiv:2203.00555, figure 2); a stack alone has no layers on the other side."""
    N, M = encoder_layers, decoder_layers
    if not N or not M:
        layers = N + M
        return (2 * layers) ** 0.25, (8 * layers) ** -0.25
    if side == "encoder":
        return 0.81 * (N**4 * M) ** (1 / 16), 0.87 * (N**4 * M) ** (-1 / 16)
    return (3 * M) ** 0.25, (12 * M) ** -0.25
