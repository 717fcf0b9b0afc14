"""One decoder, six position encodings: what each does to a tiny language model, trained short and read longer.

The task is to copy: 12 random letters, a separator, and the same letters again. Trained at positions 0 to 24, each
model then copies 20 letters, which takes positions that it has never seen.

Run: python examples/swap_the_encoding.py           about a minute on a laptop
"""

from __future__ import annotations

import sys

import torch
from torch.nn import functional as F

import ropewalk as rw

ENCODINGS = {
    "none": "none",
    "learned": {"kind": "learned", "longest": 64},
    "sinusoidal": "sinusoidal",
    "alibi": "alibi",
    "t5": "t5",
    "rope": "rope",
}


def copies(count: int, letters: int) -> torch.Tensor:
    text = torch.randint(1, 20, (count, letters))
    return torch.cat([text, torch.zeros(count, 1, dtype=torch.int64), text], dim=1)


def accuracy(model: rw.Transformer, letters: int) -> float:
    """Of the letters that can be known: those after the separator."""
    tokens = copies(200, letters)
    with torch.no_grad():
        said = model(tokens[:, :-1]).argmax(dim=-1)
    return (said[:, letters:] == tokens[:, letters + 1 :]).float().mean().item()


def train(encoding: str | dict[str, object], steps: int) -> rw.Transformer:
    torch.manual_seed(0)
    config = rw.TransformerConfig(width=64, heads=4, layers=2, vocabulary=20, encoding=encoding)
    model = rw.Transformer(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        tokens = copies(64, 12)
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


steps = int(sys.argv[1]) if len(sys.argv) > 1 else 400
print(f"{'encoding':12} copies 12   copies 20")
for name, encoding in ENCODINGS.items():
    model = train(encoding, steps)
    print(f"{name:12} {accuracy(model, 12):9.0%} {accuracy(model, 20):11.0%}")
