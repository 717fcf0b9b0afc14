"""RoPE in a model of your own: two lines, nothing to register, nothing that a cast can round.

Run: python examples/rope_in_your_model.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import ropewalk as rw


class Attention(nn.Module):
    """Your attention, with or without ropewalk around it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        scaling = rw.scaling.YaRN(factor=4, trained=2048)
        self.rope = rw.encodings.RoPE(head_width=width // heads, base=10_000, scaling=scaling)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        signal = self.rope.at(positions)
        q, k = signal.rotate(q, "query"), signal.rotate(k, "key")
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


torch.manual_seed(0)
attention = Attention(width=64, heads=4)
x = torch.randn(1, 8, 64)
here, far = torch.arange(8), torch.arange(8) + 1_000_000
print(
    "moved by a million positions, the output differs by", (attention(x, here) - attention(x, far)).abs().max().item()
)
print("tensors that the state dict holds for positions:", [name for name in attention.state_dict() if "rope" in name])

# A cast rounds your weights and never the angles: compare the tables, not the outputs.
exact = attention.rope.at(far).q_table[0]
cast = attention.to(torch.bfloat16).rope.at(far).q_table[0]
print("cos after .to(bfloat16):", cast.dtype, "changed by", (exact - cast).abs().max().item())
