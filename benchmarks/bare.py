"""The yardstick: a 34M decoder written out in bare PyTorch, nothing of ropewalk in it.

8 layers of width 512, 8 heads of 64, SwiGLU of 1,408, RMSNorm before, rotary positions, 8,192 tokens, output map apart.
Query, key and value weights are one matrix, gate and values of the feed-forward another; queries and keys are rotated
together by one compiled kernel; attention is SDPA's causal path. It is what someone would write who needs this one
model, fast, and no other.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCABULARY, WIDTH, LAYERS, HEADS, HIDDEN, BASE = 8192, 512, 8, 8, 1408, 10_000.0
HEAD_WIDTH = WIDTH // HEADS


def tables(length: int) -> tuple[Tensor, Tensor]:
    frequency = BASE ** (-torch.arange(0, HEAD_WIDTH, 2, dtype=torch.float64) / HEAD_WIDTH)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
    return angle.cos().float(), angle.sin().float()


@torch.compile
def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:  # (B, L, 2, H, K), queries and keys
    cos, sin = cos[:, None, None], sin[:, None, None]
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_attention, self.norm_mlp = nn.RMSNorm(WIDTH, eps=1e-5), nn.RMSNorm(WIDTH, eps=1e-5)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 2 * HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x.shape
        qkv = self.qkv(self.norm_attention(x)).view(batch, length, 3, HEADS, HEAD_WIDTH)
        q, k = rotated(qkv[:, :, :2], cos, sin).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, qkv[:, :, 2].transpose(1, 2), is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        gate, values = self.up(self.norm_mlp(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * values)


class Bare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        cos, sin = (table.to(tokens.device) for table in tables(tokens.shape[1]))
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


if __name__ == "__main__":
    model = Bare()
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters")
    tokens = torch.randint(0, VOCABULARY, (4, 512))
    loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    loss.backward()
    print(f"loss {loss.item():.3f}, near ln {VOCABULARY} = {torch.tensor(VOCABULARY).log().item():.3f}")
