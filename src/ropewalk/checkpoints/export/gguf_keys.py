"""A GGUF file with other keys: what is not named is copied byte for byte, quantised tensors included."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.files.gguf_head import LONGEST_KEY, NUMBER_OF, STRING, HeadReader

UINT32, FLOAT32 = 4, 6
CHUNK = 1 << 24


def rewrite(
    source: Path,
    out: Path,
    *,
    keys: Mapping[str, Any],
    dropped: Callable[[str], bool],
    tensors: Mapping[str, np.ndarray],
) -> None:
    """Writes `source` as `out` with these keys and float32 tensors in it, and without the keys that are dropped."""
    with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        reader = HeadReader(data, str(source))
        version, count, tensor_count = reader.head()
        kept, values = [], {}
        for _ in range(count):
            start = reader.at
            name = reader.string(LONGEST_KEY)
            reader.field = name
            values[name] = reader.value(reader.number("I"), 0)
            if name not in keys and not dropped(name):
                kept.append(data[start : reader.at])
        start = reader.at
        before = reader.tensors(tensor_count, values)
        listed = data[start : reader.at]
        if clash := next((name for name in tensors if name in before), None):
            raise BadInput(source, clash, "is in the file already", "extend the checkpoint that it was made from")
        alignment = reader.alignment(values)
        first = min((info.offset for info in before.values()), default=0)
        end = max((info.offset + info.size for info in before.values()), default=0)
        added, place = [], end - first
        for name, array in tensors.items():
            place = -(-place // alignment) * alignment
            sizes = struct.pack(f"<I{array.ndim}Q", array.ndim, *reversed(array.shape))
            added.append(_text(name) + sizes + struct.pack("<IQ", NUMBER_OF["F32"], place))
            place += array.nbytes
        with out.open("xb") as to:
            made = [_text(name) + _value(value) for name, value in keys.items()]
            counts = (tensor_count + len(tensors), len(kept) + len(made))
            for part in (b"GGUF", struct.pack("<IQQ", version, *counts), *kept, *made, listed, *added):
                to.write(part)
            _pad(to, alignment)
            begin = to.tell()
            for at in range(first, end, CHUNK):
                to.write(data[at : min(at + CHUNK, end)])
            for array in tensors.values():
                _pad(to, alignment, begin)
                to.write(np.ascontiguousarray(array, "<f4").tobytes())


def _pad(to: BinaryIO, alignment: int, begin: int = 0) -> None:
    to.write(bytes(-(to.tell() - begin) % alignment))


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _value(value: Any) -> bytes:
    """In the type that llama.cpp looks for."""
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _text(value)
    if isinstance(value, int):
        return struct.pack("<II", UINT32, value)
    return struct.pack("<If", FLOAT32, value)
