"""Data-dependent ALiBi: the forget gates of cached tokens are not kept, and a token decoded alone sees none of them.

A chunk of several tokens after a cache does not run: the bias is as wide as the chunk, and not as the cache.
"""

from __future__ import annotations

import torch
from x_transformers import Decoder, TransformerWrapper

torch.manual_seed(0)
layers = Decoder(dim=64, depth=2, heads=4, attn_dim_head=64, attn_data_dependent_alibi=True)
model = TransformerWrapper(num_tokens=64, max_seq_len=64, attn_layers=layers, use_abs_pos_emb=False).eval()
with torch.no_grad():
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.copy_(torch.randn_like(parameter) * 0.35)
    ids = torch.randint(64, (1, 8))
    whole = model(ids)
    _, cache = model(ids[:, :7], return_intermediates=True)
    alone = model(ids, cache=cache, cache_age=1)
    apart = float((alone[:, -1] - whole[:, -1]).abs().max() / whole.abs().max())
    try:
        _, cache = model(ids[:, :5], return_intermediates=True)
        model(ids, cache=cache, cache_age=3)
        chunk = "ran"
    except RuntimeError as error:
        chunk = f"raised: {error}"
print("expected: the last token from a cache as in one pass, 1e-4 apart at most; a chunk of 3 runs")
print("got:     ", apart, "apart; the chunk", chunk)
