"""Falcon's bias is slope times key position: in float16 it is infinite at far keys, where float32 has a number."""

from __future__ import annotations

import torch
from transformers.models.falcon.modeling_falcon import build_alibi_tensor

mask = torch.ones(1, 131_072, dtype=torch.long)
print("expected: finite,", float(build_alibi_tensor(mask, 16, torch.float32).view(16, -1)[0, -1]))
print("got:     ", float(build_alibi_tensor(mask, 16, torch.float16).view(16, -1)[0, -1]))
