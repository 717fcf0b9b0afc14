"""What a step costs one rank of a world of any size: the code that trains, run on tensors that have only shapes.

A process group of N ranks that exchanges nothing, parameters and activations without memory: memory at the peak by
part, bytes of every collective and floating point operations are counted, not computed from a formula. Only the core
of attention stands in for itself: its tiles are chosen by looking at numbers, which here are not there.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F
from torch.optim import AdamW, Optimizer
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from ropewalk import positions
from ropewalk.attention import Rule, sdpa, tiled
from ropewalk.data.batch import IGNORE, Batch
from ropewalk.distributed import apply, torch_private
from ropewalk.distributed.world import MeshConfig, World
from ropewalk.encodings import Signal
from ropewalk.models import Transformer
from ropewalk.nn import Attention, Core, DropoutKey
from ropewalk.torch_private import cpu_attention


def _forward(q: Any, k: Any, v: Any, dropout: float = 0.0, causal: bool = False, **_: Any) -> int:
    return sdpa_flop_count(q, k, v) // (2 if causal else 1)


def _backward(
    gradient: Any, q: Any, k: Any, v: Any, out: Any, sums: Any, dropout: float, causal: bool, **_: Any
) -> int:
    return sdpa_backward_flop_count(gradient, q, k, v) // (2 if causal else 1)


def attention_flops() -> dict[Any, Callable[..., int]]:
    """What torch's counter does not know: attention of a CPU. A causal query sees half of the keys."""
    return dict(zip(cpu_attention() or (), (_forward, _backward), strict=False))


Loss = Callable[[Transformer, Batch, DropoutKey, World], Tensor]


@dataclass(frozen=True)
class Traffic:
    """One kind of message on one side of the mesh."""

    axis: str
    operation: str
    calls: int
    bytes: int
    """Of the larger of what goes in and what comes out, all calls together."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One step, forward, backward and update, on one rank."""

    ranks: int
    parameters: int
    """Bytes of this rank's shards."""
    gradients: int
    optimizer: int
    activations: int
    """Bytes at the peak that are none of the three above: activations, gathered weights, buffers of messages."""
    peak: int
    traffic: tuple[Traffic, ...]
    """Of all passes of the step."""
    flops: int
    """Of this rank in all passes, recomputation included."""
    attention: float
    """Their share that is scores and sums of values, as if no layer had a window."""
    seconds: float
    """That the measurement took."""


def measure(
    build: Callable[[], Transformer],
    mesh: MeshConfig,
    ranks: int,
    *,
    rows: int,
    length: int,
    source_length: int | None = None,
    micro: int = 1,
    precision: apply.Precision = "float32",
    recompute: bool = False,
    optimizer: Callable[[Transformer], Sequence[Optimizer]] | None = None,
    loss: Loss | None = None,
    share_loss: bool = True,
) -> Measured:
    """rows: of one micro-batch on one rank of dp. micro: micro-batches of a step, of which two are run: those between
    the first and the last cost what the first does. source_length: of an encoder-decoder; as long unless given."""
    start = time.perf_counter()
    with _group(ranks):
        world = World.start(mesh)
        model = apply.wrap(build, world, precision=precision, recompute=recompute, share_loss=share_loss)
        with torch_private.without_memory():
            model.to_empty(device="cpu")
            model.train()
            for module in model.modules():
                if isinstance(module, Attention):
                    module.core.__dict__["forward"] = partial(fused_attention, module.core)
            optimizers = [AdamW(model.parameters(), foreach=False)] if optimizer is None else optimizer(model)
            _fill_state(model, optimizers)
            batch = world.cut(_batch(model, rows, length, source_length or length))
            return _counted(model, world, optimizers, batch, micro, precision, loss or _loss, start)


def _counted(
    model: Transformer,
    world: World,
    optimizers: Sequence[Optimizer],
    batch: Batch,
    micro: int,
    precision: apply.Precision,
    loss: Loss,
    start: float,
) -> Measured:
    memory, flops = torch_private.memory_tracker(), FlopCounterMode(display=False, custom_mapping=attention_flops())
    traffic = _Traffic(world)
    memory.track_external(model, *optimizers, *(part for part in batch if isinstance(part, Tensor)))
    with memory, flops, torch_private.follow(traffic.see):
        first_flops, first_traffic = 0, ()
        world.sum(torch.zeros(2, dtype=torch.int64))  # targets and tokens
        told = traffic.found()
        for number in range(min(micro, 2)):
            memory.reset_mod_stats()
            apply.last(model, number == min(micro, 2) - 1)
            with apply.autocast(world, precision):
                value = loss(model, batch, DropoutKey(batch.sample), world)
            value.backward()
            del value
            if number == 0:
                first_flops, first_traffic = flops.get_total_flops(), traffic.found()
        traffic.repeat(first_traffic, max(0, micro - 2))
        traffic.repeat(told, -max(0, micro - 2))
        apply.finish(model, world)
        apply.clip(model, 1.0, world)
        world.sum(torch.zeros(()))  # the loss
        world.sum(torch.zeros((), dtype=torch.int64))  # whether any rank was asked to stop
        gradients = sum(_bytes(p.grad) for p in model.parameters() if p.grad is not None)
        for one in optimizers:
            one.step()
            one.zero_grad()
    parameters = sum(_bytes(p) for p in model.parameters())
    states = [value for one in optimizers for state in one.state.values() for value in state.values()]
    kept = sum(_bytes(value) for value in states if isinstance(value, Tensor))
    peak = memory.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    total, each = flops.get_total_flops(), flops.get_flop_counts()["Global"]
    return Measured(
        ranks=world.size,
        parameters=parameters,
        gradients=gradients,
        optimizer=kept,
        activations=peak - parameters - gradients - kept,
        peak=peak,
        traffic=traffic.found(),
        flops=total + max(0, micro - 2) * first_flops,
        attention=sum(count for operation, count in each.items() if "attention" in str(operation)) / total,
        seconds=time.perf_counter() - start,
    )


def fused_attention(
    core: Core, q: Tensor, k: Tensor, v: Tensor, signal: Signal, rule: Rule, dropout_key: DropoutKey | None = None
) -> Tensor:
    """As one kernel has it: its inputs, its output, a number a query, a mask where one is needed. A bias that is made
    whole is made here too; of one made in tiles there is memory for the largest tile, and its gradients."""
    score = core.score(q, signal, rule)
    if score.biased and sdpa.why_not(q, k, v, score) is None:
        return sdpa.attend(q, k, v, score)
    learned = [*signal.encoding.parameters(), *([] if core.sink is None else [core.sink])]
    tiles = tiled.tile_bytes(q, k, score) if score.biased else (0, 0)
    q = _Beside.apply(q, tiles, *learned) if learned or score.biased else q
    width = max(q.shape[-1], v.shape[-1])
    q, k, padded = (F.pad(x, (0, width - x.shape[-1])) if x.shape[-1] < width else x for x in (q, k, v))
    (B, H, L, _), S = q.shape, k.shape[2]
    settings = {"enable_gqa": H != k.shape[1]}
    if rule.causal and L != S and B * L * S <= sdpa.LARGEST_MASK:
        # Some of the queries meet the keys of all parts: no triangle fits, and a mask is built where it is small.
        out = F.scaled_dot_product_attention(q, k, padded, torch.ones(B, 1, L, S, dtype=torch.bool), **settings)
        out = out * torch.ones(B, 1, L, 1, dtype=out.dtype)
    else:
        out = F.scaled_dot_product_attention(q, k, padded, is_causal=rule.causal, **settings)
    return out[..., : v.shape[-1]]


class _Beside(torch.autograd.Function):
    """x; memory that is taken for a moment, forward and back; gradients for what a score is made of besides."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, taken: tuple[int, int], *learned: Tensor) -> Tensor:  # pyrefly: ignore[bad-override]
        ctx.taken, ctx.learned = taken, learned
        torch.empty(taken[0], dtype=torch.uint8)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        torch.empty(ctx.taken[1], dtype=torch.uint8)
        return gradients[0], None, *map(torch.zeros_like, ctx.learned)  # of parameters, which ranks sum


class _Traffic:
    """Every collective: on which side of the mesh, how many bytes."""

    def __init__(self, world: World) -> None:
        self.counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        names = ("dp_replicate", "fsdp", "cp", "tp") if world.mesh is not None else ()
        self.axes: dict[str, list[str]] = {}
        for name in names:
            self.axes.setdefault(world.axis(name).get_group().group_name, []).append(name)

    def see(self, func: Any, args: Any, out: Any) -> None:
        space, name = func.namespace, func.overloadpacket.__name__
        if space in ("c10d", "_c10d_functional") and not name.startswith(("wait", "_wrap", "barrier")):
            entry = self.counts[self._axis(args, space), name.strip("_")]
            entry[0] += 1
            # Operators that are given their output have it among their arguments.
            entry[1] += max(map(_total, (*args, out)))

    def _axis(self, arguments: Sequence[Any], space: str) -> str:
        names = next((self.axes[name] for name in map(torch_private.group_name, arguments) if name in self.axes), [])
        # Sides of one size share a group: FSDP speaks by c10d, tensor and context parallelism by functional calls.
        functional = [name for name in names if (name in ("cp", "tp")) == (space == "_c10d_functional")]
        return (functional or names or ["world"])[0]

    def repeat(self, counted: Sequence[Traffic], times: int) -> None:
        for each in counted:
            entry = self.counts[each.axis, each.operation]
            entry[0] += times * each.calls
            entry[1] += times * each.bytes

    def found(self) -> tuple[Traffic, ...]:
        return tuple(Traffic(*key, *counts) for key, counts in sorted(self.counts.items()))


def _total(given: Any) -> int:
    if isinstance(given, Tensor):
        return given.numel() * given.element_size()
    return sum(map(_total, given)) if isinstance(given, (list, tuple)) else 0


def _bytes(x: Tensor) -> int:
    local = apply.local(x)
    return local.numel() * local.element_size()


def _fill_state(model: Transformer, optimizers: Sequence[Optimizer]) -> None:
    """The optimizers' state, which is there in every step but the first."""
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for one in optimizers:
        one.step()
        one.zero_grad()


def _batch(model: Transformer, rows: int, length: int, source_length: int) -> Batch:
    tokens = torch.zeros(rows, length, dtype=torch.int64)
    at = positions.plain(length, batch=rows)
    batch = Batch(tokens, at, tokens.clone(), torch.arange(rows))
    if model.config.stack != "encoder-decoder":
        return batch
    source = torch.zeros(rows, source_length, dtype=torch.int64)
    return batch._replace(source=source, source_at=positions.plain(source_length, batch=rows))


def _loss(model: Transformer, batch: Batch, dropout_key: DropoutKey, world: World) -> Tensor:
    x = model.hidden(batch.tokens, batch.at, source=batch.source, source_at=batch.source_at, dropout_key=dropout_key)
    x, target = apply.share(model, world, x, batch.target)
    logits = model.output(x).float().flatten(0, -2)
    loss = F.cross_entropy(logits, target.flatten(), ignore_index=IGNORE, reduction="sum")
    return apply.join(model, world, loss)


@contextmanager
def _group(ranks: int) -> Iterator[None]:
    if dist.is_initialized():
        raise ValueError("a measurement has a process group of its own, and this process is already in one")
    torch_private.group_of_nobody(ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()
