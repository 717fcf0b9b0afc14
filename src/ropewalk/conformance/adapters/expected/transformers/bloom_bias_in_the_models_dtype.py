"""BLOOM's bias is slope times key position, stored in the model's dtype: in bfloat16 near keys share one bias."""

from __future__ import annotations

import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

mask = torch.ones(1, 1_000, dtype=torch.long)
wide = build_alibi_tensor(mask, 16, torch.float32).view(16, -1).double()
narrow = build_alibi_tensor(mask, 16, torch.bfloat16).view(16, -1).double()
print("expected: the bias between tokens 998 and 999 in head 1 is its slope,", float(wide[0, 999] - wide[0, 998]))
print("got:      in bfloat16", float(narrow[0, 999] - narrow[0, 998]))
