"""Position encodings, one file each; the file name is the kind that configs use."""

from __future__ import annotations

from typing import Any

from ropewalk.encodings._find import AnyEncoding, build, find, names, parse
from ropewalk.encodings._rotation import compile_rotations
from ropewalk.encodings.base import Claims, Encoding, Signal

__all__ = ["AnyEncoding", "Claims", "Encoding", "Signal", "build", "compile_rotations", "find", "names", "parse"]


def __getattr__(name: str) -> Any:
    """`encodings.RoPE`, `encodings.ALiBi`: each class under its own name, loaded when asked for."""
    for kind in names():
        encoding = find(kind)
        if encoding.__name__ == name:
            return encoding
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
