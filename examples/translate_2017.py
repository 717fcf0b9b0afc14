"""The 2017 Transformer learns 192 sentences by heart, 96 pairs of English and German: all parts of it at work.

Letters stand for tokens, so that the whole path can be read here. A model this small and a text this short show that
every part is connected, not that it translates: `ropewalk train translate-en-de` does that.

Run: python examples/translate_2017.py              a minute or two on a laptop
"""

from __future__ import annotations

import sys
from importlib.resources import files

import torch
from torch.nn import functional as F

import ropewalk as rw

PAD, START, END = 0, 1, 2
lines = files("ropewalk.data").joinpath("sample", "pairs.en-de.tsv").read_text(encoding="utf-8").splitlines()
pairs = [tuple(line.split("\t")[:2]) for line in lines if not line.startswith("#")]
letters = sorted({letter for pair in pairs for text in pair for letter in text})


def encode(text: str) -> list[int]:
    return [letters.index(letter) + 3 for letter in text]


def batch(texts: list[list[int]]) -> tuple[torch.Tensor, rw.Positions]:
    """Filled up with padding, which the positions name: padding is seen by nobody."""
    at = rw.positions.padded([len(text) for text in texts])
    return torch.tensor([text + [PAD] * (at.shape[1] - len(text)) for text in texts]), at


steps = int(sys.argv[1]) if len(sys.argv) > 1 else 300
torch.manual_seed(0)
config = rw.preset("vaswani2017", width=128, heads=4, layers=2, hidden=512, vocabulary=len(letters) + 3)
model = rw.Transformer(config)
source, source_at = batch([encode(english) for english, _ in pairs])
target, at = batch([[START, *encode(german), END] for _, german in pairs])
at = rw.Positions(at.index[:, :-1], at.order[:, :-1], at.segment[:, :-1], at.limit)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98))
for step in range(steps):
    logits = model(target[:, :-1], at, source=source, source_at=source_at)
    loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0 or step == steps - 1:
        print(f"step {step:4} loss {loss.item():.3f}")

model.eval()
for english, german in pairs[:3]:
    said = rw.complete(model, encode(english), start=START, stop=END, max_tokens=80)
    print(f"{english!r} -> {''.join(letters[token - 3] for token in said if token > 2)!r}, wanted {german!r}")
