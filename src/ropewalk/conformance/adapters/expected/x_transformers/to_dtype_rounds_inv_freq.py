""".to(bfloat16) rounds the buffer inv_freq, and positions take its dtype too: 257 is 256."""

from __future__ import annotations

import torch
from x_transformers.x_transformers import RotaryEmbedding

positions = torch.tensor([[256, 257, 8191]])
expected = RotaryEmbedding(64)(positions)[0]
got = RotaryEmbedding(64).to(torch.bfloat16)(positions)[0]
print("expected: angles of the first pair", expected.flatten(0, -2)[:, 0].tolist())
print("got:     ", got.flatten(0, -2)[:, 0].tolist())
