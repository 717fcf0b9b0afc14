"""What the processes of a run tell each other outside the model: flags, small objects, and errors that all must raise.

Without a process group there is one rank, and everything is an identity.
"""

from __future__ import annotations

import os
import pickle
import socket
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist

from ropewalk.system import started

T = TypeVar("T")
ARRIVALS, LAUNCH = "ropewalk/arrivals", "ropewalk/launch"


class Ranks:
    """All processes of the run, talking over one process group; every method is called by all of them together."""

    def __init__(self, *, many: bool, group: dist.ProcessGroup | None = None) -> None:
        """many: whether there is a process group at all. group: the one to talk over; unless given, the default."""
        self.many, self.group = many, group
        self.rank, self.size = (dist.get_rank(), dist.get_world_size()) if many else (0, 1)

    def apart(self, *, timeout: timedelta = timedelta(minutes=30)) -> Ranks:
        """The same ranks over a group of their own, on the CPU: for a thread, whose messages must not be mistaken for
        those of the training. Costs every rank a connection to every other."""
        made = dist.new_group(backend="gloo", timeout=timeout) if self.many else None
        assert made is None or isinstance(made, dist.ProcessGroup)
        return Ranks(many=self.many, group=made)

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


def meet(store: dist.Store, rank: int, size: int, timeout: float) -> dist.Store:
    """A part of torchrun's store that only the processes of this start know. torchrun keeps one store over restarts, in
    which the addresses of dead processes are still written, and its nodes do not agree on how many restarts there were
    (pytorch/pytorch#135712): each counts its own failures. So rank 0 draws a name and tells it to those who ask now.
    """
    name = uuid.uuid4().hex
    if rank:
        # Under a name of its own: an answer to a process of an earlier start cannot be taken for this one's.
        store.append(ARRIVALS, f"{name} ")  # pyrefly: ignore[missing-attribute]  every store has it, torch's stubs do not
        name = store.get(f"ropewalk/{name}").decode()
        store.add(f"ropewalk/{name}/met", 1)
        return dist.PrefixStore(name, store)
    store.append(ARRIVALS, " ")  # pyrefly: ignore[missing-attribute]
    answered: set[str] = set()
    end = time.monotonic() + timeout
    while (met := store.add(f"ropewalk/{name}/met", 0)) < size - 1:
        for each in {*store.get(ARRIVALS).decode().split()} - answered:
            store.set(f"ropewalk/{each}", name)
            answered.add(each)
        if time.monotonic() > end:
            raise TimeoutError(f"{met + 1} of {size} processes came within {timeout:g} s; look for those that did not")
        time.sleep(0.02)
    return dist.PrefixStore(name, store)


def launch_name(store: dist.Store | None) -> str:
    """A name for this start of torchrun, the same in every worker and over its restarts; empty without torchrun. Its
    --rdzv-id does not tell two starts apart: unless given it is "none". store: torchrun's, where there are others."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return ""
    if store is not None and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return store.compare_set(LAUNCH, "", uuid.uuid4().hex).decode()
    return f"{socket.gethostname()} {os.getppid()} {started(os.getppid())}"


def _sendable(error: Exception) -> Exception:
    """An error that cannot be sent to the others is sent as its words: they must not wait for it in vain."""
    try:
        pickle.dumps(error)
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
