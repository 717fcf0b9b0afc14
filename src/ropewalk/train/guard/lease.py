"""Whose run a folder is: one live holder at a time, with an epoch that fences out every earlier one.

    RUN/lease.json    {"epoch", "token", "host", "boot", "space", "pid", "started"}; touched while the holder lives

A launcher that is killed leaves its workers training (they are in sessions of their own). When the run is started
again the dead launcher's lease is taken over with the next epoch, and a worker of the old one that comes to commit a
checkpoint finds that the epoch is not its own. On one machine a holder is alive if its process is; on another, if it
touches the file while it is watched. No decision rests on the clocks of two machines agreeing.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ropewalk.distributed.ranks import Ranks
from ropewalk.system import lock, started, tell

NAME = "lease.json"
BEAT = 5.0
"""Seconds between two touches; a holder on another machine that misses four of them in a row is dead."""
PATIENCE = 0.8
"""Seconds in which a holder that is being killed may still go."""


class LeaseTaken(RuntimeError):
    """Another live run has the folder."""


class LeaseLost(RuntimeError):
    """The folder belongs to a later run; nothing may be written to it."""


class Lease:
    """Held by rank 0 for all; entered and left by all ranks together."""

    def __init__(self, folder: Path, ranks: Ranks) -> None:
        self.folder, self.file = Path(folder), Path(folder) / NAME
        self.epoch = 0
        self.token = ""
        self._ranks = ranks
        self._opened: int | None = None
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self.epoch, self.token = self._ranks.on_first(self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._ranks.first and self._opened is not None:
            with _only_one(self.folder):
                if self._holds():
                    self._release(self._opened)
            os.close(self._opened)
            self._opened = None

    def _release(self, opened: int) -> None:
        ended = {"epoch": self.epoch}
        try:
            _put(self.file, ended)
        except OSError:
            # On a full disk: over what is written there, which takes no room.
            os.pwrite(opened, json.dumps(ended).ljust(os.fstat(opened).st_size).encode(), 0)

    def check(self) -> None:
        """Before anything in the folder is made to count."""
        if not self._holds():
            now = _read(self.file)
            raise LeaseLost(
                f"{self.folder} was epoch {self.epoch} here and is now {_spoken(now)}; this process writes no more to "
                "it. Two runs were started on one folder, or this one outlived its launcher"
            )

    def _holds(self) -> bool:
        now = _read(self.file)
        return now.get("epoch") == self.epoch and now.get("token") == self.token

    def _take(self) -> tuple[int, str]:
        self.folder.mkdir(parents=True, exist_ok=True)
        limit = time.monotonic() + PATIENCE
        while self._live(before := _read(self.file)):
            if time.monotonic() > limit or not _is_here(before):
                raise LeaseTaken(
                    f"{self.folder} belongs to a run that is alive: {_spoken(before)}; end that one first, or write "
                    "--out ANOTHER_FOLDER"
                )
            time.sleep(0.1)
        with _only_one(self.folder):
            if (now := _read(self.file)) != before:
                raise LeaseTaken(f"{self.folder} was taken in this moment: {_spoken(now)}")
            self.epoch, self.token = int(before.get("epoch", 0)) + 1, uuid.uuid4().hex
            _put(self.file, {"epoch": self.epoch, "token": self.token, **_self()})
            self._opened = os.open(self.file, os.O_RDWR)
        threading.Thread(target=self._beat, name="lease", daemon=True).start()
        return self.epoch, self.token

    def _beat(self) -> None:
        # By descriptor: if the file was replaced, the one that is touched is nobody's.
        while not self._ended.wait(BEAT):
            if (opened := self._opened) is not None:
                os.utime(opened)

    def _live(self, holder: dict[str, Any]) -> bool:
        if "pid" not in holder:
            return False
        if _is_here(holder):
            return started(holder["pid"]) == holder["started"]
        here = _self()
        if holder.get("host") == here["host"] and holder.get("boot") != here["boot"]:
            return False
        # Of another machine only its touches are seen: one is proof of life, none for four beats is death.
        touched, end = _touched(self.file), time.monotonic() + 4 * BEAT
        tell(f"{self.folder} was held by {_spoken(holder)}; looking for up to {4 * BEAT:g} s whether that lives")
        while time.monotonic() < end:
            time.sleep(BEAT / 10)
            if _touched(self.file) != touched:
                return bool(_read(self.file).get("pid"))
        return False


def _self() -> dict[str, Any]:
    """This process: no other has or had the same."""
    pid = os.getpid()
    return {"host": socket.gethostname(), "boot": _boot(), "space": _space(), "pid": pid, "started": started(pid)}


def _is_here(holder: dict[str, Any]) -> bool:
    """Whether its process number counts where this process's does."""
    here = _self()
    return all(holder.get(key) == here[key] for key in ("host", "boot", "space"))


def _touched(file: Path) -> int:
    """Opened for it: a network file system then asks its server, where `stat` may answer from a cache."""
    try:
        opened = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return 0
    try:
        return os.fstat(opened).st_mtime_ns
    finally:
        os.close(opened)


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _space() -> str:
    """Where process numbers count: two containers on one machine have each their own."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _spoken(holder: dict[str, Any]) -> str:
    if "pid" not in holder:
        return f"epoch {holder['epoch']}, ended" if "epoch" in holder else "nobody's"
    return f"epoch {holder['epoch']}, process {holder['pid']} on {holder.get('host')}"


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        raise LeaseTaken(f"{file} is not what a run writes there; if no run is alive, remove it") from None
    return found if isinstance(found, dict) else {}


def _put(file: Path, content: dict[str, Any]) -> None:
    partial = file.with_name(f"{file.name}.part")
    with partial.open("w", encoding="utf-8") as stream:
        json.dump(content, stream)
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(file)


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Among those that would change the lease at the same time."""
    opened = os.open(folder / f"{NAME}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    limit = time.monotonic() + PATIENCE
    try:
        while True:
            try:
                lock(opened)
                break
            except BlockingIOError:
                if time.monotonic() > limit:
                    raise LeaseTaken(f"{folder}: another process is taking it") from None
                time.sleep(0.05)
        yield
    finally:
        os.close(opened)
