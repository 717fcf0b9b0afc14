"""What a checkpoint consists of: the size and SHA-256 of every file, in a file that vouches for itself.

    manifest.json    {"format": 1, "step": 100, "world": 2, "files": {NAME: {"bytes", "sha256"}}, "sha256": of all that}

Its bytes are the one spelling of what they say, so a flipped bit shows even where it would not change the meaning. A
folder that is not what its manifest says is no checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

NAME = "manifest.json"
FORMAT = 1
LARGEST = 64 << 20
CHUNK = 1 << 20


class Digest(NamedTuple):
    bytes: int
    sha256: str


class Manifest(NamedTuple):
    step: int
    world: int
    """Ranks that wrote it."""
    files: dict[str, Digest]


class Broken(ValueError):
    """A folder that is not the checkpoint it was."""

    def __init__(self, file: Path, problem: str) -> None:
        super().__init__(file, problem)
        self.file, self.problem = file, problem

    def __str__(self) -> str:
        return f"{self.file}: {self.problem}"


def spelled(manifest: Manifest) -> bytes:
    files = {name: each._asdict() for name, each in sorted(manifest.files.items())}
    said: dict[str, Any] = {"format": FORMAT, "step": manifest.step, "world": manifest.world, "files": files}
    said["sha256"] = hashlib.sha256(json.dumps(said).encode()).hexdigest()
    return json.dumps(said, indent=1).encode() + b"\n"


def read(folder: Path) -> Manifest:
    """The manifest, if it is one; what it says of the files is not looked at here."""
    file = folder / NAME
    try:
        size = file.stat().st_size
        raw = file.read_bytes() if size <= LARGEST else None
    except OSError as error:
        raise Broken(file, error.strerror or str(error)) from None
    if raw is None:
        raise Broken(file, f"has {size:,} bytes, a manifest has {LARGEST:,} at most")
    try:
        said = json.loads(raw)
        if said["format"] != FORMAT:
            raise Broken(file, f"format {said['format']!r}; this ropewalk reads {FORMAT}")
        files = {name: Digest(int(each["bytes"]), str(each["sha256"])) for name, each in said["files"].items()}
        manifest = Manifest(int(said["step"]), int(said["world"]), files)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, Broken):
            raise
        raise Broken(file, "cannot be read as a manifest") from None
    if spelled(manifest) != raw:
        raise Broken(file, "does not match its own SHA-256")
    for name in files:
        if os.path.basename(name) != name or name in ("", ".", "..", NAME):
            raise Broken(file, f"names {name!r}, which is no file of this folder")
    return manifest


def check_sizes(folder: Path, files: Mapping[str, Digest]) -> None:
    for name, wanted in files.items():
        try:
            size = (folder / name).stat().st_size
        except OSError as error:
            raise Broken(folder / name, error.strerror or str(error)) from None
        if size != wanted.bytes:
            raise Broken(folder / name, f"has {size:,} bytes, was written with {wanted.bytes:,}")


def check_contents(folder: Path, manifest: Manifest, names: Iterable[str]) -> None:
    for name in names:
        if digest(folder / name) != manifest.files[name]:
            raise Broken(folder / name, "does not match its SHA-256: it is not what was written")


def verify(folder: Path) -> Manifest:
    """The manifest of a folder every byte of which is as it was written; Broken otherwise."""
    manifest = read(folder)
    check_sizes(folder, manifest.files)
    check_contents(folder, manifest, manifest.files)
    return manifest


def digest(file: Path) -> Digest:
    found, size = hashlib.sha256(), 0
    try:
        with file.open("rb", buffering=0) as stream:
            while piece := stream.read(CHUNK):
                found.update(piece)
                size += len(piece)
    except OSError as error:
        raise Broken(file, error.strerror or str(error)) from None
    return Digest(size, found.hexdigest())
