"""Initial weights that are a function of (seed, name of the unit) and not of the world.

Each unit, a block or all that is not in a block, is made whole on the CPU under a generator of its own, started as the
model itself would start it, and copied into whatever shards there are. One unit is in memory at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ropewalk.distributed.torch_private import local_part
from ropewalk.models import Transformer


def initialise(model: Transformer, seed: int, made: Callable[[], None] = lambda: None) -> None:
    """Fills the parameters, sharded or not: bit for bit the same weights in every world. made: called after each unit,
    since all of a large model take minutes."""
    targets = dict(model.named_parameters())
    for name, unit in _units(model):
        unit.to_empty(device="cpu")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8], "little") >> 1)
            _reset(unit)
        for key, value in unit.named_parameters():
            copy_shard(targets.pop(f"{name}.{key}" if name else key), value)
        unit.to_empty(device="meta")
        made()
    if targets:
        raise AssertionError(f"never started: {', '.join(targets)}")


def _units(model: Transformer) -> Iterator[tuple[str, nn.Module]]:
    with torch.device("meta"):
        whole = Transformer(model.config)
    for side in model.config.sides:
        stack = whole.get_submodule(side)
        blocks = stack.get_submodule("blocks")
        encodings = stack.get_submodule("encodings")
        stack.blocks, stack.encodings = nn.ModuleList(), nn.ModuleList()
        yield from ((f"{side}.blocks.{number}", block) for number, block in blocks.named_children())
        # Apart, so that the token table is the same whatever an encoding draws.
        yield from ((f"{side}.encodings.{number}", encoding) for number, encoding in encodings.named_children())
    yield "", whole


def _reset(unit: nn.Module) -> None:
    if isinstance(unit, Transformer):
        unit.reset_parameters()
        return
    # Children first, as the model itself does: an attention knows how its linear maps start.
    for module in reversed(list(unit.modules())):
        if (reset := getattr(module, "reset_parameters", None)) is not None:
            reset()


@torch.no_grad()
def copy_shard(target: Tensor, whole: Tensor) -> None:
    """This rank's part of a whole tensor into a parameter."""
    if not isinstance(target, DTensor):
        target.copy_(whole)
        return
    target.to_local().copy_(local_part(whole, target))
