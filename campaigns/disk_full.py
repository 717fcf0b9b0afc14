"""A disk that is full at any byte of a save: the checkpoint before it always loads, and the next save works again.

    OMP_NUM_THREADS=1 python -m campaigns.disk_full [--count 500]

A save writes its files one after the other; trial n lets the disk take so many bytes of them all, spread evenly from
the first to the last, and then fails as a disk does: part of a write is taken, the next fails with ENOSPC. Every tenth
fails when a file is brought to the disk, where file systems that allocate late find it out; every tenth is the kernel's
own limit on the size of a file. Every hundredth is of two ranks, of which the second finds its disk full. The estimate
that refuses such a save beforehand is told that there is room.

The last 40 trials are runs: `ropewalk train` on a real file system of 2 MiB, one rank and two, which somebody fills at
some step and frees later. The run goes on, saves again once there is room, comes to its end, and every loss is that
of the run on a disk with room. Where file systems cannot be mounted, these are left out, and the result says so.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast
from unittest import mock

from benchmarks import bars
from campaigns import pieces
from ropewalk.distributed.world import World
from ropewalk.train.checkpoint import manifest, recorded_writer
from ropewalk.train.checkpoint.store import Checkpoints, DiskFull
from tests.train import forked, small_recipe, tiny_run

TRIALS, RUNS, STEPS = 500, 40, 40
SOURCES = (
    "src/ropewalk/train/checkpoint",
    "src/ropewalk/train/loop.py",
    "src/ropewalk/train/metrics.py",
    "campaigns/disk_full.py",
    "tests/train/forked.py",
    "tests/train/small_recipe.py",
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
    if start >= TRIALS:
        return runs(start - TRIALS, count)
    failures: list[dict[str, Any]] = []
    kinds = {"bytes": 0, "syncs": 0, "kernel": 0, "second rank": 0, "runs": 0}
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


def runs(start: int, count: int) -> dict[str, Any]:
    forked.warm()
    kinds, failures = {"bytes": 0, "syncs": 0, "kernel": 0, "second rank": 0, "runs": 0}, []
    said: dict[str, Any] = {"trials": 0, "failures": failures, "kinds": kinds, "bytes": 0}
    with tempfile.TemporaryDirectory(prefix="ropewalk-full-") as made:
        wanted: dict[int, Any] = {}
        for trial in range(start, start + count):
            ranks = 1 + trial % 2
            with small_disk(Path(made)) as disk:
                if disk is None:
                    return said | {"left out": "file systems cannot be mounted here"}
                if ranks not in wanted:
                    one = Run(Path(made) / f"alone-{ranks}", ranks, trial % 4 > 1)
                    one.wait()
                    wanted[ranks] = small_recipe.losses(one.out)
                fault = filled(Run(disk, ranks, trial % 4 > 1), disk, random.Random(trial), wanted[ranks])
            said["trials"] += 1
            kinds["runs"] += 1
            if fault:
                failures.append({"trial": TRIALS + trial, "kind": "run", "ranks": ranks, "fault": fault})
    return said


class Run:
    """`ropewalk train`, started."""

    def __init__(self, folder: Path, ranks: int, asynchronous: bool) -> None:
        folder.mkdir(exist_ok=True)
        self.out, self.log = folder / "run", folder.with_name(f"{folder.name}.log")
        recipe = folder.with_name(f"{folder.name}.yaml")
        save = {"every": 4, "keep": 2, "asynchronous": asynchronous}
        recipe.write_text(small_recipe.text(small_recipe.recipe(STEPS, save=save)), encoding="utf-8")
        arguments = ["train", str(recipe), "--out", str(self.out), "--quiet"]
        self.pids, self.codes = forked.command(arguments, ranks, self.log), []

    def step(self) -> int:
        return max(small_recipe.losses(self.out), default=0)

    def wait(self) -> list[int]:
        self.codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in self.pids]
        return self.codes


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path | None]:
    place = folder / "disk"
    place.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", place]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def filled(run: Run, disk: Path, random_: random.Random, wanted: dict[int, list[float]]) -> str:
    """Somebody fills the disk at some step, and frees it after a save has failed."""
    at = random_.randrange(1, STEPS - 12)
    theirs = disk / "theirs"
    while run.step() < at:
        time.sleep(0.002)
    time.sleep(random_.uniform(0.0, 0.05))
    with contextlib.suppress(OSError), theirs.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    end = time.monotonic() + 60
    while "is not saved" not in run.log.read_text(errors="replace") and time.monotonic() < end:
        time.sleep(0.005)
    time.sleep(random_.uniform(0.0, 0.3))
    theirs.unlink()
    if any(run.wait()):
        return f"ended with {run.codes}: {run.log.read_text()[-500:]}"
    if "is not saved" not in run.log.read_text():
        return "nobody said that the disk was full"
    if small_recipe.losses(run.out) != wanted:
        return "losses are missing or differ"
    manifest.verify(run.out / "checkpoints" / f"step-{STEPS:08d}")
    return ""


def whole(done: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    kinds = {f"by {kind}": sum(each["kinds"][kind] for each in done) for kind in done[0]["kinds"]}
    found = {"full disks that harmed or were not told": bars.bar(pieces.failures(done), 0, at_least=False)}
    if not any("left out" in each for each in done):
        found["runs on a real file system"] = bars.bar(kinds["by runs"], RUNS, at_least=True)
    return (
        found,
        {"positions": pieces.summed(done, "trials"), "bytes of a checkpoint": done[0]["bytes"], **kinds},
    )


if __name__ == "__main__":
    sys.exit(pieces.main(__doc__, "disk_full", piece, whole, trials=TRIALS + RUNS, piece=100, sources=SOURCES))
