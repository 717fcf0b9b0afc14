"""A safetensors header, checked by us before the official reader opens the file.

Eight bytes of length, a JSON object of {name: {dtype, shape, data_offsets}}, the tensors one after the other without
overlap, hole or tail. Stricter than the format: no tensor without elements, no name given twice, no dtype under a byte,
and a third of the 100 MB that a header may have, which bounds what parsing it can take.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, NamedTuple, Never

from ropewalk.checkpoints.errors import DAMAGED, BadInput, plain
from ropewalk.checkpoints.files.strict_json import parse_json

MOST_HEADER_BYTES = 32 << 20
LONGEST_NAME = 1024
MOST_AXES = 16
LARGEST_AXIS = (1 << 63) - 1

WIDTHS = {
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL"), 1),
}
"""Bytes of one element of each dtype that is read."""


class Entry(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    start: int
    """First byte, counted from the end of the header."""
    stop: int


def read_header(path: str | os.PathLike[str]) -> dict[str, Entry]:
    """Every tensor of the file by name, in the file's order of bytes; metadata is left out."""
    where = os.fspath(path)
    header, room = _header(Path(path))
    _refuse_metadata(header.pop("__metadata__", {}), where)
    found = {name: _entry(name, value, where) for name, value in header.items()}
    at, before = 0, "header"
    for name, entry in sorted(found.items(), key=lambda item: item[1].start):
        if entry.start != at:
            problem = "overlaps" if entry.start < at else "leaves a hole behind"
            raise BadInput(path, name, f"begins at {entry.start:,} and {problem} {plain(before)} at {at:,}", DAMAGED)
        at, before = entry.stop, name
    if at != room:
        problem = f"the tensors take {at:,} bytes, the file has {room:,} for them"
        raise BadInput(path, before if at > room else "size", problem, DAMAGED)
    return found


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """The header's JSON, and how many bytes follow it."""
    try:
        if not path.is_file():
            raise BadInput(path, "path", "is not a file" if path.exists() else "does not exist", "check the path")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < 10:
                raise BadInput(path, "size", f"{size} bytes are too few for a safetensors header", DAMAGED)
            length = int.from_bytes(file.read(8), "little")
            if length > MOST_HEADER_BYTES or length < 2:
                problem = f"is {length:,}, not 2 to {MOST_HEADER_BYTES:,}"
                raise BadInput(path, "header length", problem, "the file is damaged or not safetensors")
            if length > size - 8:
                raise BadInput(path, "header length", f"is {length:,}, the file has {size - 8:,} bytes left", DAMAGED)
            if file.read(1) != b"{":
                raise BadInput(path, "header", "does not begin with {", "the file is damaged or not safetensors")
            file.seek(8)
            return parse_json(file.read(length), os.fspath(path)), size - 8 - length
    except OSError as error:
        raise BadInput(path, "path", f"cannot be read ({error.strerror})", "check the file's rights") from None


def _refuse_metadata(metadata: Any, where: str) -> None:
    if not isinstance(metadata, dict):
        raise BadInput(where, "__metadata__", "is not an object", DAMAGED)
    for key, value in metadata.items():
        if not isinstance(value, str):
            raise BadInput(where, f"__metadata__.{key}", "is not a string", DAMAGED)


def _entry(name: str, value: Any, where: str) -> Entry:
    def refuse(problem: str, remedy: str = DAMAGED) -> Never:
        raise BadInput(where, name or '""', problem, remedy)

    if not name or len(name) > LONGEST_NAME:
        refuse(f"a tensor's name has 1 to {LONGEST_NAME:,} characters, this has {len(name):,}")
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        refuse("has not exactly dtype, shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in WIDTHS:
        refuse(f"dtype {plain(dtype, 50)} is not read here", f"convert it to one of {', '.join(sorted(WIDTHS))}")
    if not isinstance(shape, list) or len(shape) > MOST_AXES or not all(type(n) is int for n in shape):
        refuse(f"shape {plain(shape, 100)} is not a list of at most {MOST_AXES} whole numbers")
    if not all(0 < n <= LARGEST_AXIS for n in shape):
        refuse(f"shape {plain(shape, 100)} has an axis that is not positive", "a model's tensors have elements")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(n) is int and n >= 0 for n in offsets):
        refuse(f"data_offsets {plain(offsets, 100)} are not two whole numbers")
    start, stop = offsets
    need = math.prod(shape) * WIDTHS[dtype]
    if stop - start != need:
        refuse(f"shape {plain(shape, 100)} of {dtype} takes {need:,} bytes, data_offsets span {stop - start:,}")
    return Entry(dtype, tuple(shape), start, stop)
