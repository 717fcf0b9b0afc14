"""Private names of torch.distributed and of what counts a step, in this file alone: apart from `ropewalk.torch_private`
because importing torch.distributed takes a while, which who only runs a model need not wait for.

None is needed to train: without it the same numbers come by public calls. `ropewalk estimate` cannot do without some,
and says so. A test of each removes the name and goes the other way.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, distribute_tensor


def allow_recompiles(more: int) -> None:
    """So many graphs of one function beside those that are allowed. Where torch has no such limit, or another name for
    it, functions past it are not compiled."""
    import torch._dynamo

    config = torch._dynamo.config
    if (limit := getattr(config, "recompile_limit", None)) is not None:
        config.recompile_limit = min(limit + more, 1024)


def memory_formats() -> type[Enum] | None:
    """The enumeration that DCP's table of contents is pickled with; None: a table that names it is refused."""
    from torch.distributed.checkpoint import metadata

    return getattr(metadata, "_MEM_FORMAT_ENCODING", None)


def joined_axes(mesh: DeviceMesh, axes: tuple[str, ...], name: str) -> DeviceMesh:
    """Some neighbouring sides of a mesh as one, on every rank together."""
    part = mesh[axes]
    try:
        return part._flatten(name)
    except AttributeError:
        pass
    names = mesh.mesh_dim_names or ()
    ranks = mesh.mesh.movedim([names.index(axis) for axis in axes], list(range(-len(axes), 0)))
    each = ranks.reshape(-1, math.prod(ranks.shape[-len(axes) :])).tolist()
    mine, _ = dist.new_subgroups_by_enumeration(each)
    assert isinstance(mine, dist.ProcessGroup)
    return DeviceMesh.from_group(mine, mesh.device_type, mesh_dim_names=(name,))


def beside(outer: DeviceMesh, inner: DeviceMesh) -> DeviceMesh:
    """A mesh of two sides, made of two meshes of one."""
    try:
        return DeviceMesh._concatenate([outer, inner])
    except AttributeError:
        pass
    # Ranks of a group are in order, so those of the inner side lie alike around each of the outer.
    here = dist.get_rank()
    ranks = [[start + rank - here for rank in inner.mesh.tolist()] for start in outer.mesh.tolist()]
    names = (*(outer.mesh_dim_names or ()), *(inner.mesh_dim_names or ()))
    groups = [outer.get_group(), inner.get_group()]
    return DeviceMesh.from_group(groups, outer.device_type, mesh=torch.tensor(ranks), mesh_dim_names=names)


def local_part(whole: Tensor, like: DTensor) -> Tensor:
    """The part of a whole tensor that this rank has of a sharded one."""
    try:
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
    except ImportError:
        # No rank sends: each cuts its own.
        return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None).to_local()
    shape, offset = compute_local_shape_and_global_offset(like.shape, like.device_mesh, like.placements)
    for dim, (size, first) in enumerate(zip(shape, offset, strict=True)):
        whole = whole.narrow(dim, first if size else 0, size)
    return whole


def gathered(x: Tensor, dim: int, group: dist.ProcessGroup) -> Tensor:
    """The parts of all ranks one after the other; the gradient of a part is the sum of all ranks' gradients of it."""
    try:
        from torch.distributed._functional_collectives import all_gather_single, all_gather_single_autograd
    except ImportError:
        return _Gathered.apply(x, dim, group)
    if x.is_floating_point():
        return all_gather_single_autograd(x.contiguous(), dim, group)
    return all_gather_single(x.contiguous(), dim, group)


class _Gathered(torch.autograd.Function):
    """`gathered` by public calls, which a compiled graph does not take in."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, group: dist.ProcessGroup) -> Tensor:  # pyrefly: ignore[bad-override]
        ctx.dim, ctx.group, ctx.size = dim, group, x.shape[dim]
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total, group=ctx.group)
        return total.split(ctx.size, ctx.dim)[dist.get_rank(ctx.group)], None, None


def summed(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The sum of all ranks' tensors, without a gradient."""
    try:
        from torch.distributed._functional_collectives import all_reduce, wait_tensor
    except ImportError:
        total = x.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total
    return wait_tensor(all_reduce(x.contiguous(), "sum", group))


def _needed(error: ImportError) -> ImportError:
    return ImportError(
        f"torch {torch.__version__} has not what a step is counted with ({error}); install a torch from 2.11 to 2.15"
    )


def without_memory() -> AbstractContextManager[Any]:
    """In it, tensors have shapes and no numbers."""
    try:
        from torch._subclasses.fake_tensor import FakeTensorMode
    except ImportError as error:
        raise _needed(error) from None
    return FakeTensorMode(allow_non_fake_inputs=True)


_counted: list[int] = []


def counted() -> int | None:
    """The ranks of a group that exchanged nothing and that this process was in. torch keeps what it learned of such a
    mesh, its rank among it, and takes it for that of an equal mesh of real ranks: each then saves the part of rank 0.
    """
    return _counted[-1] if _counted else None


def group_of_nobody(ranks: int) -> None:
    """A process group of so many ranks that exchanges nothing."""
    try:
        from torch.testing._internal.distributed.fake_pg import FakeStore
    except ImportError as error:
        raise _needed(error) from None
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    _counted.append(ranks)


def follow(see: Callable[[Any, Any, Any], None]) -> AbstractContextManager[Any]:
    """In it, see(operator, arguments, result) is told of every operator below those of sharded tensors."""
    try:
        from torch.utils._python_dispatch import TorchDispatchMode
    except ImportError as error:
        raise _needed(error) from None

    class Following(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if any(issubclass(kind, DTensor) for kind in types):
                return NotImplemented
            out = func(*args, **(kwargs or {}))
            see(func, args, out)
            return out

    return Following()


def group_name(part: Any) -> str | None:
    """Of a process group as operators are given it: by its name, or boxed."""
    if isinstance(part, str):
        return part
    if isinstance(part, torch.ScriptObject) and "ProcessGroup" in str(part._type()):
        return dist.ProcessGroup.unbox(part).group_name
    return None


def memory_tracker() -> Any:
    """Torch's tracker for the whole model alone: module by module it looks at all of them after every operation."""
    try:
        from torch.distributed._tools.mem_tracker import MemTracker
    except ImportError as error:
        raise _needed(error) from None
    device = torch.device("cpu")

    class Tracker(MemTracker):
        def _update_peak_stats(self, peak_state: Any) -> None:
            if self._total() > 1.01 * self._peak_mem.get(device, 0):
                # The tracker's own hooks tie tensors into cycles, which outlive their use until they are collected.
                gc.collect()
                if (now := self._total()) > self._peak_mem.get(device, 0):
                    self._peak_mem[device], self._peak_mem_snap[device] = now, dict(self._curr_mem_snap[device])

        def _total(self) -> int:
            return self._curr_mem_snap.get(device, {}).get("Total", 0)

        def __enter__(self) -> Tracker:
            gc.collect()
            gc.freeze()
            super().__enter__()
            return self

        def __exit__(self, *args: Any) -> None:
            super().__exit__(*args)
            gc.unfreeze()

    return Tracker()
