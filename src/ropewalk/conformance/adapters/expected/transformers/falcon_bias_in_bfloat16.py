"""Falcon's slopes, positions and their products are rounded to bfloat16, in float32 models too."""

from __future__ import annotations

import torch
from transformers.models.falcon.modeling_falcon import build_alibi_tensor

bias = build_alibi_tensor(torch.ones(1, 1_001, dtype=torch.long), 16, torch.float32).view(16, -1)
print("expected: the bias between tokens 999 and 1,000 in head 1 is its slope, 2^-0.5 =", 2**-0.5)
print("got:     ", float(bias[0, 1000] - bias[0, 999]), "in a tensor of", bias.dtype)
