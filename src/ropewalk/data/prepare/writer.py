"""Documents appended to shards, so that a run that was killed goes on where it last said it was.

Files only grow. `commit` makes what was written durable and returns how far it is; a writer opened with that cuts the
files back to it, and what is appended next lies where it would have lain.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import IO

import numpy as np

from ropewalk import crash
from ropewalk.data.layout import HEADER, names

Sizes = list[dict[str, int]]
"""Tokens and documents of each shard, the last being the one that grows."""


class Writer:
    def __init__(self, folder: Path, stream: str, limit: int, sizes: Sizes, width: int) -> None:
        self.folder, self.stream, self.limit, self.width = folder, stream, limit, width
        self.sizes: Sizes = [dict(shard) for shard in sizes]
        self.open: tuple[IO[bytes], IO[bytes]] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        known = {name for shard in range(len(sizes)) for name in names(stream, shard)}
        mine = {file for pattern in names(stream, 0) for file in folder.glob(pattern.replace("00000", "*"))}
        for file in mine:
            if file.name not in known:
                file.unlink()
        if sizes:
            self._reopen()

    def write(self, tokens: np.ndarray, lengths: np.ndarray) -> None:
        """Documents end to end, with how many tokens each has."""
        ends, first = np.cumsum([0, *lengths]), 0
        while first < len(lengths):
            if not self.sizes or self.sizes[-1]["tokens"] >= self.limit:
                self.close()
                self.sizes.append({"tokens": 0, "documents": 0})
                self._reopen()
            assert self.open is not None
            shard, start = self.sizes[-1], int(ends[first])
            # The document that reaches the limit is the shard's last.
            last = int(np.searchsorted(ends, start + self.limit - shard["tokens"]))
            last = min(last, len(lengths))
            self.open[0].write(tokens[start : ends[last]].tobytes())
            self.open[1].write((ends[first + 1 : last + 1] - start + shard["tokens"]).astype(np.int64).tobytes())
            shard["tokens"] += int(ends[last]) - start
            shard["documents"] += last - first
            first = last

    def commit(self) -> Sizes:
        for file in self.open or ():
            _durable(file)
        return [dict(shard) for shard in self.sizes]

    def close(self) -> None:
        """Ends the shard that grows: its offsets get the header that says how many they are."""
        if self.open is None:
            return
        tokens, offsets = self.open
        offsets.seek(0)
        offsets.write(_header(self.sizes[-1]["documents"] + 1))
        for file in (tokens, offsets):
            _durable(file)
            file.close()
        self.open = None
        crash.here("prepare.shard")

    def _reopen(self) -> None:
        """The last shard, cut back to what is known of it."""
        tokens, offsets = (self.folder / name for name in names(self.stream, len(self.sizes) - 1))
        shard = self.sizes[-1]
        if not shard["documents"]:
            tokens.write_bytes(b"")
            offsets.write_bytes(bytes(HEADER) + np.int64(0).tobytes())
        self.open = (tokens.open("r+b"), offsets.open("r+b"))
        ends = (shard["tokens"] * self.width, HEADER + 8 * (shard["documents"] + 1))
        for file, end in zip(self.open, ends, strict=True):
            file.truncate(end)
            file.seek(end)


def _header(count: int) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<i8", "fortran_order": False, "shape": (count,)})
    assert len(buffer.getvalue()) == HEADER
    return buffer.getvalue()


def _durable(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def replace(path: Path, data: bytes) -> None:
    """Writes a whole file or nothing."""
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as file:
        file.write(data)
        _durable(file)
    fresh.replace(path)
    sync(path.parent)


def sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
