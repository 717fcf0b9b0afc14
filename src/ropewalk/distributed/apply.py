"""Spreads a model over the world: tensor parallel, recomputation, compilation, FSDP2, in that order, then its weights.

The loss of a rank is the sum over its own tokens divided by the number of targets of the whole step, on all ranks and
micro-batches. So gradients are summed, never averaged: one process and a thousand compute the same step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint

from ropewalk.distributed import tensor
from ropewalk.distributed.context import gather_keys
from ropewalk.distributed.start import initialise
from ropewalk.distributed.torch_private import allow_recompiles
from ropewalk.distributed.world import World
from ropewalk.encodings import Encoding
from ropewalk.models import Transformer
from ropewalk.nn import Attention, Block

Precision = Literal["float32", "bfloat16"]


def parallelise(
    build: Callable[[], Transformer] | Transformer,
    world: World,
    *,
    seed: int | None,
    precision: Precision = "float32",
    recompute: bool = False,
    compiled: bool = False,
    share_loss: bool = False,
    made: Callable[[], None] = lambda: None,
) -> Transformer:
    """The model on this rank, with its initial weights; seed=None: with none, where they will be read. Given a
    function, it is called on the meta device. made: called after each block is initialised.

    recompute: the activations of a block are computed again in the backward pass. compiled: block by block. share_loss:
    the ranks of tp, which have the same last vectors, share the tokens of the output map; then the loss must be
    computed between `share` and `join`.
    """
    model = wrap(build, world, precision=precision, recompute=recompute, compiled=compiled, share_loss=share_loss)
    model.to_empty(device=world.device)
    if seed is not None:
        initialise(model, seed, made)
    return model


def wrap(
    build: Callable[[], Transformer] | Transformer,
    world: World,
    *,
    precision: Precision = "float32",
    recompute: bool = False,
    compiled: bool = False,
    share_loss: bool = False,
) -> Transformer:
    """All of `parallelise` that needs no memory: the model stays on the meta device."""
    if isinstance(build, Transformer):
        model = build
    else:
        with torch.device("meta"):
            model = build()
    if world.tp_size > 1:
        tensor.split(model, world.axis("tp"))
        if share_loss:
            tensor.share_output(model, world.tp_size)
            model.__dict__["shares_loss"] = True
    if world.cp_size > 1:
        for attention in (m for m in model.modules() if isinstance(m, Attention)):
            gather_keys(attention, world.axis("cp").get_group())
    if compiled:
        # Blocks of one kind share their graphs; a model may have as many kinds as blocks.
        allow_recompiles(len(list(blocks(model))))
    for block in blocks(model):
        # On `forward` itself and not around the module: names of parameters stay, and FSDP's hooks stay outside.
        if compiled:
            block.__dict__["forward"] = torch.compile(block.forward)
        if recompute:
            # A dropout mask is a function of its place: there is no state of a generator to keep.
            block.__dict__["forward"] = partial(
                checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False
            )
    if world.mesh is not None:
        _shard(model, world, precision)
    return model


def _shard(model: Transformer, world: World, precision: Precision) -> None:
    whole = {parameter for _, parameter in unsharded(model)}
    if precision == "bfloat16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)
    else:
        policy = MixedPrecisionPolicy(cast_forward_inputs=False)
    for module in (*blocks(model), model):
        fully_shard(module, mesh=world.shards, mp_policy=policy, ignored_params=whole)
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    # The loss reads the last vectors and the output map itself, and never asks for all logits at once.
    register_fsdp_forward_method(model, "hidden")


def blocks(model: Transformer) -> Iterator[Block]:
    return (module for module in model.modules() if isinstance(module, Block))


def unsharded(model: Transformer) -> Iterator[tuple[str, nn.Parameter]]:
    """What is learned of an attention bias: a few numbers for each head, kept whole and in float32 on every rank. FSDP
    would round them to bfloat16, and does not take scalars."""
    for prefix, module in model.named_modules():
        if isinstance(module, Encoding) and "embed" not in module.sites:
            for name, parameter in module.named_parameters(recurse=False):
                yield f"{prefix}.{name}", parameter


def autocast(world: World, precision: Precision) -> AbstractContextManager[Any]:
    """What the forward pass runs in. Sharded models are cast by FSDP itself."""
    if precision == "float32" or world.mesh is not None:
        return nullcontext()
    return torch.autocast(world.device.type, torch.bfloat16)


def last(model: nn.Module, is_last: bool) -> None:
    """Before each backward pass of a step: whether it is the last one, after which copies of the shards add up theirs.
    Within a copy gradients are reduced in every pass: kept until the last, each rank would hold all of them whole."""
    if isinstance(model, FSDPModule):
        model.set_requires_all_reduce(is_last)


def share(model: Transformer, world: World, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Last vectors (B, L, D) and targets (B, L), or this rank's share of their tokens: (N, D) and (N)."""
    if not shares_loss(model):
        return x, target
    axis = world.axis("tp")
    flat, asked = tensor.Same.apply(x, axis.get_group()).flatten(0, 1), target.flatten()
    first, end = (len(asked) * rank // world.tp_size for rank in (world.tp_rank, world.tp_rank + 1))
    return flat[first:end], asked[first:end]


def join(model: Transformer, world: World, loss: Tensor) -> Tensor:
    """The summed loss of all shares, the same on every rank of tp."""
    return tensor.Sum.apply(loss, world.axis("tp").get_group()) if shares_loss(model) else loss


def shares_loss(model: Transformer) -> bool:
    return model.__dict__.get("shares_loss", False)


def finish(model: Transformer, world: World) -> None:
    """After the last backward pass of a step: sums what FSDP does not."""
    if world.mesh is None:
        return
    whole = [parameter.grad for _, parameter in unsharded(model) if parameter.grad is not None]
    _sum_together(whole, None)
    if world.tp_size > 1:
        partly = [local(parameter.grad) for parameter in tensor.partial_sums(model) if parameter.grad is not None]
        _sum_together(partly, world.axis("tp").get_group())
        for parameter in tensor.output_parts(model) if shares_loss(model) else ():
            if parameter.grad is not None:
                dist.all_reduce(local(parameter.grad), group=world.axis("tp").get_group())


def _sum_together(gradients: list[Tensor], group: dist.ProcessGroup | None) -> None:
    """One message for many small tensors, which get the sum in place."""
    if not gradients:
        return
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat, group=group)
    for gradient, part in zip(gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


@torch.no_grad()
def clip(model: nn.Module, limit: float | None, world: World) -> Tensor:
    """Scales all gradients so that their norm is at most `limit`, and returns what it was: the same on every rank."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    # Squares summed by who holds the rest of a tensor: nobody, the ranks of fsdp, those and the ranks of tp.
    squares = torch.zeros(3, dtype=torch.float64, device=world.device)
    for gradient in gradients:
        where = 0 if not isinstance(gradient, DTensor) else 2 if "tp" in _axes(gradient) else 1
        squares[where] += torch.linalg.vector_norm(local(gradient), dtype=torch.float64) ** 2
    if world.mesh is not None:
        dist.all_reduce(squares[1:], group=world.axis("fsdp").get_group())
        # What ranks of tp hold alike is taken as the mean of theirs: were it not the same, all would know.
        squares[1] /= world.tp_size
        dist.all_reduce(squares[1:], group=world.axis("tp").get_group())
    norm = squares.sum().sqrt().to(torch.float32)
    if limit is not None:
        # A norm that is not finite would spread to every gradient, and nobody could say where it came from.
        factor = torch.where(norm.isfinite(), (limit / (norm + 1e-6)).clamp(max=1.0), 1.0)
        for gradient in gradients:
            local(gradient).mul_(factor)
    return norm


def _axes(x: DTensor) -> tuple[str, ...]:
    return x.device_mesh.mesh_dim_names or ()


def local(x: Tensor) -> Tensor:
    return x.to_local() if isinstance(x, DTensor) else x
