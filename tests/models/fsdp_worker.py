"""The ranks of test_fsdp2_on_two_ranks: every preset sharded, its loss and gradients against the model unsharded."""

from __future__ import annotations

import sys
import warnings

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from ropewalk.models import PRESETS, Transformer
from tests.models.test_transformer import gradients, small
from tests.train import forked


def main() -> None:
    warnings.simplefilter("default")  # torch warns of views and of random numbers on a CPU
    tokens = torch.randint(0, 37, (2, 12), generator=torch.Generator().manual_seed(0))
    for name in PRESETS:
        torch.manual_seed(0)
        plain, model = Transformer(small(name)).eval(), Transformer(small(name)).eval()
        model.load_state_dict(plain.state_dict())
        for stack in (model.encoder, model.decoder):
            for block in stack.blocks if stack is not None else ():
                fully_shard(block)
        fully_shard(model)
        want, got = gradients(plain, tokens), gradients(model, tokens)
        for key, value in want.items():
            other = got[key].full_tensor() if hasattr(got[key], "full_tensor") else got[key]
            assert (value - other).abs().max() <= 1e-6, (name, key)
        print(f"{name} as on one rank", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(max(map(abs, forked.run(lambda rank: main(), 2))))
