"""Tensor parallelism: each rank has some of the heads and hidden features of every layer, and all of the tokens.

    attention   q, k, v by columns (heads), out by rows        mlp   up, gate by columns, down by rows

Between them nothing is exchanged; the rows' products are summed, one message forward and one backward for each of the
two (Megatron, arXiv:1909.08053, section 3). What is learned for all heads together (an encoding's bias, the norms of
queries and keys, sinks) stays whole on every rank, which then has the gradient of its own heads only: `partial_sums`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from ropewalk.distributed.torch_private import gathered, summed
from ropewalk.encodings import Encoding
from ropewalk.models import Transformer, TransformerConfig
from ropewalk.nn import MLP, AcrossHeads, Attention, Dropout
from ropewalk.nn.linear import Linear, linear


def split(model: Transformer, mesh: DeviceMesh) -> None:
    """Leaves this rank its heads and features, of a model on the meta device."""
    check(model, mesh.size())
    size, rank, group = mesh.size(), mesh.get_local_rank(), mesh.get_group()
    for module in list(model.modules()):
        if isinstance(module, Attention):
            _columns(mesh, module, "q", "k", "v")
            _rows(mesh, module, "out")
            module.heads, module.key_heads = module.heads // size, module.key_heads // size
            q, k, v = module.sizes
            module.sizes = (q // size, k // size, v // size)
            module.core.first_head = rank * module.heads
            for name in ("q_norm", "k_norm"):
                if isinstance(norm := getattr(module, name), AcrossHeads):
                    setattr(module, name, OverRanks(norm.norm, group))
            module.register_forward_pre_hook(_Entry(group), with_kwargs=True)
        elif isinstance(module, MLP):
            _columns(mesh, module, "up", "gate")
            _rows(mesh, module, "down")
            module.register_forward_pre_hook(_Entry(group), with_kwargs=True)
        elif isinstance(module, Dropout):
            module.needs_key = True


def check(model: Transformer, size: int) -> None:
    config: TransformerConfig = model.config
    if config.fused:
        raise ValueError(
            f"tp={size} cuts q, k and v by heads, and this model keeps them in one matrix; write model.fused: false"
        )
    for name in ("heads", "key_heads", "hidden"):
        if (value := getattr(config, name)) % size:
            raise ValueError(f"{name} {value} cannot be shared by tp={size} ranks; write mesh.tp: a divisor of {value}")
    for module in model.modules():
        if isinstance(module, Encoding) and any(True for _ in module.parameters(recurse=False)):
            where = module.sites
            if "embed" in where and where != {"embed"}:
                raise ValueError(
                    f"{module.config.kind} learns from token vectors and from scores at once: under tp={size} one part "
                    "of its gradient is whole and one is not; write mesh.tp: 1, or two encodings joined by chain"
                )


def partial_sums(model: Transformer) -> Iterator[nn.Parameter]:
    """Parameters that FSDP holds and whose gradient on a rank comes from its own heads."""
    for module in model.modules():
        if isinstance(module, Attention):
            for norm in (module.q_norm, module.k_norm):
                yield from () if norm is None else norm.parameters()
            if module.core.sink is not None:
                yield module.core.sink


def output_parts(model: Transformer) -> Iterator[Tensor]:
    """Parameters between the last vectors and the logits."""
    yield model.tokens.weight if model.head is None else model.head.weight
    if model.output_bias is not None:
        yield model.output_bias
    if model.transform is not None:
        yield from model.transform.parameters()


def share_output(model: Transformer, size: int) -> None:
    """Each rank computes the logits of its own share of the tokens, so has its share of the output map's gradient. A
    tied table has beside it the gradient of the tokens' vectors, whole on every rank: of that it takes a share too."""

    def shrink(gradient: Tensor) -> Tensor:
        return gradient / size

    def weaken(module: nn.Module, given: tuple[Tensor, ...], x: Tensor) -> None:
        if x.requires_grad:
            x.register_hook(shrink)

    if model.head is None:
        model.tokens.register_forward_hook(weaken)


class Columns(Linear):
    """Some of the output features."""

    def __init__(self, whole: Linear, mesh: DeviceMesh) -> None:
        super().__init__(whole.in_features, whole.out_features, whole.bias is not None, device="meta")
        self.weight = _shard(whole.weight, mesh, 0)
        if whole.bias is not None:
            self.bias = _shard(whole.bias, mesh, 0)

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, _local(self.weight), None if self.bias is None else _local(self.bias))


class Rows(Linear):
    """Some of the input features: the products are summed over the ranks, then the bias is added once."""

    def __init__(self, whole: Linear, mesh: DeviceMesh) -> None:
        super().__init__(whole.in_features, whole.out_features, whole.bias is not None, device="meta")
        self.group = mesh.get_group()
        self.weight = _shard(whole.weight, mesh, 1)
        self.bias = whole.bias

    def forward(self, input: Tensor) -> Tensor:
        out = Sum.apply(linear(input, _local(self.weight)), self.group)
        return out if self.bias is None else out + self.bias


class OverRanks(AcrossHeads):
    """A norm over the heads of all ranks: they are gathered, normalised, and each rank keeps its own."""

    def __init__(self, norm: nn.Module, group: ProcessGroup) -> None:
        super().__init__(norm)
        self.group = group

    def forward(self, x: Tensor) -> Tensor:  # (B, H, L, K)
        heads = x.shape[1]
        every = gathered(x, 1, self.group)
        first = heads * torch.distributed.get_rank(self.group)
        return super().forward(every)[:, first : first + heads]


class _Entry:
    """Before a sublayer: its input is the same on every rank, the gradients that come back are to be summed."""

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group

    def __call__(self, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        x, *rest = given
        memory = named.get("memory")
        if memory is not None:
            named = {**named, "memory": Same.apply(memory, self.group)}
        return (Same.apply(x, self.group), *rest), named


class Same(torch.autograd.Function):
    """x, whose gradient is the sum of all ranks' gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup) -> Tensor:  # pyrefly: ignore[bad-override]
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return summed(gradients[0], ctx.group), None


class Sum(torch.autograd.Function):
    """The sum of all ranks' x, whose gradient goes to each as it is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ProcessGroup) -> Tensor:  # pyrefly: ignore[bad-override]
        return summed(x, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


def _local(x: Tensor) -> Tensor:
    return x.to_local() if isinstance(x, DTensor) else x


def _columns(mesh: DeviceMesh, module: nn.Module, *names: str) -> None:
    for name in names:
        if isinstance(whole := getattr(module, name), Linear):
            setattr(module, name, Columns(whole, mesh))


def _rows(mesh: DeviceMesh, module: nn.Module, name: str) -> None:
    setattr(module, name, Rows(getattr(module, name), mesh))


def _shard(whole: Tensor, mesh: DeviceMesh, dim: int) -> nn.Parameter:
    part = whole.detach().chunk(mesh.size(), dim)[mesh.get_local_rank()].contiguous()
    return nn.Parameter(DTensor.from_local(part, mesh, [Shard(dim)], run_check=False))
