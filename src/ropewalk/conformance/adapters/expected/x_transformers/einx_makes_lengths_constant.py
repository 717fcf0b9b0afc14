"""einx makes every length a constant of the graph: each is compiled anew, and torch.export takes no other."""

from __future__ import annotations

import torch
from x_transformers.x_transformers import AlibiPositionalBias

built, count = AlibiPositionalBias(heads=4), 0


def counting(graph, examples):
    global count
    count += 1
    return graph


compiled = torch.compile(built.forward_custom_pos, fullgraph=True, backend=counting)
for length in (8, 13, 16, 21, 32, 45):
    compiled(torch.arange(length))
print("expected: at most 2 compilations over 6 lengths")
print("got:     ", count)
