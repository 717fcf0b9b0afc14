"""DCP's file writer, with the SHA-256 of every file taken as it is written, and the reason kept when it fails.

Taken from memory and not read back: what the disk makes of it is then found when the file is read. Torch's own writer
reports a full disk as `unexpected pos 704 vs 598`; the error that caused it is kept here.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.checkpoint.metadata import StorageMeta

from ropewalk import crash
from ropewalk.train.checkpoint.manifest import Digest

POINTS = ("save.write", "save.written")
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def opened(path: Path) -> BinaryIO:
    return path.open("wb")


class RecordedFile:
    """A file that is written from its start to its end."""

    def __init__(self, path: Path) -> None:
        self.stream = opened(path)
        self.sha256, self.bytes = hashlib.sha256(), 0
        self.closed = False

    def write(self, data: Any) -> int:
        crash.here("save.write")
        count = self.stream.write(data)
        self.sha256.update(data)
        self.bytes += count
        return count

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        self.stream.flush()

    def fileno(self) -> int:
        return self.stream.fileno()

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """On the disk when this returns. Again: does nothing."""
        if not self.closed:
            self.closed = True
            try:
                self.stream.flush()
                os.fsync(self.stream.fileno())
            finally:
                self.stream.close()


class RecordedFiles(FileSystem):
    """Files of one folder; `written` and `failure` tell of those that this process wrote."""

    def __init__(self) -> None:
        self.written: dict[str, Digest] = {}
        self.failure: OSError | None = None

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Generator[Any, None, None]:
        path = Path(path)
        if mode != "wb":
            raise ValueError(f"{path}: opened as {mode!r}; here files are written and nothing else")
        try:
            file = RecordedFile(path)
            try:
                yield file
            finally:
                file.close()
        except OSError as error:
            self.failure = self.failure or error
            raise
        except RuntimeError as error:  # torch's zip writer, in its own words
            cause = error.__context__
            self.failure = self.failure or (cause if isinstance(cause, OSError) else None)
            raise
        self.written[path.name] = Digest(file.bytes, file.sha256.hexdigest())
        crash.here("save.written")

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        super().rename(path, new_path)
        self.written[Path(new_path).name] = self.written.pop(Path(path).name)

    def put(self, path: Path, data: bytes) -> None:
        with self.create_stream(path, "wb") as stream:
            stream.write(data)


class RecordedWriter(FileSystemWriter):
    def __init__(self, path: Path) -> None:
        # Files are brought to the disk when they are closed, here and not by the writer.
        super().__init__(path, sync_files=False, overwrite=False)
        self.fs = RecordedFiles()

    def storage_meta(self) -> StorageMeta:
        # Without the path, which changes when the checkpoint is committed.
        return StorageMeta(save_id=self.save_id)

    @property
    def files(self) -> RecordedFiles:
        return cast(RecordedFiles, self.fs)
