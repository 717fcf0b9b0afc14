"""y = x W^T + b, and the one case where torch is slow: a single token in bfloat16 on a CPU, a step of decoding."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Linear(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    one_token = x.numel() == x.shape[-1] and x.is_cpu and not torch.compiler.is_compiling()
    if one_token and x.dtype == torch.bfloat16 == weight.dtype:
        # The library behind F.linear rearranges the whole matrix first, which pays for many tokens and not for one.
        y = torch.mv(weight, x.view(-1))
        return (y if bias is None else y + bias).view(*x.shape[:-1], -1)
    return F.linear(x, weight, bias)
