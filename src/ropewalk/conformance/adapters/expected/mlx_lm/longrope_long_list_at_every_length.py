"""LongRoPE: short_factor is for texts within the original length, and is not read: they are rotated by long_factor."""

from __future__ import annotations

import mlx.core as mx
from mlx_lm.models.rope_utils import initialize_rope

scaling = {"rope_type": "longrope", "original_max_position_embeddings": 64}
scaling |= {"short_factor": [1.0] * 32, "long_factor": [4.0] * 32}
rope = initialize_rope(64, 10_000.0, False, scaling, max_position_embeddings=2048)
unrotated = mx.concatenate([mx.ones((1, 1, 64, 32)), mx.zeros((1, 1, 64, 32))], axis=-1)
first = rope(unrotated)[0, 0, :, ::32]  # cosine and sine of the first pair, times the gain
angles = mx.arctan2(first[:, 1], first[:, 0])
print("expected: angles of the first pair at positions 0, 1, 2 of 64 tokens, of 64: [0.0, 1.0, 2.0]")
print("got:     ", angles[:3].tolist())
