"""Steps of training on any world, written out: what the tests compare between worlds."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn import functional as F

from ropewalk import positions
from ropewalk.data.batch import IGNORE, Batch
from ropewalk.distributed import World, apply
from ropewalk.models import Transformer, TransformerConfig
from ropewalk.nn import DropoutKey

ALONE = World(None, torch.device("cpu"))
VOCABULARY, LENGTH, ROWS = 37, 16, 4
SMALL = {"vocabulary": VOCABULARY, "width": 32, "heads": 4, "key_heads": 2, "layers": 2, "hidden": 48, "fused": False}


class Steps(NamedTuple):
    losses: list[float]
    norms: list[float]
    gradients: dict[str, Tensor]
    """Of the first step, whole."""
    weights: dict[str, Tensor]
    """After the last step, whole."""


def rows(config: TransformerConfig, step: int, *, packed: bool = True) -> Batch:
    """The whole batch of one step; packed documents, since they are the harder case."""
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, VOCABULARY, (ROWS, LENGTH), generator=generator)
    target = torch.randint(0, VOCABULARY, (ROWS, LENGTH), generator=generator)
    target[:, 5] = IGNORE
    target[0, :7] = IGNORE
    documents = [[5, 11], [16], [9, 4], [3, 3, 8]]
    at = positions.packed(documents, limit=32) if packed else positions.plain(LENGTH, batch=ROWS, limit=32)
    sample = torch.arange(ROWS) + ROWS * step
    if config.stack != "encoder-decoder":
        return Batch(tokens, at, target, sample)
    source = torch.randint(0, VOCABULARY, (ROWS, LENGTH), generator=generator)
    return Batch(tokens, at, target, sample, source, positions.packed(documents, limit=32))


def shard(batch: Batch, world: World) -> Batch:
    """The rows of this rank, as the reader deals them out."""
    mine = slice(world.dp_rank, None, world.dp_size)
    source_at = None if batch.source_at is None else batch.source_at.rows(mine)
    source = None if batch.source is None else batch.source[mine]
    return Batch(batch.tokens[mine], batch.at.rows(mine), batch.target[mine], batch.sample[mine], source, source_at)


def train(
    config: dict[str, Any],
    world: World,
    *,
    steps: int,
    micro: int = 1,
    precision: apply.Precision = "float32",
    limit: float | None = 1.0,
    packed: bool = True,
    **how: Any,
) -> Steps:
    """`micro` batches a step, AdamW; the loss is one number for the whole step on every rank."""
    settings = TransformerConfig(**{**SMALL, **config})
    model = apply.parallelise(lambda: Transformer(settings), world, seed=7, precision=precision, **how).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=False)
    losses, norms, gradients = [], [], {}
    for step in range(steps):
        batches = [rows(settings, step * micro + number, packed=packed) for number in range(micro)]
        asked = sum(int(batch.targets) for batch in batches)
        total = torch.zeros(())
        for number, batch in enumerate(batches):
            part = world.cut(shard(batch, world))
            apply.last(model, number == micro - 1)
            with apply.autocast(world, precision):
                loss = loss_of(model, part, DropoutKey.for_step(3, step, part.sample), world) / asked
            loss.backward()
            total += loss.detach()
        apply.finish(model, world)
        norms.append(apply.clip(model, limit, world).item())
        if step == 0:
            gradients = {name: full(p.grad).clone() for name, p in model.named_parameters() if p.grad is not None}
        optimizer.step()
        optimizer.zero_grad()
        losses.append(world.sum(total).item())
    return Steps(losses, norms, gradients, {name: full(p.detach()).clone() for name, p in model.named_parameters()})


def loss_of(model: Transformer, batch: Batch, dropout_key: DropoutKey, world: World = ALONE) -> Tensor:
    x = model.hidden(batch.tokens, batch.at, source=batch.source, source_at=batch.source_at, dropout_key=dropout_key)
    x, target = apply.share(model, world, x, batch.target)
    logits = model.output(x).float()
    loss = F.cross_entropy(logits.flatten(0, -2), target.flatten(), ignore_index=IGNORE, reduction="sum")
    return apply.join(model, world, loss)


def full(x: Tensor) -> Tensor:
    return x.full_tensor() if isinstance(x, DTensor) else x


def difference(want: dict[str, Tensor], got: dict[str, Tensor]) -> tuple[float, str]:
    """The largest difference in units of the tensor's own largest number, and the tensor it is in."""
    assert want.keys() == got.keys(), want.keys() ^ got.keys()
    found = [((want[n] - got[n]).abs().max().item() / max(want[n].abs().max().item(), 1e-12), n) for n in want]
    return max(found)
