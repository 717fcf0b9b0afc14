"""safetensors files that are wrong by hand: lengths, JSON, places, shapes, names, values."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import numpy as np

from tests.checkpoints.bad.bad_files import WEIGHTS, Case, Content, Hollow, Late
from tests.checkpoints.file_bytes import entry, floats, safetensors

FOUR = b"\0" * 4
ONE = entry([1], 0, 4)


def one(**changes: Any) -> bytes:
    return safetensors({"w": ONE | changes}, FOUR)


def half(value: float, dtype: str) -> bytes:
    data = np.array([1, value], np.float16).tobytes() if dtype == "F16" else floats(1, value)[2:4] + floats(value)[2:4]
    return safetensors({"w": entry([2], 0, 4, dtype)}, data)


def zipped() -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("archive/data.pkl"), b"\x80\x02cos\nsystem\nX\x0c\0\0\0touch canary\x85R.")
    return buffer.getvalue()


def bad() -> Iterator[tuple[str, Content]]:
    valid = safetensors({"w": ONE}, FOUR)
    for size in (0, 1, 7, 8, 9):
        yield f"{size} bytes", valid[:size]
    for length in (
        0,
        1,
        1 << 20,
        100_000_000,
        100_000_001,
        (1 << 31) - 1,
        1 << 32,
        (1 << 63) - 1,
        1 << 63,
        (1 << 64) - 1,
    ):
        yield f"header of {length:,}", safetensors({"w": ONE}, FOUR, length=length)
    yield "header of 99 MB of blanks", Hollow(100_000_000, safetensors(b"{", length=99_000_000))
    yield "header of 30 MB of NUL", Hollow(31_000_000, safetensors(b"{", length=30_000_000))
    yield "header of 30 MB of blanks", Late(lambda: safetensors(b"{" + b" " * 30_000_000))
    yield "a name of 30 MB", Late(lambda: safetensors(b'{"' + b"x" * 30_000_000 + b'": 1}'))
    yield "header not UTF-8", safetensors(b'{"\xff\xfe": 1}')
    yield "header UTF-16", safetensors(json.dumps({"w": ONE}).encode("utf-16"), FOUR)
    yield "header not JSON", safetensors(b"{w: 1}")
    yield "header a list", safetensors(b"[1, 2, 3]")
    yield "header empty, with bytes behind", safetensors({}, FOUR)
    yield "depth 100,000", Late(lambda: safetensors(b'{"w":' * 100_000))
    yield "depth 100,000 of lists", Late(lambda: safetensors(b'{"w":' + b"[" * 100_000))
    yield "depth 100", safetensors(b'{"w":' * 100 + b"1" + b"}" * 100)
    yield "a million empty lists", Late(lambda: safetensors(b'{"w": [' + b"[]," * 1_000_000 + b"[]]}"))
    yield "name twice", safetensors(b'{"w": %s, "w": %s}' % ((json.dumps(ONE).encode(),) * 2), FOUR)
    yield (
        "field twice",
        safetensors(b'{"w": {"dtype": "F32", "dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}', FOUR),
    )
    yield "overlap", safetensors({"v": ONE, "w": entry([1], 2, 6)}, b"\0" * 6)
    yield "same bytes twice", safetensors({"v": ONE, "w": ONE}, FOUR)
    yield "hole", safetensors({"v": ONE, "w": entry([1], 8, 12)}, b"\0" * 12)
    yield "hole at the start", safetensors({"w": entry([1], 4, 8)}, b"\0" * 8)
    yield "tail of one byte", valid + b"\0"
    yield "tail that is a zip", valid + zipped()
    yield "truncated by one byte", valid[:-1]
    yield "shape overflows 64 bits", one(shape=[1 << 32, 1 << 32])
    yield "shape overflows to the right size", one(shape=[(1 << 62) + 1])
    yield "shape of a thousand axes", one(shape=[1] * 1000)
    yield "shape negative", one(shape=[-1])
    yield "shape twice negative", one(shape=[-1, -1])
    yield "shape float", one(shape=[1.0])
    yield "shape true", one(shape=[True])
    yield "shape text", one(shape=["1"])
    yield "shape null", one(shape=None)
    yield "shape an object", one(shape={})
    yield "shape of 300 digits", one(shape=[10**300])
    yield "shape zero", safetensors({"w": entry([0], 0, 0)})
    yield (
        "200,000 tensors without elements",
        Late(lambda: safetensors({f"w{n}": entry([0, 1 << 40], 0, 0) for n in range(200_000)})),
    )
    yield (
        "40,000 tensors without elements",
        Late(lambda: safetensors({f"w{n}": entry([0, 1 << 40], 0, 0) for n in range(40_000)})),
    )
    yield "dtype unknown", one(dtype="F33")
    yield "dtype a number", one(dtype=4)
    yield "dtype null", one(dtype=None)
    yield "dtype of a float 8", safetensors({"w": entry([4], 0, 4, "F8_E4M3")}, FOUR)
    yield "dtype under a byte", safetensors({"w": entry([3], 0, 2, "F4")}, b"\0\0")
    yield "dtype complex", safetensors({"w": entry([1], 0, 8, "C64")}, b"\0" * 8)
    yield "offsets backwards", one(data_offsets=[4, 0])
    yield "offsets negative", one(data_offsets=[-4, 0])
    yield "offsets float", one(data_offsets=[0.0, 4.0])
    yield "offsets three", one(data_offsets=[0, 2, 4])
    yield "offsets past the file", one(data_offsets=[1 << 40, (1 << 40) + 4])
    yield "offsets text", one(data_offsets="04")
    yield "no shape", safetensors({"w": {"dtype": "F32", "data_offsets": [0, 4]}}, FOUR)
    yield "a field too many", one(device="cuda")
    yield "tensor a list", safetensors({"w": [ONE]}, FOUR)
    yield "tensor null", safetensors({"w": None})
    yield "metadata a number", safetensors({"__metadata__": {"format": 1}, "w": ONE}, FOUR)
    yield "metadata a list", safetensors({"__metadata__": ["pt"], "w": ONE}, FOUR)
    yield "metadata deep", safetensors({"__metadata__": {"a": {"b": "c"}}, "w": ONE}, FOUR)
    yield "empty name", safetensors({"": ONE}, FOUR)
    yield "name of a megabyte", Late(lambda: safetensors({"x" * (1 << 20): ONE}, FOUR))
    yield "name of half a surrogate pair", safetensors(b'{"\\ud800": %s}' % json.dumps(ONE).encode(), FOUR)
    for value in ("nan", "inf", "-inf"):
        yield f"value {value}", safetensors({"w": ONE}, floats(float(value)))
        yield (
            f"value {value} in double",
            safetensors({"w": entry([1], 0, 8, "F64")}, np.array([value], "<f8").tobytes()),
        )
        yield f"value {value} in half", half(float(value), "F16")
        yield f"value {value} in bfloat16", half(float(value), "BF16")
    yield "number NaN", safetensors(b'{"w": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, 4]}}', FOUR)
    yield "number 1e999", safetensors(b'{"w": {"dtype": "F32", "shape": [1e999], "data_offsets": [0, 4]}}', FOUR)


def odd() -> Iterator[tuple[str, bytes]]:
    """Strange, and right."""
    names = (
        "../../etc/passwd",
        "<img src=x onerror=alert(1)>",
        "\u202egnp.exe",
        "\x1b[31mred\x1b[0m",
        "a\0b",
        "=1+1",
        " ",
        "__class__",
    )
    for name in names:
        yield f"name {name!a}", safetensors({name: ONE}, FOUR)
    yield "blanks behind the header", safetensors(json.dumps({"w": ONE}).encode() + b" " * 9, FOUR)
    yield "data not aligned", safetensors({"b": entry([1], 0, 1, "U8"), "w": entry([1], 1, 5)}, b"\0" * 5)
    yield "denormal values", safetensors({"w": ONE}, floats(1e-45))
    yield "scalar", safetensors({"w": entry([], 0, 4)}, FOUR)
    yield "metadata of a script", safetensors({"__metadata__": {"format": "{{ ''.__class__ }}"}, "w": ONE}, FOUR)


def cases() -> Iterator[Case]:
    for name, content in bad():
        yield Case(f"safetensors: {name}", {"a.safetensors": content}, "bad", "a.safetensors", WEIGHTS)
    for name, content in odd():
        yield Case(f"safetensors: {name}", {"a.safetensors": content}, "valid", "a.safetensors", WEIGHTS)
