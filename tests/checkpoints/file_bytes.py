"""safetensors and GGUF files made byte by byte, so that any part of them can be made wrong."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


def safetensors(header: Any, data: bytes = b"", *, length: int | None = None) -> bytes:
    """A header (a value, or its text) and what follows it; `length` if the first eight bytes shall say another."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(shape: Sequence[Any], start: int, stop: int, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, stop]}


class Raw(NamedTuple):
    """A metadata value as its bytes."""

    kind: int
    data: bytes


def text(value: str | bytes) -> bytes:
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def array(kind: int, count: int, data: bytes = b"") -> Raw:
    return Raw(9, struct.pack("<IQ", kind, count) + data)


def value(given: Any) -> Raw:
    """A metadata value: unsigned 32-bit, float32, bool, string or a list of strings."""
    if isinstance(given, Raw):
        return given
    if isinstance(given, bool):
        return Raw(7, struct.pack("<?", given))
    if isinstance(given, int):
        return Raw(4, struct.pack("<I", given))
    if isinstance(given, float):
        return Raw(6, struct.pack("<f", given))
    if isinstance(given, str):
        return Raw(8, text(given))
    return array(8, len(given), b"".join(map(text, given)))


class Tensor(NamedTuple):
    name: str | bytes
    sizes: Sequence[int] = (4,)
    """In GGUF's order."""
    kind: int = 0
    offset: int = 0
    axes: int | None = None
    """How many are said to be, if not how many there are."""


def gguf(
    keys: Sequence[tuple[str | bytes, Any]] = (("general.architecture", "llama"),),
    tensors: Sequence[Tensor] = (Tensor("w"),),
    data: bytes = b"\0" * 16,
    *,
    magic: bytes = b"GGUF",
    version: bytes = b"\3\0\0\0",
    key_count: int | None = None,
    tensor_count: int | None = None,
    alignment: int = 32,
) -> bytes:
    parts = [magic, version]
    counts = (len(tensors) if tensor_count is None else tensor_count, len(keys) if key_count is None else key_count)
    parts.append(struct.pack("<QQ", *counts))
    for key, given in keys:
        kind, content = value(given)
        parts += [text(key), struct.pack("<I", kind), content]
    for name, sizes, kind, offset, axes in tensors:
        parts += [text(name), struct.pack("<I", len(sizes) if axes is None else axes)]
        parts += [struct.pack("<Q", size) for size in sizes]
        parts.append(struct.pack("<IQ", kind, offset))
    head = b"".join(parts)
    return head + b"\0" * (-len(head) % alignment) + data


def floats(*values: float) -> bytes:
    return np.array(values, "<f4").tobytes()
