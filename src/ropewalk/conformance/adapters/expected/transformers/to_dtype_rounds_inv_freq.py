"""model.to(bfloat16) rounds the buffer inv_freq, so that angles are off by whole radians after a few hundred tokens.

from_pretrained(dtype=torch.bfloat16) keeps it in float32, which is the answer given upstream.
"""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(vocab_size=8, hidden_size=64, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
position = torch.tensor([[8191]])
expected = LlamaForCausalLM(config).model.rotary_emb(torch.zeros(1), position)[0]
got = LlamaForCausalLM(config).to(torch.bfloat16).model.rotary_emb(torch.zeros(1), position)[0]
print("expected: cos at position 8,191 within 0.004 of", expected[0, 0, :4].tolist())
print("got:     ", got[0, 0, :4].tolist())
