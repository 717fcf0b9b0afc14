"""Gemma 3 holds rope parameters for each type of layer; `truncate` of YaRN within them is not read.

Expected are the frequencies of the same parameters in Llama, which is not nested.
"""

from __future__ import annotations

from transformers import Gemma3TextConfig, LlamaConfig
from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

yarn = {
    "rope_type": "yarn", "rope_theta": 10_000.0, "factor": 8.0, "original_max_position_embeddings": 2048,
    "truncate": False,
}  # fmt: skip
sizes = {"hidden_size": 64, "num_attention_heads": 2, "head_dim": 32, "max_position_embeddings": 16_384}
plain = {"rope_type": "default", "rope_theta": 10_000.0}
nested = Gemma3TextConfig(
    **sizes, num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"],
    rope_parameters={"sliding_attention": plain, "full_attention": yarn},
)  # fmt: skip
expected = LlamaRotaryEmbedding(LlamaConfig(**sizes, rope_parameters=dict(yarn))).inv_freq
got = Gemma3RotaryEmbedding(nested).full_attention_inv_freq
print("expected:", expected[2:7].tolist())
print("got:     ", got[2:7].tolist())
