"""One rank of test_compiled_blocks: compiled block by block under FSDP2, context and tensor parallelism."""

from __future__ import annotations

import torch
import torch.distributed as dist

from ropewalk.distributed import MeshConfig, World
from tests.distributed.steps import ALONE, difference, train

if __name__ == "__main__":
    torch.set_num_threads(1)
    World.start(timeout=600)
    for sides in ({}, {"cp": 2}, {"tp": 2}):
        world = World.start(MeshConfig(**sides))
        want = train({"encoding": "rope"}, ALONE, steps=3)
        got = train({"encoding": "rope"}, world, steps=3, compiled=True, recompute=True)
        gradient, where = difference(want.gradients, got.gradients)
        assert gradient <= 2e-6, (sides, where, gradient)
        assert max(abs(a - b) for a, b in zip(want.losses, got.losses, strict=True)) <= 1e-5
        if world.rank == 0:
            print(f"{sides} as uncompiled", flush=True)
    dist.destroy_process_group()
