"""Dynamic NTK: keys stay in the cache under the base they were rotated with, and later queries have another one."""

from __future__ import annotations

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=64, rope_parameters={"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10_000.0},
    initializer_range=0.35,
)  # fmt: skip
ids = torch.randint(64, (1, 72))


def model():
    torch.manual_seed(1)
    return LlamaForCausalLM(config).eval()


with torch.no_grad():
    whole = model()(ids).logits[0, -1]
    decoder, cache = model(), DynamicCache(config=config)
    decoder(ids[:, :56], past_key_values=cache)
    for n in range(56, 72):
        last = decoder(ids[:, n : n + 1], past_key_values=cache).logits[0, -1]
print("expected: the logits of token 72, decoded from a cache, as in one pass; 1e-5 apart at most")
print("got:     ", float((last - whole).abs().max() / whole.abs().max()), "of the largest logit apart")
