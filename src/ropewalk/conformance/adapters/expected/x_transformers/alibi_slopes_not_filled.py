"""ALiBi's slopes are in a buffer that is in no state dict: after to_empty and load_state_dict they are undefined."""

from __future__ import annotations

import torch
from x_transformers.x_transformers import AlibiPositionalBias

fresh = AlibiPositionalBias(heads=16)
with torch.device("meta"):
    built = AlibiPositionalBias(heads=16)
built.to_empty(device="cpu")
built.slopes.fill_(float("nan"))  # the worst of what memory may hold
built.load_state_dict(fresh.state_dict(), strict=True)
print("expected: slopes", fresh.slopes.flatten()[:3].tolist())
print("got:     ", built.slopes.flatten()[:3].tolist())
