"""Checkpoints of a model that keeps q, k and v (gate and up) in one matrix, read by one that keeps them apart, or the
other way: a run begun with `model.fused: true` can move to tensor parallelism, which needs them apart.

The matrices are the same rows. So are what AdamW remembers of them, number by number, and Muon's momentum.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from ropewalk.checkpoints.load.tensors import apart
from ropewalk.distributed.start import copy_shard


class Cut(NamedTuple):
    """The same rows under other names."""

    ours: list[str]
    theirs: list[str]


def cuts(ours: Collection[str], theirs: Collection[str]) -> list[Cut]:
    """Tensors of a model, and those of a checkpoint that hold the same rows: one here and several there, or several
    and one. In the same order on every rank."""
    found = []
    for whole in sorted({*ours, *theirs}):
        parts = apart(whole)
        # A gate's values have the name of both together: which it is, the other name tells.
        if whole in theirs and all(part in ours for part in parts) and not all(part in theirs for part in parts):
            found.append(Cut(parts, [whole]))
        elif whole in ours and all(part in theirs for part in parts) and not all(part in ours for part in parts):
            found.append(Cut([whole], parts))
    return found


def read(
    cut: Cut,
    targets: Mapping[str, Tensor],
    states: Mapping[str, Sequence[str]],
    saved: Mapping[str, Any],
    tensor: Callable[[str], Tensor],
) -> dict[str, Tensor]:
    """Fills the parameters `targets` and returns the optimizer's tensors of them. states: what an optimizer remembers
    of each name in the checkpoint. tensor: reads one whole; there is one of them in memory at a time, on every rank."""
    _spread([tensor(f"model.{name}") for name in cut.theirs], [targets[name] for name in cut.ours])
    found: dict[str, Tensor] = {}
    for key in states.get(cut.theirs[0], ()):
        named = [f"optimizer.{name}.{key}" for name in cut.theirs]
        whole = [tensor(name) for name in named]
        about = saved[named[0]]
        assert isinstance(about, TensorStorageMetadata)
        if about.size == saved[f"model.{cut.theirs[0]}"].size:
            made = [torch.zeros_like(targets[name], dtype=about.properties.dtype) for name in cut.ours]
            _spread(whole, made)
        else:  # a count of steps: the same for all
            made = [whole[0].clone() for _ in cut.ours]
        found |= {f"optimizer.{name}.{key}": each for name, each in zip(cut.ours, made, strict=True)}
    return found


def _spread(theirs: Sequence[Tensor], ours: Sequence[Tensor]) -> None:
    rows = torch.cat(list(theirs))
    for target, part in zip(ours, rows.split([len(target) for target in ours]), strict=True):
        copy_shard(target, part)
