"""The ranks of a run talking about files and flags, beside the training and never mixed up with its collectives.

A group of its own (gloo, on the CPU), so that a thread which writes a checkpoint cannot take an answer that was meant
for the step. Without a process group there is one rank, and everything is an identity.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")


class Ranks:
    def __init__(self, *, timeout: timedelta = timedelta(minutes=30)) -> None:
        """Made by all ranks together."""
        self.many = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if self.many else 0
        self.size = dist.get_world_size() if self.many else 1
        self.group: dist.ProcessGroup | None = None
        if self.many:
            made = dist.new_group(backend="gloo", timeout=timeout)
            assert isinstance(made, dist.ProcessGroup)
            self.group = made

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, value: T) -> T:
        """Rank 0's value, on every rank."""
        if not self.many:
            return value
        box: list[Any] = [value]
        dist.broadcast_object_list(box, src=0, group=self.group)
        return box[0]

    def gather(self, value: T) -> list[T]:
        """The values of all ranks, in their order, on every rank."""
        if not self.many:
            return [value]
        box: list[Any] = [None] * self.size
        dist.all_gather_object(box, value, group=self.group)
        return box

    def on_first(self, act: Callable[[], T]) -> T:
        """What rank 0 gets by doing this; what it raises, all raise."""
        value: Any = None
        failure: Exception | None = None
        if self.first:
            try:
                value = act()
            except Exception as error:  # whatever it was: the others wait for it
                failure = _sendable(error)
        value, failure = self.share((value, failure))
        if failure is not None:
            raise failure
        return value

    def on_all(self, act: Callable[[], T]) -> list[T]:
        """What each rank gets by doing this; if one raises, all raise the first one's."""
        value: Any = None
        failure: Exception | None = None
        try:
            value = act()
        except Exception as error:
            failure = _sendable(error)
        told = self.gather((value, failure))
        for _, each in told:
            if each is not None:
                raise each
        return [each for each, _ in told]

    def most(self, value: int) -> int:
        """The largest of all ranks' numbers."""
        if not self.many:
            return value
        box = torch.tensor(value, dtype=torch.int64)
        dist.all_reduce(box, op=dist.ReduceOp.MAX, group=self.group)
        return int(box)


def _sendable(error: Exception) -> Exception:
    """An error that cannot be sent to the others is sent as its words: they must not wait for it in vain."""
    try:
        pickle.dumps(error)
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


_shared: tuple[object, Ranks] | None = None


def shared() -> Ranks:
    """The one group of the training thread: a group costs every rank a connection to every other."""
    global _shared
    world = dist.group.WORLD if dist.is_available() and dist.is_initialized() else None
    if _shared is None or _shared[0] is not world:
        _shared = (world, Ranks())
    return _shared[1]
