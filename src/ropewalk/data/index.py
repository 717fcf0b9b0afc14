"""Where sequences lie in large data, counted once for each length of a sequence and kept beside it.

Counting reads every offset, on every rank and at every start. What is found depends on the data and on the lengths
alone: the first to open the data writes it, whoever opens it later maps the file. Where nothing can be written, on a
read-only disk, everybody counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import numpy as np

from ropewalk.data.batch import Ints

LEAST = 1 << 17
"""Documents: fewer are counted in a tenth of a second."""


class Counted(Protocol):
    """Documents of a directory, or some of them by a rule that the fingerprint tells apart."""

    documents: int
    folder: Path
    fingerprint: str


def indexed(documents: Counted, name: str, fits: Callable[[Ints], bool], count: Callable[[], Ints]) -> Ints:
    """What `count` finds, or found before; `fits` says whether a file can be what it wrote."""
    if documents.documents < LEAST:
        return count()
    file = documents.folder / f"rows-{name}-{documents.fingerprint[:16]}.npy"
    with suppress(OSError, ValueError, EOFError):
        if fits(known := np.load(file, mmap_mode="r", allow_pickle=False)):
            return known
    found = count()
    # Several may be here at once: each writes a file of its own, and the last one's stays.
    fresh = file.with_name(f"{file.name}.{uuid4().hex}")
    try:
        with fresh.open("wb") as opened:
            np.save(opened, found, allow_pickle=False)
            opened.flush()
            os.fsync(opened.fileno())
        fresh.replace(file)
    except OSError:
        with suppress(OSError):
            fresh.unlink()
        return found
    return np.load(file, mmap_mode="r", allow_pickle=False)
