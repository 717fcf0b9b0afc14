"""Dynamic NTK computes its base in torch's default dtype: with bfloat16 as the default it is rounded."""

from __future__ import annotations

import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

config = LlamaConfig(
    hidden_size=64, num_attention_heads=2, max_position_embeddings=64,
    rope_parameters={"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10_000.0},
)  # fmt: skip
positions = torch.arange(2048)[None]
expected = LlamaRotaryEmbedding(config)(torch.zeros(1), positions)[0]
rotary = LlamaRotaryEmbedding(config)
torch.set_default_dtype(torch.bfloat16)
got = rotary(torch.zeros(1, dtype=torch.float32), positions)[0]
torch.set_default_dtype(torch.float32)
print("expected: the same cosines, whatever torch.get_default_dtype() is; a difference of 0")
print("got:      a largest difference of", float((got - expected).abs().max()))
