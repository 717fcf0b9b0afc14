"""Where an export goes: written beside its place under a hidden name, and put there when it is whole.

What is at OUT is whole, or there is no OUT: a run that is killed leaves a hidden `.OUT.*.partial` behind.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def free(out: Path, source: Path, format: str | None) -> Path:
    """The place to write to, which is nobody's yet and not part of the source. format: hf, gguf or a model's own."""
    target = Path(os.path.abspath(out))
    if os.path.lexists(target):
        raise ValueError(f"{out} already exists and is not overwritten; give another name, or remove it")
    if not target.parent.is_dir():
        raise ValueError(f"{out.parent} is not a directory; make it first: mkdir -p {out.parent}")
    real, home = target.parent.resolve() / target.name, source.resolve()
    if real == home or (home.is_dir() and real.is_relative_to(home)):
        raise ValueError(f"{out} is inside the source {source}, which is never written to; give another place")
    if format == "gguf" and target.suffix != ".gguf":
        raise ValueError(f"{out}: a GGUF file must end in .gguf; write {out}.gguf")
    if format == "hf" and target.suffix in (".gguf", ".safetensors"):
        raise ValueError(f"{out} is the name of a file, and hf is a directory; write {out.with_suffix('')}")
    if format is None and target.suffix in (".gguf", ".safetensors"):
        more = ", or add --format gguf" if target.suffix == ".gguf" else ""
        raise ValueError(f"{out} is the name of a file, and a directory is written; write {out.with_suffix('')}{more}")
    return target


@contextmanager
def beside(target: Path) -> Iterator[Path]:
    """The path to write to, on the disk of the target; put at the target at the end, unless something was raised."""
    partial = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".partial"))
    made = partial / target.name
    try:
        yield made
        _sync(made)
        _put(made, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _sync(made: Path) -> None:
    """Names and contents are on the disk before they are put in place."""
    for path in [*sorted(made.rglob("*")), made] if made.is_dir() else [made]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _put(made: Path, target: Path) -> None:
    if made.is_dir():
        if os.path.lexists(target):
            raise ValueError(f"{target} was created by something else during the export; give another name")
        made.rename(target)
    else:
        try:
            os.link(made, target)  # unlike a rename, never over what has come to be there
        except FileExistsError:
            raise ValueError(f"{target} was created by something else during the export; give another name") from None
        except OSError:  # a disk without links
            made.rename(target)
    handle = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
