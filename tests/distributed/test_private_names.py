"""Without private names of torch.distributed: the same meshes and shards, or a clear answer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint.metadata
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from ropewalk.distributed import apply, torch_private
from ropewalk.distributed.fake import attention_flops
from ropewalk.distributed.world import AXES


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    torch_private.group_of_nobody(16)
    yield init_device_mesh("cpu", (2, 2, 2, 2), mesh_dim_names=AXES)
    dist.destroy_process_group()


def test_sides_of_a_mesh(mesh: DeviceMesh, monkeypatch: pytest.MonkeyPatch) -> None:
    want = torch_private.joined_axes(mesh, ("dp_shard", "cp"), "fsdp")
    both = torch_private.beside(mesh["dp_replicate"], want)
    monkeypatch.delattr(DeviceMesh, "_flatten")
    got = torch_private.joined_axes(mesh, ("dp_shard", "cp"), "fsdp")
    assert got.mesh.tolist() == want.mesh.tolist() == [0, 2, 4, 6]
    assert got.mesh_dim_names == want.mesh_dim_names == ("fsdp",)
    monkeypatch.delattr(DeviceMesh, "_concatenate")
    other = torch_private.beside(mesh["dp_replicate"], want)
    assert other.mesh.tolist() == both.mesh.tolist() == [[0, 2, 4, 6], [8, 10, 12, 14]]
    assert other.mesh_dim_names == both.mesh_dim_names == ("dp_replicate", "fsdp")


@pytest.mark.parametrize("rows", [7, 8, 1])
def test_a_part_of_a_tensor(mesh: DeviceMesh, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    whole = torch.randn(rows, 3)
    side = mesh["cp"]
    mine = whole[: -(-rows // 2)]
    like = DTensor.from_local(mine, side, [Shard(0)], run_check=False, shape=whole.shape, stride=whole.stride())
    assert torch.equal(torch_private.local_part(whole, like), mine)
    monkeypatch.setitem(sys.modules, "torch.distributed.tensor._utils", None)
    assert torch.equal(torch_private.local_part(whole, like), mine)


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("torch._subclasses.fake_tensor", torch_private.without_memory),
        ("torch.testing._internal.distributed.fake_pg", lambda: torch_private.group_of_nobody(2)),
        ("torch.utils._python_dispatch", lambda: torch_private.follow(print)),
        ("torch.distributed._tools.mem_tracker", torch_private.memory_tracker),
    ],
)
def test_a_step_cannot_be_counted(monkeypatch: pytest.MonkeyPatch, name: str, use: Callable[[], object]) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"has not what a step is counted with .*; install a torch from"):
        use()
    assert not dist.is_initialized()


def test_what_else_may_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.distributed.checkpoint.metadata, "_MEM_FORMAT_ENCODING")
    assert torch_private.memory_formats() is None
    monkeypatch.setattr("ropewalk.distributed.fake.cpu_attention", lambda: None)
    assert attention_flops() == {}
    monkeypatch.setattr("torch._dynamo.config", object())
    torch_private.allow_recompiles(3)
    assert apply.allow_recompiles is torch_private.allow_recompiles
