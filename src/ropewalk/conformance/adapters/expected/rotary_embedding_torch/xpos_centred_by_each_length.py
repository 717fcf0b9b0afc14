"""xPos: rotate_queries_with_cached_keys centres the scales of queries by their own number, those of keys by theirs.

The score of two tokens then depends on how many are asked for at once.
"""

from __future__ import annotations

import torch
from rotary_embedding_torch import RotaryEmbedding

torch.manual_seed(0)
q, k = torch.randn(2, 1, 1, 12, 64)
whole_q, whole_k = RotaryEmbedding(dim=64, use_xpos=True).rotate_queries_and_keys(q, k)
last_q, cached_k = RotaryEmbedding(dim=64, use_xpos=True).rotate_queries_with_cached_keys(q[:, :, -1:], k)
expected = (whole_q[0, 0, -1] * whole_k[0, 0]).sum(-1)
got = (last_q[0, 0, 0] * cached_k[0, 0]).sum(-1)
print("expected: scores of the last of 12 queries as in one pass:", expected[:3].tolist())
print("got:      with cached keys", got[:3].tolist())
