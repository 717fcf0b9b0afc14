"""Checkpoints that can be trusted: a folder is there whole and verified, or it is not there.

    RUN/checkpoints/step-00000100/{__RANK_0.distcp, .metadata, state.json, manifest.json}

Saved: DCP writes into tmp-..., every file is on the disk and in the manifest, the manifest is on the disk, the lease is
still ours; then one rename, and only then older ones go, but none that holds a file `keep`. Loaded: the newest folder
whose every byte is as the manifest says, or the one before it, and it is said why. Tensors can be read by another
number of ranks on another mesh.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.optim import Optimizer

from ropewalk import crash
from ropewalk.checkpoints.files.run_folder import committed
from ropewalk.distributed.ranks import Ranks
from ropewalk.system import tell
from ropewalk.train.checkpoint import fused, manifest, recorded_writer, tensors
from ropewalk.train.checkpoint.manifest import Broken, Digest, Manifest
from ropewalk.train.checkpoint.recorded_writer import NO_ROOM, RecordedFiles, RecordedWriter
from ropewalk.train.checkpoint.restricted_reader import RestrictedReader
from ropewalk.train.guard.lease import Lease

POINTS = (
    "save.folder",
    *recorded_writer.POINTS,
    "save.tensors",
    "save.state",
    "save.manifest",
    "save.synced",
    "save.checked",
    "save.aside",
    "save.renamed",
    "save.committed",
    "prune.aside",
    "prune.removed",
)
STATE = "state.json"
KEEP = "keep"
"""An empty file in a checkpoint that is not pruned: in it and not in the settings, which a resumed run may lack."""
MAKE_ROOM = "Make room; if the run has ended by then, continue with --resume"
# What torch's container adds to a tensor, and what the rest of a checkpoint takes.
PER_TENSOR, BESIDE = 2 << 10, 256 << 10


class Found(NamedTuple):
    """A verified checkpoint."""

    step: int
    folder: Path
    manifest: Manifest
    state: dict[str, Any]


class DiskFull(OSError):
    """No room for a checkpoint. Those that were there are whole."""


class NotFinite(FloatingPointError):
    """Weights with a NaN, which no checkpoint may hold."""


class SaveFailed(RuntimeError):
    """A checkpoint could not be written. Those that were there are whole."""


class Checkpoints:
    """Made by all ranks together, and every method is called by all of them."""

    def __init__(
        self, folder: Path, ranks: Ranks, *, keep: int = 2, lease: Lease | None = None, asynchronous: bool = False
    ) -> None:
        if keep < 2:
            raise ValueError(f"keep={keep}: two checkpoints at least, one may turn out to be damaged")
        self.folder, self.keep, self.lease = Path(folder), keep, lease
        self.ranks = ranks.apart()
        self.broken: set[Path] = set()
        self._thread = ThreadPoolExecutor(1, "checkpoint") if asynchronous else None
        self._pending: Future[None] | None = None
        self.ranks.on_first(self._prepare)

    def save(
        self,
        step: int,
        model: nn.Module,
        optimizers: Sequence[Optimizer],
        state: dict[str, Any],
        *,
        milestone: bool = False,
    ) -> None:
        """The state of this moment, also where it is written later. Raises what the save before it ended with.

        milestone: it stays when others are pruned.
        """
        self.wait()
        text = json.dumps(state)
        held = tensors.collect(model, optimizers)
        self._refuse_not_finite(step, held)
        partial = self.ranks.on_first(lambda: self._begin(step, held))
        if self._thread is None:
            self._write(step, held, text, partial, milestone)
        else:
            copy = BlockingAsyncStager().stage(held)
            self._pending = self._thread.submit(self._write, step, copy, text, partial, milestone)

    def wait(self) -> None:
        """Until the save that is under way is committed."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def finish(self) -> None:
        """As `wait`, for one who is about to raise something else: what goes wrong here is only said."""
        try:
            self.wait()
        except Exception as error:
            if self.ranks.first:
                tell(str(error))

    def newest(self) -> Found | None:
        """The newest that is whole."""
        return next(self.verified(), None)

    def verified(self) -> Iterator[Found]:
        """Those that are whole, newest first; skipped ones are named on stderr, with the file that is wrong."""
        self.wait()
        for step, folder in reversed(self.ranks.on_first(lambda: committed(self.folder))):
            try:
                held = self.ranks.on_first(lambda folder=folder: manifest.read(folder))
                if held.step != step:
                    raise Broken(folder / manifest.NAME, f"is of step {held.step}")
                self.ranks.on_first(lambda folder=folder, held=held: manifest.check_sizes(folder, held.files))
                names = sorted(held.files)[self.ranks.rank :: self.ranks.size]
                self.ranks.on_all(
                    lambda folder=folder, held=held, names=names: manifest.check_contents(folder, held, names)
                )
                state = self.ranks.on_first(lambda folder=folder: json.loads((folder / STATE).read_bytes()))
                yield Found(step, folder, held, state)
            except Broken as fault:
                self.broken.add(folder)
                if self.ranks.first:
                    tell(f"checkpoint {folder.name} is damaged and skipped: {fault}")

    def load(self, found: Found, model: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, Any]:
        """Tensors into the model and its optimizers, whatever their mesh; returns the state saved beside them."""
        reader = RestrictedReader(found.folder, found.manifest.files)
        contents = reader.read_metadata()
        saved: dict[str, Any] = contents.state_dict_metadata
        states = tensors.remembered(contents)
        ours = {tensors.of_tensor(key): tensor for key, tensor in tensors.of_model(model).items()}
        cut = fused.cuts(ours, [tensors.of_tensor(key) for key in saved if key.startswith("model.")])
        target = tensors.room(model, optimizers, contents, cut)

        def read(into: dict[str, Tensor]) -> None:
            dcp.load(into, storage_reader=reader, process_group=self.ranks.group, no_dist=not self.ranks.many)

        def whole(name: str) -> Tensor:
            held = {name: torch.zeros(saved[name].size, dtype=saved[name].properties.dtype)}
            read(held)
            return held[name]

        try:
            with quiet():
                read(target)
                for each in cut:
                    target |= fused.read(each, ours, states, saved, whole)
        except CheckpointException as error:
            cause = next(cause for cause, _ in error.failures.values())
            raise RuntimeError(f"{found.folder} is whole and could not be read: {cause}") from cause
        tensors.give_back(model, optimizers, target)
        return found.state

    def _prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.lease is not None:
            # Whoever had the lease before may be about to rename one of these: after this it cannot.
            self._sweep()

    def _refuse_not_finite(self, step: int, held: dict[str, Tensor]) -> None:
        wrong = sorted({name for each in self.ranks.gather(tensors.not_finite(held)) for name in each})
        if wrong:
            raise NotFinite(
                f"step {step} is not saved: {wrong[0]} holds numbers that are not finite"
                + (f", and {len(wrong) - 1} tensors more" if len(wrong) > 1 else "")
                + "; the checkpoints before it are as they were, go back to the newest by --resume"
            )

    def _begin(self, step: int, held: dict[str, Tensor]) -> Path:
        if self.lease is not None:
            self.lease.check()
        needed = tensors.weight(held) + PER_TENSOR * len(held) * self.ranks.size + BESIDE
        self.folder.mkdir(parents=True, exist_ok=True)
        free = free_bytes(self.folder)
        if free < needed:
            raise DiskFull(
                NO_ROOM[0],
                f"step {step} is not saved: it takes {needed:,} bytes and {free:,} are free. {MAKE_ROOM}",
                os.fspath(self.folder),
            )
        partial = self.folder / f"tmp-{step:08d}-{uuid.uuid4().hex}"
        partial.mkdir()
        crash.here("save.folder")
        return partial

    def _write(self, step: int, held: dict[str, Tensor], text: str, partial: Path, milestone: bool) -> None:
        writer = RecordedWriter(partial)
        try:
            with quiet():
                dcp.save(held, storage_writer=writer, process_group=self.ranks.group, no_dist=not self.ranks.many)
            files: dict[str, Digest] = {}
            for each in self.ranks.gather(writer.files.written):
                files |= each
            crash.here("save.tensors")
            self.ranks.on_first(lambda: self._commit(step, partial, files, text, milestone))
        except CheckpointException as error:
            causes = [*self.ranks.gather(writer.files.failure), *(cause for cause, _ in error.failures.values())]
            self._give_up(step, partial, causes)
        except OSError as error:
            self._give_up(step, partial, [error])
        self.ranks.on_first(self._prune)

    def _give_up(self, step: int, partial: Path, causes: Sequence[BaseException | None]) -> NoReturn:
        if self.ranks.first:
            shutil.rmtree(partial, ignore_errors=True)
        found = [cause for cause in causes if isinstance(cause, OSError)] or [c for c in causes if c is not None]
        for cause in found:
            if isinstance(cause, OSError) and cause.errno in NO_ROOM:
                says = f"step {step} is not saved: {cause.strerror}; the checkpoints before it are whole. {MAKE_ROOM}"
                raise DiskFull(cause.errno, says, os.fspath(self.folder)) from cause
        raise SaveFailed(f"step {step} is not saved, the checkpoints before it are whole: {found[0]}") from found[0]

    def _commit(self, step: int, partial: Path, written: dict[str, Digest], text: str, milestone: bool) -> None:
        files = RecordedFiles()
        files.put(partial / STATE, text.encode())
        crash.here("save.state")
        whole = Manifest(step, self.ranks.size, written | files.written)
        if milestone:
            files.put(partial / KEEP, b"")  # not in the manifest: whoever removes it lets a whole checkpoint go
        files.put(partial / manifest.NAME, manifest.spelled(whole))
        crash.here("save.manifest")
        sync(partial)
        crash.here("save.synced")
        if self.lease is not None:
            self.lease.check()
        crash.here("save.checked")
        final = self.folder / f"step-{step:08d}"
        if final.exists():
            # A folder cannot be put over another at once; between the two renames the old one can still be found.
            aside = final.with_name(f"{final.name}.replaced")
            self._remove(aside)
            final.rename(aside)
            crash.here("save.aside")
        partial.rename(final)
        crash.here("save.renamed")
        sync(self.folder)
        self.broken.discard(final)
        crash.here("save.committed")

    def _prune(self) -> None:
        """The newest stay, as many as are kept, and milestones; a damaged one is none of them."""
        if self.lease is not None:
            self.lease.check()
        kept: set[int] = set()
        for step, folder in reversed(committed(self.folder)):
            wanted = len(kept) < self.keep or (folder / KEEP).exists()
            if wanted and step not in kept and self._stands(folder):
                kept.add(step)
            elif kept:
                self._remove(folder)

    def _stands(self, folder: Path) -> bool:
        try:
            manifest.check_sizes(folder, manifest.read(folder).files)
        except Broken:
            return False
        return folder not in self.broken

    def _sweep(self) -> None:
        for path in self.folder.glob("tmp-*"):
            self._remove(path)

    def _remove(self, folder: Path) -> None:
        """Renamed first: half a folder must not have a checkpoint's name."""
        away = self.folder / f"tmp-removed-{uuid.uuid4().hex}"
        try:
            folder.rename(away)
        except FileNotFoundError:
            return
        crash.here("prune.aside")
        shutil.rmtree(away, ignore_errors=True)
        crash.here("prune.removed")


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def sync(path: Path) -> None:
    """A file, or the names in a folder, on the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def quiet() -> Iterator[None]:
    """DCP warns where there is no process group; one process is all there is then."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield
