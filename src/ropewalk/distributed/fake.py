"""What a step costs one rank of a world of any size: the code that trains, run on tensors that have only shapes.

A process group of N ranks that exchanges nothing, parameters and activations without memory: memory at the peak by
part, bytes of every collective and floating point operations are counted, not computed from a formula. Only the core
of attention stands in for itself: its tiles are chosen by looking at numbers, which here are not there.
"""

from __future__ import annotations

import gc
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn import functional as F
from torch.optim import AdamW, Optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from ropewalk import positions
from ropewalk.attention import Rule
from ropewalk.attention.choose import DENSE_MASK
from ropewalk.data.batch import IGNORE, Batch
from ropewalk.distributed import apply
from ropewalk.distributed.tensor import HeadsCore
from ropewalk.distributed.world import MeshConfig, World
from ropewalk.encodings import Signal
from ropewalk.models import Transformer
from ropewalk.nn import Attention, Draw


def _forward(q: Any, k: Any, v: Any, dropout: float = 0.0, causal: bool = False, **_: Any) -> int:
    return sdpa_flop_count(q, k, v) // (2 if causal else 1)


def _backward(
    gradient: Any, q: Any, k: Any, v: Any, out: Any, sums: Any, dropout: float, causal: bool, **_: Any
) -> int:
    return sdpa_backward_flop_count(gradient, q, k, v) // (2 if causal else 1)


ATTENTION = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _forward,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _backward,
}
"""What torch's counter does not know: attention of a CPU. A causal query sees half of the keys."""

Loss = Callable[[Transformer, Batch, Draw, World], Tensor]


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
    flops: int
    """Of this rank, recomputation included."""
    seconds: float
    """That the measurement took."""


def measure(
    build: Callable[[], Transformer],
    mesh: MeshConfig,
    ranks: int,
    *,
    rows: int,
    length: int,
    micro: int = 1,
    precision: apply.Precision = "float32",
    recompute: bool = False,
    optimizer: Callable[[Transformer], Sequence[Optimizer]] | None = None,
    loss: Loss | None = None,
    share_loss: bool = True,
) -> Measured:
    """rows: of one micro-batch on one rank of dp. micro: micro-batches of a step; two cost what any number costs."""
    start = time.perf_counter()
    with _group(ranks):
        world = World.start(mesh)
        model = apply.wrap(build, world, precision=precision, recompute=recompute, share_loss=share_loss)
        with FakeTensorMode(allow_non_fake_inputs=True):
            model.to_empty(device="cpu")
            model.train()
            for module in model.modules():
                if isinstance(module, Attention):
                    module.core.__class__ = FusedCore
            optimizers = [AdamW(model.parameters(), foreach=False)] if optimizer is None else optimizer(model)
            _fill_state(model, optimizers)
            batch = world.cut(_batch(model, rows, length))
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
    memory, flops, traffic = _Memory(), FlopCounterMode(display=False, custom_mapping=ATTENTION), _Traffic(world)
    memory.track_external(model, *optimizers, *(part for part in batch if isinstance(part, Tensor)))
    with memory, flops, traffic:
        for number in range(micro):
            memory.reset_mod_stats()
            apply.last(model, number == micro - 1)
            with apply.autocast(world, precision):
                value = loss(model, batch, Draw(0, 0, batch.sample), world)
            value.backward()
            del value
        apply.finish(model, world)
        apply.clip(model, 1.0, world)
        gradients = sum(_bytes(p.grad) for p in model.parameters() if p.grad is not None)
        for one in optimizers:
            one.step()
            one.zero_grad()
    parameters = sum(_bytes(p) for p in model.parameters())
    states = [value for one in optimizers for state in one.state.values() for value in state.values()]
    kept = sum(_bytes(value) for value in states if isinstance(value, Tensor))
    peak = memory.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    return Measured(
        ranks=world.size,
        parameters=parameters,
        gradients=gradients,
        optimizer=kept,
        activations=peak - parameters - gradients - kept,
        peak=peak,
        traffic=traffic.found(),
        flops=flops.get_total_flops(),
        seconds=time.perf_counter() - start,
    )


class _Memory(MemTracker):
    """Torch's tracker for the whole model alone: module by module it looks at all of them after every operation."""

    def _update_peak_stats(self, peak_state: Any) -> None:
        device = torch.device("cpu")
        if self._total() > 1.01 * self._peak_mem.get(device, 0):
            # The tracker's own hooks tie tensors into cycles, which outlive their use until somebody looks for them.
            gc.collect()
            if (now := self._total()) > self._peak_mem.get(device, 0):
                self._peak_mem[device], self._peak_mem_snap[device] = now, dict(self._curr_mem_snap[device])

    def _total(self) -> int:
        return self._curr_mem_snap.get(torch.device("cpu"), {}).get("Total", 0)

    def __enter__(self) -> _Memory:
        gc.collect()
        gc.freeze()
        super().__enter__()
        return self

    def __exit__(self, *args: Any) -> None:
        super().__exit__(*args)
        gc.unfreeze()


class FusedCore(HeadsCore):
    """Attention as one fused kernel has it: its inputs, its output, a number a query, a mask where one is needed."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, signal: Signal, rule: Rule, draw: Draw | None = None) -> Tensor:
        width = max(q.shape[-1], v.shape[-1])
        q, k, padded = (F.pad(x, (0, width - x.shape[-1])) if x.shape[-1] < width else x for x in (q, k, v))
        (B, H, L, _), S = q.shape, k.shape[2]
        settings = {"enable_gqa": H != k.shape[1]}
        if rule.causal and L != S and B * L * S <= DENSE_MASK:
            # Some of the queries meet the keys of all parts: no triangle fits, and a mask is built where it is small.
            out = F.scaled_dot_product_attention(q, k, padded, torch.ones(B, 1, L, S, dtype=torch.bool), **settings)
            out = out * torch.ones(B, 1, L, 1, dtype=out.dtype)
        else:
            out = F.scaled_dot_product_attention(q, k, padded, is_causal=rule.causal, **settings)
        return out[..., : v.shape[-1]]


class _Traffic(TorchDispatchMode):
    """Every collective: on which side of the mesh, how many bytes."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        names = ("dp_replicate", "fsdp", "cp", "tp", "tokens") if world.mesh is not None else ()
        self.axes = {world.axis(name).get_group().group_name: name for name in names}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, torch.distributed.tensor.DTensor) for kind in types):
            return NotImplemented
        out = func(*args, **(kwargs or {}))
        space, name = func.namespace, func.overloadpacket.__name__
        if space in ("c10d", "_c10d_functional") and not name.startswith(("wait", "_wrap", "barrier")):
            entry = self.counts[self._axis(args), name.strip("_")]
            entry[0] += 1
            entry[1] += max(_total(args), _total(out))
        return out

    def _axis(self, arguments: Sequence[Any]) -> str:
        for part in arguments:
            if isinstance(part, str) and part in self.axes:
                return self.axes[part]
            if isinstance(part, torch.ScriptObject) and "ProcessGroup" in str(part._type()):
                return self.axes.get(dist.ProcessGroup.unbox(part).group_name, "world")
        return "world"

    def found(self) -> tuple[Traffic, ...]:
        return tuple(Traffic(*key, *counts) for key, counts in sorted(self.counts.items()))


def _total(given: Any) -> int:
    flat, _ = torch.utils._pytree.tree_flatten(given)
    return sum(x.numel() * x.element_size() for x in flat if isinstance(x, Tensor))


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


def _batch(model: Transformer, rows: int, length: int) -> Batch:
    tokens = torch.zeros(rows, length, dtype=torch.int64)
    at = positions.plain(length, batch=rows)
    batch = Batch(tokens, at, tokens.clone(), torch.arange(rows))
    return batch._replace(source=tokens.clone(), source_at=at) if model.config.stack == "encoder-decoder" else batch


def _loss(model: Transformer, batch: Batch, draw: Draw, world: World) -> Tensor:
    x = model.hidden(batch.tokens, batch.at, source=batch.source, source_at=batch.source_at, draw=draw)
    x, target = apply.share(model, world, x, batch.target)
    logits = model.output(x).float().flatten(0, -2)
    loss = F.cross_entropy(logits, target.flatten(), ignore_index=IGNORE, reduction="sum")
    return apply.join(model, world, loss)


@contextmanager
def _group(ranks: int) -> Iterator[None]:
    if dist.is_initialized():
        raise ValueError("a measurement has a process group of its own, and this process is already in one")
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()
