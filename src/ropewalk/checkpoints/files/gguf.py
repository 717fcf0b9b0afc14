"""A GGUF file, memory-mapped: its metadata, where its tensors lie, and each of them as float32 when asked.

The head is parsed by us (gguf_head.py); the `gguf` package comes in only where a tensor is quantised.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ropewalk.checkpoints.errors import DAMAGED, BadInput
from ropewalk.checkpoints.files.gguf_head import NUMBER_OF, TYPES, HeadReader, Later, TensorInfo

__all__ = ["GGUF", "TYPES", "TensorInfo"]

PLAIN = {"F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2")}
PIECE = 1 << 22
"""Elements made float32 at a time, so that what is in between stays small beside the tensor."""


class GGUF:
    """A GGUF file, memory-mapped: what it says about itself now, its tensors one at a time when asked."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._data = _mapped(self.path)
        self._reader = HeadReader(self._data, os.fspath(path))
        self.version, keys, tensors = self._reader.head()
        self._values = self._reader.metadata(keys)
        self.tensors: dict[str, TensorInfo] = self._reader.tensors(tensors, self._values)

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """Every key with its value; arrays are lists."""
        made = self._reader.made
        return {key: made(value) if isinstance(value, Later) else value for key, value in self._values.items()}

    @property
    def small(self) -> dict[str, Any]:
        """The metadata without long arrays, such as a vocabulary's, which are not made for it."""
        return {key: value for key, value in self._values.items() if not isinstance(value, Later)}

    @property
    def long(self) -> tuple[str, ...]:
        """The keys that `small` leaves out."""
        return tuple(key for key, value in self._values.items() if isinstance(value, Later))

    def floats(self, name: str) -> np.ndarray:
        """One tensor as float32 of its own memory, dequantised, in torch's order of axes."""
        shape, kind, offset, size = self.tensors[name]
        convert = self._convert(name, kind)
        row = shape[-1]
        rows = math.prod(shape[:-1])
        source = np.frombuffer(self._data, np.uint8, count=size, offset=offset).reshape(rows, size // rows)
        out = np.empty((rows, row), np.float32)
        step = max(1, PIECE // row)
        with np.errstate(all="ignore"):  # a scale that is not finite shows in the values, which readers check
            for start in range(0, rows, step):
                out[start : start + step] = convert(source[start : start + step])
        self._let_go(offset, size)
        return out.reshape(shape)

    def _let_go(self, offset: int, size: int) -> None:
        """Pages that were read stay in memory as long as the file is mapped, a second copy of the model; these go."""
        if hasattr(mmap, "MADV_DONTNEED"):
            start = offset - offset % mmap.PAGESIZE
            self._data.madvise(mmap.MADV_DONTNEED, start, offset + size - start)

    def _convert(self, name: str, kind: str) -> Callable[[np.ndarray], np.ndarray]:
        if kind in PLAIN:
            return lambda rows: rows.view(PLAIN[kind])
        if kind == "BF16":
            return lambda rows: (rows.view("<u2").astype(np.uint32) << 16).view(np.float32)
        if kind.startswith("I") and not kind.startswith("IQ"):
            raise BadInput(self.path, name, f"type {kind} holds integers, not weights", "is this file a model's?")
        from gguf import GGMLQuantizationType, quants

        try:
            chosen = GGMLQuantizationType(NUMBER_OF[kind])
            quants.dequantize(np.zeros((1, TYPES[chosen][2]), np.uint8), chosen)
        except (NotImplementedError, ValueError):
            problem = f"type {kind} is one that the installed gguf package does not dequantise"
            remedy = f"pip install -U gguf, or convert it: llama-quantize --allow-requantize {self.path.name} OUT F16"
            raise BadInput(self.path, name, problem, remedy) from None
        return lambda rows: quants.dequantize(rows, chosen)


def _mapped(path: Path) -> mmap.mmap:
    try:
        if not path.is_file():
            raise BadInput(path, "path", "is not a file" if path.exists() else "does not exist", "check the path")
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < 24:
                raise BadInput(path, "size", "is smaller than the 24 bytes of a GGUF header", DAMAGED)
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise BadInput(path, "path", f"cannot be read ({error.strerror})", "check the file's rights") from None
