"""Attention written out with torch alone, beside ropewalk's: the same numbers.

    softmax(q k' / sqrt(K)) v, with the future hidden                           arXiv:1706.03762, section 3.2

Run: python examples/attention_from_scratch.py
"""

from __future__ import annotations

import torch

import ropewalk as rw

torch.manual_seed(0)
batch, heads, length, width = 2, 4, 10, 16
q, k, v = torch.randn(3, batch, heads, length, width)

# By hand: every query against every key, later keys hidden, weights that sum to 1, a weighted mean of the values.
scores = q @ k.transpose(-1, -2) / width**0.5
future = torch.ones(length, length, dtype=torch.bool).triu(1)
weights = scores.masked_fill(future, -torch.inf).softmax(dim=-1)
by_hand = weights @ v

# The same with positions: where tokens are decides what they see, so packed documents are only other integers.
signal = rw.encodings.NoPE().at(torch.arange(length))
ours = rw.attend(q, k, v, rw.Score(signal, rw.Rule(causal=True)))
print("one document: largest difference", (by_hand - ours).abs().max().item())

# Two documents of 6 and 4 tokens in one sequence: each attends to itself alone.
packed = rw.attend(q, k, v, rw.Score(rw.encodings.NoPE().at(rw.positions.packed([[6, 4]])), rw.Rule(causal=True)))
second = scores[..., 6:, 6:].masked_fill(future[:4, :4], -torch.inf).softmax(dim=-1) @ v[..., 6:, :]
print("second of two documents: largest difference", (second - packed[..., 6:, :]).abs().max().item())

# ALiBi adds -slope * distance to each score before the softmax: the nearer, the heavier (arXiv:2108.12409).
alibi = rw.encodings.ALiBi(heads=heads)
slopes = torch.tensor([2.0 ** (-8 * (h + 1) / heads) for h in range(heads)])[:, None, None]
distance = (torch.arange(length)[:, None] - torch.arange(length)).clamp(min=0)
by_hand = (scores - slopes * distance).masked_fill(future, -torch.inf).softmax(dim=-1) @ v
ours = rw.attend(q, k, v, rw.Score(alibi.at(torch.arange(length)), rw.Rule(causal=True)))
print("ALiBi: largest difference", (by_hand - ours).abs().max().item())
