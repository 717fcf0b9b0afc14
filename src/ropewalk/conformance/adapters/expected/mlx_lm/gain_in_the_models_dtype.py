"""YarnRoPE and SuScaledRoPE multiply queries and keys by the gain in their own dtype, before the kernel rotates them.

In bfloat16 that rounds once more than cos and sin that hold the gain, as transformers' do.
"""

from __future__ import annotations

import mlx.core as mx
from mlx_lm.models.rope_utils import initialize_rope

yarn = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 2048}
rope = initialize_rope(64, 10_000.0, False, scaling_config=yarn, max_position_embeddings=16_384)
x = mx.random.normal((1, 4, 512, 64), key=mx.random.key(0)).astype(mx.bfloat16)
true = rope(x.astype(mx.float32))
got = rope(x).astype(mx.float32)


def worst(y: mx.array) -> float:
    """For the length of the pair that is rotated."""
    length = mx.sqrt(mx.square(true[..., :32]) + mx.square(true[..., 32:]))
    return mx.max(mx.abs(y - true)[..., :32] / length).item()


print("expected: one rounding to bfloat16,", worst(true.astype(mx.bfloat16).astype(mx.float32)))
print("got:     ", worst(got))
