"""The ranks of test_fsdp2_mixed_precision_on_two_ranks: blocks sharded in bfloat16, positions passed in as a signal."""

from __future__ import annotations

import sys
import warnings

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from ropewalk import positions
from ropewalk.attention import Rule, Score, attend
from ropewalk.encodings import RoPE, Signal
from ropewalk.encodings.t5 import T5
from tests.train import forked

PLACES = torch.arange(131_000, 131_072)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(64, 3 * 64)
        self.seen: tuple[Tensor, ...] = ()

    def forward(self, x: Tensor, signal: Signal) -> Tensor:
        table = signal.q_table
        self.seen = tuple(table) if isinstance(table, tuple) else ()
        q, k, v = self.project(x).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        assert q.dtype == torch.bfloat16
        q, k = signal.rotate(q, "query"), signal.rotate(k, "key")
        return attend(q, k, v, Score(signal, Rule())).transpose(1, 2).flatten(2)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rope, self.t5 = RoPE(head_width=16, base=500_000), T5(heads=4)
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        x = self.blocks[0](x, self.rope.at(index))
        return self.blocks[1](x, self.t5.at(index))


def main() -> None:
    warnings.simplefilter("default")  # torch warns of views and of random numbers on a CPU
    torch.manual_seed(0)
    with torch.device("meta"):
        model = Model()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    model.to_empty(device="cpu")
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.1)
    assert list(model.buffers()) == []
    out = model(torch.randn(1, len(PLACES), 64), PLACES)
    out.float().square().mean().backward()
    assert torch.isfinite(model.t5.weight.grad.full_tensor()).all()
    assert model.t5.weight.grad.full_tensor().abs().sum() > 0

    alone = RoPE(head_width=16, base=500_000)
    cos, sin = model.blocks[0].seen
    assert cos.dtype == torch.float32
    assert torch.equal(alone.phases(positions.explicit(PLACES)), model.rope.phases(positions.explicit(PLACES)))
    for want, got in zip(alone.at(PLACES).q_table, (cos, sin), strict=True):
        assert (want - got).abs().max() <= 2.4e-7
    print("tables as they were", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(max(map(abs, forked.run(lambda rank: main(), 2))))
