"""The processes of one run, laid out as a mesh, and what they say to each other outside the model.

    world size = dp_replicate x dp_shard x cp x tp

dp: each reads other sequences (replicate: whole copies of the shards, shard: FSDP). cp: each reads another part of the
same sequences. tp: each has other heads of the same tokens. One process without torchrun has no process group at all.
"""

from __future__ import annotations

import gc
import os
from datetime import timedelta
from typing import Self

import torch
import torch.distributed as dist
from pydantic import Field
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from ropewalk.data.batch import Batch
from ropewalk.distributed.ranks import Ranks, launch_name, meet
from ropewalk.distributed.torch_private import beside, counted, joined_axes
from ropewalk.positions import Positions
from ropewalk.settings import Settings

AXES = ("dp_replicate", "dp_shard", "cp", "tp")


class NoDevice(RuntimeError):
    """A device that this machine or this torch does not have."""


class MeshConfig(Settings):
    """How the processes of a run are laid out."""

    dp_replicate: int = Field(default=1, gt=0)
    """Copies of the sharded model, each on sequences of its own."""
    dp_shard: int | None = Field(default=None, gt=0)
    """Ranks that share one copy of the weights (FSDP), each on sequences of its own; null: all that are left."""
    cp: int = Field(default=1, gt=0)
    """Ranks that share the tokens of one sequence."""
    tp: int = Field(default=1, gt=0)
    """Ranks that share the heads and hidden features of every layer."""

    def sizes(self, world: int) -> tuple[int, int, int, int]:
        """The four sides of the mesh for this many processes."""
        others = self.dp_replicate * self.cp * self.tp
        shard = max(1, world // others) if self.dp_shard is None else self.dp_shard
        if others * shard != world:
            sides = " x ".join(
                f"{name} {size}" for name, size in zip(AXES, (self.dp_replicate, shard, self.cp, self.tp), strict=True)
            )
            raise ValueError(
                f"the mesh {sides} needs {others * shard} processes, there are {world}; start "
                f"torchrun --nproc-per-node {others * shard}, or change mesh.dp_shard, mesh.cp or mesh.tp"
            )
        return self.dp_replicate, shard, self.cp, self.tp


class World(Ranks):
    """This process among the others. `mesh` is None where it is alone."""

    def __init__(self, mesh: DeviceMesh | None, device: torch.device, *, launch: str = "") -> None:
        """launch: which start of torchrun this is; see `launch_name`."""
        super().__init__(many=mesh is not None)
        self.mesh, self.device, self.launch = mesh, device, launch
        at = dict.fromkeys(AXES, 0) if mesh is None else {name: mesh.get_local_rank(name) for name in AXES}
        count = dict.fromkeys(AXES, 1) if mesh is None else dict(zip(AXES, mesh.shape, strict=True))
        self.dp_rank = at["dp_replicate"] * count["dp_shard"] + at["dp_shard"]
        self.dp_size = count["dp_replicate"] * count["dp_shard"]
        self.dp_replicate = count["dp_replicate"]
        self.cp_rank, self.cp_size = at["cp"], count["cp"]
        self.tp_rank, self.tp_size = at["tp"], count["tp"]
        self._axes: dict[str, DeviceMesh] = {}
        if mesh is not None:
            self._axes = {name: mesh[name] for name in AXES}
            # Who holds the shards of one copy of the weights.
            self._axes["fsdp"] = joined_axes(mesh, ("dp_shard", "cp"), "fsdp")

    @classmethod
    def start(cls, config: MeshConfig | None = None, device: str = "cpu", *, timeout: float = 1800) -> Self:
        """Joins the processes that torchrun started; without it, or for one process, there is nothing to join.

        timeout: seconds that a process waits for the others before it gives up.
        """
        size = int(os.environ.get("WORLD_SIZE", "1"))
        sizes = (config or MeshConfig()).sizes(dist.get_world_size() if dist.is_initialized() else size)
        place = _present(device)
        if place.type == "cuda":
            place = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
            torch.cuda.set_device(place)
        launch = ""
        if size == 1 and not dist.is_initialized():
            return cls(None, place, launch=launch_name(None))
        if not dist.is_initialized():
            if (ranks := counted()) is not None:
                raise RuntimeError(
                    f"this process has estimated a step of {ranks} ranks, and torch would take what it keeps of them "
                    f"for the {size} real ranks that it is to join; run ropewalk estimate in a process of its own"
                )
            limit = timedelta(seconds=timeout)
            store, rank, size = next(dist.rendezvous("env://", timeout=limit))
            backend = "nccl" if place.type == "cuda" else "gloo"
            launch, met = launch_name(store), meet(store, rank, size, timeout)
            dist.init_process_group(backend, store=met, rank=rank, world_size=size, timeout=limit)
        return cls(init_device_mesh(place.type, sizes, mesh_dim_names=AXES), place, launch=launch)

    def stop(self) -> None:
        """Leaves the others. The threads of gloo end with the last reference to their group, and one that still frees
        a tensor while the interpreter goes down takes the process with it (SIGABRT, which torchrun counts as a failure
        of a run that had succeeded): so the groups are let go of here, and what held them in a circle is collected."""
        if self.mesh is not None and dist.is_initialized():
            dist.destroy_process_group()
            self.mesh, self.many = None, False
            self._axes.clear()
            gc.collect()

    def axis(self, name: str) -> DeviceMesh:
        """One side of the mesh: dp_replicate, dp_shard, cp, tp; fsdp = dp_shard x cp."""
        if name not in self._axes:
            raise ValueError(f"one process has no mesh, so no {name}; check world.mesh first")
        return self._axes[name]

    @property
    def shards(self) -> DeviceMesh:
        """The mesh FSDP works on: fsdp, or dp_replicate x fsdp."""
        if self.dp_replicate == 1:
            return self.axis("fsdp")
        return beside(self.axis("dp_replicate"), self.axis("fsdp"))

    def sum(self, x: Tensor) -> Tensor:
        """The sum over all who hold other tokens (dp x cp): of losses, of counts. The same bits on every rank, so that
        all decide alike: ranks of tp, which hold the same number, add it once. The argument is left as it is."""
        if self.mesh is None:
            return x
        # On the device of the group: nccl has no connections for tensors of the CPU.
        total = (x.detach() if self.tp_rank == 0 else torch.zeros_like(x)).to(self.device, copy=True)
        dist.all_reduce(total)
        return total

    def agree(self, flag: bool) -> bool:
        """True on every rank where it is true on any."""
        if self.mesh is None:
            return flag
        raised = torch.tensor(int(flag), device=self.device)
        dist.all_reduce(raised, op=dist.ReduceOp.MAX)
        return bool(raised)

    def same(self, x: Tensor) -> bool:
        """Whether every rank holds the same numbers, bit for bit (a NaN equals nothing, itself included)."""
        if self.mesh is None:
            return True
        mine = x.detach().to(self.device)
        first = mine.clone()
        dist.broadcast(first, src=0)
        return not self.agree(not torch.equal(first, mine))

    def cut(self, batch: Batch) -> Batch:
        """This rank's part of every sequence under context parallelism; the whole batch without it."""
        if self.cp_size == 1:
            return batch
        mine = self._places(batch.tokens.shape[1], "tokens")
        cut = batch._replace(tokens=batch.tokens[:, mine], at=self._at(batch.at), target=batch.target[:, mine])
        if batch.source is None or batch.source_at is None:
            return cut
        theirs = self._places(batch.source.shape[1], "source tokens")
        return cut._replace(source=batch.source[:, theirs], source_at=self._at(batch.source_at))

    def _at(self, whole: Positions) -> Positions:
        length = whole.shape[1]
        everyone = torch.cat([self._zigzag(length, rank) for rank in range(self.cp_size)])
        return whole.take(self._places(length, "positions")).know(whole=whole.take(everyone))

    def _places(self, length: int, what: str) -> Tensor:
        if length % (2 * self.cp_size):
            raise ValueError(
                f"sequences of {length} {what} cannot be cut into 2 x cp = {2 * self.cp_size} equal pieces; "
                f"make the length a multiple of {2 * self.cp_size}, or mesh.cp smaller"
            )
        return self._zigzag(length, self.cp_rank)

    def _zigzag(self, length: int, rank: int) -> Tensor:
        """Piece r and piece 2 cp - 1 - r: of a causal triangle every rank then has the same area."""
        pieces = torch.arange(length).view(2 * self.cp_size, -1)
        return pieces[[rank, 2 * self.cp_size - 1 - rank]].flatten()


def _present(device: str) -> torch.device:
    found = torch.accelerator.current_accelerator(check_available=True)
    there = {"cpu": 1} if found is None else {"cpu": 1, found.type: torch.accelerator.device_count()}
    kind, _, number = device.partition(":")
    if kind in there and (not number or (number.isdecimal() and int(number) < there[kind])):
        return torch.device(device)
    listed = " and ".join(kind if count == 1 else f"{kind} (0 to {count - 1})" for kind, count in there.items())
    raise NoDevice(f"there is no device {device!r} here; torch {torch.__version__} finds {listed}")
