"""xPos: buffers that are in no state dict hold whatever was in memory after to_empty and load_state_dict."""

from __future__ import annotations

import torch
from rotary_embedding_torch import RotaryEmbedding

fresh = RotaryEmbedding(dim=64, use_xpos=True)
with torch.device("meta"):
    built = RotaryEmbedding(dim=64, use_xpos=True)
built.to_empty(device="cpu")
for buffer in built.buffers():
    buffer.fill_(float("nan") if buffer.is_floating_point() else 0)  # the worst of what memory may hold
built.load_state_dict(fresh.state_dict(), strict=True)
print("expected: scale", fresh.scale[:3].tolist())
print("got:     ", built.scale[:3].tolist())
