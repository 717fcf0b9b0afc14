"""A key of rope_parameters that nothing reads is silently dropped, and so is one that contradicts another."""

from __future__ import annotations

from mlx_lm.models.rope_utils import initialize_rope

plain = initialize_rope(64, 10_000.0, False, {"rope_type": "default"})
got = initialize_rope(64, 10_000.0, False, {"rope_type": "default", "facotr": 4.0})
both = initialize_rope(64, 10_000.0, False, {"rope_type": "llama3", "type": "linear", "factor": 2.0})
print("expected: an error or a warning for the unknown key 'facotr', and for two types")
print("got:     ", type(got).__name__, got.scale == plain.scale, "and", type(both).__name__, both.scale)
