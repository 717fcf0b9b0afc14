"""Dynamic NTK's base is that of each call's length: keys that are cached keep the base of their own call."""

from __future__ import annotations

import mlx.core as mx
from mlx_lm.models.rope_utils import initialize_rope

rope = initialize_rope(64, 10_000.0, False, {"rope_type": "dynamic", "factor": 4.0}, max_position_embeddings=64)
q, k = mx.random.normal((2, 1, 1, 80, 64), key=mx.random.key(0))
whole = (rope(q)[0, 0, -1:] * rope(k)[0, 0]).sum(-1)
cached = mx.concatenate([rope(k[:, :, n : n + 1], offset=n) for n in range(80)], axis=2)
decoded = (rope(q[:, :, -1:], offset=79)[0, 0] * cached[0, 0]).sum(-1)
print("expected: scores of the last of 80 tokens as in one pass:", whole[:3].tolist())
print("got:      token by token, with cached keys", decoded[:3].tolist())
