"""One long text on two processes: each has half of the tokens, and attention meets the keys of both.

Positions are integers that travel with the tokens, so a process computes the same whether it has the whole text or the
first and the last quarter of it.

Run: torchrun --nproc-per-node 2 examples/one_text_on_two_processes.py
"""

from __future__ import annotations

import torch
import torch.distributed as dist

import ropewalk as rw
from ropewalk.nn import Attention

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
attention, rope = Attention(64, 4), rw.encodings.RoPE(head_width=16)
x, at = torch.randn(1, 4096, 64), rw.positions.plain(4096)
with torch.no_grad():
    whole = attention(x, rope.at(at), rw.Rule())

    # The first and the last piece to one rank, the middle ones to the other: each then has as many scores to compute.
    pieces = torch.arange(4096).view(2 * size, -1)
    mine = pieces[[rank, 2 * size - 1 - rank]].flatten()
    signal = rope.at(at.take(mine))
    q, k, v = attention.rotated(x[:, mine], x[:, mine], signal)

    # All keys, values and positions to all; queries stay where they are.
    def gathered(part: torch.Tensor, axis: int) -> torch.Tensor:
        parts = [torch.empty_like(part) for _ in range(size)]
        dist.all_gather(parts, part.contiguous())
        return torch.cat(parts, dim=axis)

    keys = rw.Positions(*(gathered(part, 1) for part in at.take(mine)[:3]), at.limit)
    mixed = rw.attend(q, gathered(k, 2), gathered(v, 2), rw.Score(signal.with_keys(keys), rw.Rule()))
    out = attention.out(mixed.transpose(1, 2).flatten(2))
    apart = (out - whole[:, mine]).abs().max() / whole.abs().max()
    print(f"rank {rank}: {len(mine)} of 4,096 tokens, differs from one process by {apart.item():.1g} of it", flush=True)
    assert apart < 1e-4
dist.destroy_process_group()
