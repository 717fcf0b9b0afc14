"""A disk that is full at any byte of a save: the checkpoint before it always loads, and the next save works again.

    OMP_NUM_THREADS=1 python -m campaigns.disk_full [--count 500]

A save writes its files one after the other; trial n lets the disk take so many bytes of them all, spread evenly from
the first to the last, and then fails as a disk does: part of a write is taken, the next fails with ENOSPC. Every tenth
fails when a file is brought to the disk, where file systems that allocate late find it out; every tenth is the kernel's
own limit on the size of a file. Every hundredth is of two ranks, of which the second finds its disk full. The estimate
that refuses such a save beforehand is told that there is room.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast
from unittest import mock

from benchmarks import bars
from campaigns import pieces
from ropewalk.distributed.world import World
from ropewalk.train.checkpoint import manifest, recorded_writer
from ropewalk.train.checkpoint.store import Checkpoints, DiskFull
from tests.train import forked, tiny_run

TRIALS = 500
SOURCES = (
    "src/ropewalk/train/checkpoint/manifest.py",
    "src/ropewalk/train/checkpoint/recorded_writer.py",
    "src/ropewalk/train/checkpoint/store.py",
    "campaigns/disk_full.py",
)


class Disk:
    """Takes so many bytes, and no more."""

    def __init__(self, room: int) -> None:
        self.room = room

    def opened(self, path: Path) -> BinaryIO:
        disk = self

        class File(io.FileIO):
            def write(self, data: Any) -> int:
                taken = bytes(data)[: disk.room]
                if data and not taken:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                disk.room -= len(taken)
                return super().write(taken)

        return cast(BinaryIO, io.BufferedWriter(File(path, "w"), 1 << 12))


@contextlib.contextmanager
def bytes_left(room: int) -> Iterator[None]:
    with mock.patch.object(recorded_writer, "opened", Disk(room).opened):
        yield


@contextlib.contextmanager
def syncs_left(room: int) -> Iterator[None]:
    done = 0

    def fsync(number: int) -> None:
        nonlocal done
        done += 1
        if done > room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with mock.patch.object(recorded_writer.os, "fsync", fsync):
        yield


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def piece(start: int, count: int) -> dict[str, Any]:
    failures: list[dict[str, Any]] = []
    kinds = {"bytes": 0, "syncs": 0, "kernel": 0, "second rank": 0}
    with tempfile.TemporaryDirectory(prefix="ropewalk-full-") as made:
        checkpoints = Checkpoints(Path(made) / "one", World.start())
        model, optimizer = tiny_run.build()
        tiny_run.step(model, optimizer, 0)
        checkpoints.save(1, model, [optimizer], {"step": 1})
        sizes = [file.stat().st_size for file in (checkpoints.folder / "step-00000001").iterdir()]
        total, largest = sum(sizes), max(sizes)
        for trial in range(start, start + count):
            position = (trial * total) // TRIALS % total
            if trial % 100 == 50:
                kinds["second rank"] += 1
                if any(forked.run(lambda rank: two_ranks(Path(made) / f"two-{trial}", rank, position), 2)):  # noqa: B023
                    failures.append({"trial": trial, "kind": "second rank", "position": position})
                shutil.rmtree(Path(made) / f"two-{trial}", ignore_errors=True)
                continue
            if trial % 10 == 3:
                kind, full = "syncs", syncs_left(trial // 10 % len(sizes))
            elif trial % 10 == 7:
                kind, full = "kernel", largest_file(position % largest)
            else:
                kind, full = "bytes", bytes_left(position)
            kinds[kind] += 1
            said = trial_of(checkpoints, model, optimizer, full, again=trial % 25 == 0)
            if said:
                failures.append({"trial": trial, "kind": kind, "position": position, "fault": said})
    return {"trials": count, "failures": failures, "kinds": kinds, "bytes": total}


def trial_of(
    checkpoints: Checkpoints, model: Any, optimizer: Any, full: contextlib.AbstractContextManager[None], *, again: bool
) -> str:
    """Step 2 fails; then step 1 is what there is, and with `again` step 2 can be saved once there is room."""
    try:
        with full:
            checkpoints.save(2, model, [optimizer], {"step": 2})
    except DiskFull as error:
        if "not saved" not in str(error):
            return f"says {error}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    else:
        return "was saved on a full disk"
    if [path.name for path in checkpoints.folder.iterdir()] != ["step-00000001"]:
        return f"left {sorted(path.name for path in checkpoints.folder.iterdir())}"
    found = checkpoints.newest()
    if found is None or found.step != 1:
        return "the checkpoint before it does not load"
    other, its = tiny_run.build(seed=1)
    checkpoints.load(found, other, [its])
    if tiny_run.weights(other) != tiny_run.weights(model):
        return "the checkpoint before it is not what was saved"
    if again:
        checkpoints.save(2, model, [optimizer], {"step": 2})
        manifest.verify(checkpoints.folder / "step-00000002")
        checkpoints._remove(checkpoints.folder / "step-00000002")
    return ""


def two_ranks(folder: Path, rank: int, position: int) -> None:
    """Both say that the disk is full, and what was there before is read by both."""
    checkpoints = Checkpoints(folder, World.start())
    model, optimizer = tiny_run.build()
    tiny_run.step(model, optimizer, 0)
    checkpoints.save(1, model, [optimizer], {"step": 1})
    try:
        with bytes_left(position % 50_000) if rank == 1 else contextlib.nullcontext():
            checkpoints.save(2, model, [optimizer], {"step": 2})
    except DiskFull:
        pass
    else:
        raise AssertionError("was saved on a full disk")
    found = checkpoints.newest()
    assert found is not None
    checkpoints.load(found, model, [optimizer])
    assert [path.name for path in folder.iterdir()] == ["step-00000001"]
    checkpoints.save(2, model, [optimizer], {"step": 2})


def whole(done: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    kinds = {f"by {kind}": sum(each["kinds"][kind] for each in done) for kind in done[0]["kinds"]}
    return (
        {"full disks that harmed or were not told": bars.bar(pieces.failures(done), 0, at_least=False)},
        {"positions": pieces.summed(done, "trials"), "bytes of a checkpoint": done[0]["bytes"], **kinds},
    )


if __name__ == "__main__":
    sys.exit(pieces.main(__doc__, "disk_full", piece, whole, trials=TRIALS, piece=250, sources=SOURCES))
