"""Files on other machines, by URL, through pyarrow's file systems: s3://, gs://, hdfs:// and whatever else it knows.

    located("crawl/a.jsonl")             a Path; file:///crawl/a.jsonl too
    located("s3://bucket/crawl")         a Remote, which has those of Path's methods that are used on both

Options of a file system are the URL's query: s3://bucket/crawl?region=eu-west-1. A file there appears when it is
complete, as stores of objects do it, but there is no directory to rename.
"""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

if TYPE_CHECKING:
    from pyarrow import fs

BUFFER = 8 << 20
"""Bytes asked for at once: each is a request."""


class Remote(NamedTuple):
    url: str
    """As it was given, with options and perhaps a key; messages and notes have the path alone."""
    path: str
    listed: tuple[int, int] | None = None
    """Of a file that was found in a directory: its stamp, so that it need not be asked for again."""

    def __str__(self) -> str:
        return f"{urlsplit(self.url).scheme}://{self.path}"

    def __truediv__(self, name: str) -> Remote:
        return Remote(self.url, f"{self.path}/{name}")

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.path).suffix

    def open(self, mode: str = "rb") -> io.BufferedReader:
        assert mode == "rb"
        return io.BufferedReader(self.seekable(), BUFFER)

    def seekable(self) -> Any:
        return _resolved(self.url)[0].open_input_file(self.path)

    def read_text(self, encoding: str) -> str:
        with self.open() as file:
            return file.read().decode(encoding)

    def is_file(self) -> bool:
        return self.listed is not None or self._info().is_file

    def is_dir(self) -> bool:
        from pyarrow import fs

        return self._info().type == fs.FileType.Directory

    def stamp(self) -> tuple[int, int]:
        return self.listed or _stamp(self._info())

    def inside(self) -> list[Remote]:
        """All files in it, at any depth."""
        from pyarrow import fs

        found = _resolved(self.url)[0].get_file_info(fs.FileSelector(self.path, recursive=True))
        return [Remote(self.url, info.path, _stamp(info)) for info in found if info.is_file]

    def upload(self, file: Path) -> None:
        """Makes this file a copy of that one."""
        system = _resolved(self.url)[0]
        if system.type_name not in ("s3", "gcs", "abfs"):  # there, a directory is no more than part of a name
            system.create_dir(str(PurePosixPath(self.path).parent))
        with file.open("rb") as source, system.open_output_stream(self.path) as stream:
            while data := source.read(BUFFER):
                stream.write(data)

    def _info(self) -> fs.FileInfo:
        return _resolved(self.url)[0].get_file_info(self.path)


Located = Path | Remote


def located(place: str | Path) -> Located:
    """What a path or a URL names."""
    if isinstance(place, Path) or "://" not in place:
        return Path(place)
    parts = urlsplit(place)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise ValueError(f"{place}: a file's URL has its whole path, file:///home/me/text.txt")
        return Path(url2pathname(parts.path))
    from pyarrow import ArrowInvalid, ArrowNotImplementedError

    try:
        return Remote(place, _resolved(place)[1].rstrip("/"))
    except (ArrowInvalid, ArrowNotImplementedError) as error:
        shown = f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
        why = str(error).replace(place, shown)  # without a key
        raise ValueError(f"{shown}: file://, s3://, gs:// and hdfs:// are read here ({why})") from None


def stamp(file: Located) -> tuple[int, int]:
    """Size, and when it was changed in nanoseconds."""
    if isinstance(file, Remote):
        return file.stamp()
    found = file.stat()
    return found.st_size, found.st_mtime_ns


def _stamp(info: fs.FileInfo) -> tuple[int, int]:
    return info.size, info.mtime_ns or 0


@lru_cache(64)
def _resolved(url: str) -> tuple[fs.FileSystem, str]:
    from pyarrow import fs

    return fs.FileSystem.from_uri(url)
