"""The smallest run there is, for tests of what surrounds it: python -m tests.train.tiny_run OUT, also under torchrun.

Losses go to OUT/losses.jsonl, one line a step and written before the step counts; a batch is a function of its number.
"""

from __future__ import annotations

from ropewalk.train.guard.launcher import die_with_parent

die_with_parent()  # before torch is imported: that takes seconds

# ruff: noqa: E402
import argparse
import hashlib
import json
import os
import sys
import time
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.optim import Optimizer

from ropewalk.distributed.world import World
from ropewalk.models.config import TransformerConfig
from ropewalk.models.transformer import Transformer
from ropewalk.train.checkpoint.store import Checkpoints
from ropewalk.train.guard.faults import FaultConfig, Watch
from ropewalk.train.guard.lease import Lease
from ropewalk.train.guard.signals import Signals
from ropewalk.train.guard.watchdog import Watchdog

TINY = TransformerConfig(vocabulary=32, width=16, heads=2, layers=2, hidden=32)


def build(seed: int = 0, sharded: bool | None = None) -> tuple[Transformer, Optimizer]:
    torch.manual_seed(seed)
    model = Transformer(TINY)
    if dist.is_initialized() if sharded is None else sharded:
        from torch.distributed.fsdp import fully_shard

        assert model.decoder is not None
        for block in model.decoder.blocks:
            fully_shard(block)
        fully_shard(model)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)


def loss_of(model: Transformer, number: int) -> torch.Tensor:
    """Of this rank's rows of the batch."""
    rank, size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    tokens = torch.randint(0, 32, (4, 12), generator=torch.Generator().manual_seed(number))[rank::size]
    return F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def step(model: Transformer, optimizer: Optimizer, number: int) -> float:
    loss = loss_of(model, number)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return total(loss.detach())


def total(loss: torch.Tensor) -> float:
    if dist.is_initialized():
        dist.all_reduce(loss)
        loss = loss / dist.get_world_size()
    return float(loss)


def weights(model: Transformer) -> str:
    """A digest of every weight, whatever the world."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        full = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        digest.update(name.encode() + full.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("out", type=Path)
    options.add_argument("--steps", type=int, default=8)
    options.add_argument("--every", type=int, default=2)
    options.add_argument("--asynchronous", action="store_true")
    options.add_argument("--slow", type=float, default=0.0, help="seconds a step is made to take")
    options.add_argument("--hang", type=float, default=60.0)
    options.add_argument("--hang-at", default="", help="RANK:STEP:HOW, how is sleep | spin")
    given = options.parse_args()
    torch.set_num_threads(1)
    world = World.start()
    rank = world.rank
    config = FaultConfig(hang=given.hang)
    stacks = given.out / "stacks"
    with Lease(given.out, world) as lease, Signals() as signals, Watchdog(config, world, stacks) as watchdog:
        checkpoints = Checkpoints(given.out / "checkpoints", world, lease=lease, asynchronous=given.asynchronous)
        model, optimizer = build()
        watch = Watch(config, world)
        number = 0
        if (found := checkpoints.newest()) is not None:
            number = checkpoints.load(found, model, [optimizer])["step"]
        (given.out / f"pid-{rank}").write_text(str(os.getpid()), encoding="ascii")
        with (given.out / "losses.jsonl").open("a", encoding="ascii", buffering=1) as losses:
            while number < given.steps:
                if given.hang_at.startswith(f"{rank}:{number}:"):
                    hang(given.hang_at.rpartition(":")[2])
                loss = step(model, optimizer, number)
                watch.verdict(number, loss, 1.0)
                time.sleep(given.slow)
                number += 1
                if rank == 0:
                    losses.write(json.dumps({"step": number, "loss": loss.hex()}) + "\n")
                watchdog.beat(number)
                asked = signals.asked(world, number)
                if number % given.every == 0 or asked:
                    checkpoints.save(number, model, [optimizer], {"step": number})
                if asked:
                    break
        checkpoints.wait()
        digest = weights(model)
        if rank == 0:
            (given.out / "weights").write_text(digest, encoding="ascii")
    world.stop()
    return 0


def hang(how: str) -> None:
    while True:
        if how == "sleep":
            time.sleep(1)


if __name__ == "__main__":
    warnings.simplefilter("error")
    sys.exit(main())
