"""A key cache that forgets the middle of a long text and moves what is left, exactly.

Streaming keeps the first keys and the last ones (arXiv:2309.17453). What is left must stand at positions that a model
was trained on, so keys are turned to their new places; a rotation can be turned further, which makes that exact.

Run: python examples/a_cache_that_forgets.py
"""

from __future__ import annotations

import torch

import ropewalk as rw

torch.manual_seed(0)
model = rw.Transformer(rw.TransformerConfig(width=64, heads=4, layers=1, vocabulary=100)).eval()
text = torch.randint(0, 100, (1, 30))
limit, sinks, recent = 64, 4, 10

with torch.no_grad():
    cache = model.cache(1, 64, limit=limit)
    model(text, rw.positions.plain(30, limit=limit), cache=cache)
    print("keys read:", cache[0].filled, "next position:", cache.next.tolist())

    # Forget the middle: every key after the first 4 and before the last 10.
    cache.evict(lambda at: (at.order >= sinks) & (at.order < 30 - recent))
    print("keys kept:", cache[0].filled, "next position:", cache.next.tolist())

    # Close the gap: what is left moves back, keys and positions together.
    gap = 30 - recent - sinks
    cache.shift([model.decoder.kinds[kind] for kind in model.decoder.kind_of], -gap, start=30 - recent)
    print("gap closed, next position:", cache.next.tolist())

    # One layer keeps no trace of what is forgotten, so a model that read only the kept tokens must agree.
    kept = torch.cat([text[:, :sinks], text[:, -recent:]], dim=1)
    new = torch.tensor([[7]])
    forgetful = model(new, rw.positions.explicit(cache.next[:, None], limit=limit), cache=cache)
    fresh = model(torch.cat([kept, new], dim=1))[:, -1:]
    print("against a model that never read the middle:", (forgetful - fresh).abs().max().item())
