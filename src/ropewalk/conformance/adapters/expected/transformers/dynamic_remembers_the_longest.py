"""Dynamic NTK keeps the base of the longest text so far: a text reads otherwise after a longer one was read."""

from __future__ import annotations

import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

config = LlamaConfig(
    hidden_size=64, num_attention_heads=2, max_position_embeddings=64,
    rope_parameters={"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10_000.0},
)  # fmt: skip
x, positions = torch.zeros(1), torch.arange(100, 116)[None]
expected = LlamaRotaryEmbedding(config)(x, positions)[0]
rotary = LlamaRotaryEmbedding(config)
rotary(x, torch.arange(2048)[None])
got = rotary(x, positions)[0]
print("expected: cosines at 100 to 115 as of a new module; a difference of 0")
print("got:      a largest difference of", float((got - expected).abs().max()), "after a call with 2,048 positions")
