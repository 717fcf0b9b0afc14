"""ALiBi's slopes are made in torch's default dtype: with bfloat16 as the default they are rounded for good."""

from __future__ import annotations

import torch
from x_transformers.x_transformers import AlibiPositionalBias

expected = AlibiPositionalBias(heads=16).slopes.flatten()
torch.set_default_dtype(torch.bfloat16)
got = AlibiPositionalBias(heads=16).slopes.flatten()
print("expected: slopes", expected[:3].tolist())
print("got:     ", got[:3].tolist(), "in", got.dtype)
