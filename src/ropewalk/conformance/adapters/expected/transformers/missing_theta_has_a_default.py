"""rope_parameters without rope_theta are read without an error or a warning: the class's default stands in."""

from __future__ import annotations

from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

config = LlamaConfig(hidden_size=64, num_attention_heads=2, rope_parameters={"rope_type": "linear", "factor": 4.0})
rotary = LlamaRotaryEmbedding(config)
print("expected: an error or a warning that names rope_theta")
print("got:      rope_theta", config.rope_parameters.get("rope_theta"), "and inv_freq", rotary.inv_freq[:3].tolist())
