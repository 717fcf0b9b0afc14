"""Reads golden vectors with numpy and the standard library alone; copy this file, it needs nothing else.

    arrays, facts = load("vectors")       every array by name, and vectors.json
    arrays["cos/yarn"], arrays["positions"], facts["cases"]["yarn"]["frequencies"]

A safetensors file is eight bytes (the length n of the header, little-endian), n bytes of JSON that give dtype, shape
and place of every array, and the arrays, row-major and little-endian.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

DTYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4", "U8": "|u1"}


def read(path: str | Path) -> dict[str, np.ndarray]:
    """Every array of a safetensors file, by name."""
    raw = Path(path).read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or start > len(raw):
        raise ValueError(f"{path} is not a whole safetensors file: {len(raw)} bytes")
    arrays = {}
    for name, entry in json.loads(raw[8:start]).items():
        if name == "__metadata__":
            continue
        begin, end = (start + offset for offset in entry["data_offsets"])
        flat = np.frombuffer(raw[begin:end], dtype=DTYPES[entry["dtype"]])
        arrays[name] = flat.reshape(entry["shape"])
    return arrays


def load(folder: str | Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays of vectors.safetensors and the contents of vectors.json."""
    facts = json.loads(Path(folder, "vectors.json").read_text(encoding="utf-8"))
    return read(Path(folder, "vectors.safetensors")), facts


def farthest_off(got: np.ndarray, want: np.ndarray) -> tuple[float, tuple[int, ...]]:
    """The largest |got - want| and where it is; what is not a number is infinitely off."""
    if got.shape != want.shape:
        raise ValueError(f"shape {got.shape} was given, {want.shape} is right")
    got, want = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.where(got == want, 0.0, np.abs(got - want))
    apart = np.where(np.isnan(apart), np.inf, apart)
    where = np.unravel_index(int(apart.argmax()), apart.shape)
    return float(apart[where]), tuple(int(index) for index in where)


if __name__ == "__main__":
    for name, array in sorted(read(sys.argv[1] if len(sys.argv) > 1 else "vectors.safetensors").items()):
        print(f"{name:44} {array.dtype!s:8} {array.shape}")
