"""Positions are made in the dtype of q: in bfloat16 every position it cannot hold is another one, from 257 on."""

from __future__ import annotations

import torch
from rotary_embedding_torch import RotaryEmbedding

q = torch.ones(1, 1, 2, 64)
expected = RotaryEmbedding(dim=64).rotate_queries_or_keys(q, offset=1_000)[0, 0]
got = RotaryEmbedding(dim=64).rotate_queries_or_keys(q.bfloat16(), offset=1_000)[0, 0]
print("expected: positions 1,000 and 1,001 differ:", expected[:, 0].tolist())
print("got:      in bfloat16", got[:, 0].tolist())
