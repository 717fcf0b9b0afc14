"""inv_freq is saved with the weights: a checkpoint in bfloat16 brings it back rounded."""

from __future__ import annotations

import torch
from x_transformers.x_transformers import RotaryEmbedding

saved = {name: value.to(torch.bfloat16) for name, value in RotaryEmbedding(64).state_dict().items()}
loaded = RotaryEmbedding(64)
expected = loaded(torch.tensor([[8191]]))[0]
loaded.load_state_dict(saved)
got = loaded(torch.tensor([[8191]]))[0]
print("expected: the same angles after loading a checkpoint in bfloat16; a difference of 0 rad")
print("got:      a largest difference of", float((got - expected).abs().max()), "rad, from", list(saved))
