"""GGUF files that are wrong by hand: the kinds llama.cpp tests for, and sizes that hang or fill other readers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import gguf
import numpy as np

from tests.checkpoints import file_bytes
from tests.checkpoints.bad.bad_files import CONFIG, WEIGHTS, Case, Content, Hollow, Late
from tests.checkpoints.file_bytes import Raw, Tensor, array, floats
from tests.checkpoints.valid_files import GGUF_KEYS, gguf_model

A = ("general.architecture", "llama")
BOMB = 1 << 40


def keys(*given: tuple[str | bytes, Any]) -> bytes:
    return file_bytes.gguf([A, *given])


def tensors(*given: Tensor, data: bytes = b"\0" * 256) -> bytes:
    return file_bytes.gguf(tensors=given, data=data)


def nested(depth: int) -> Raw:
    """Arrays of one array of one array ... of nothing."""
    return Raw(9, struct.pack("<IQ", 9, 1) * depth + struct.pack("<IQ", 4, 0))


def bad() -> Iterator[tuple[str, Content]]:
    valid = file_bytes.gguf()
    for magic in (b"FUGG", b"GGUX", b"\0\0\0\0", b"ggml"):
        yield f"magic {magic!r}", file_bytes.gguf(magic=magic)
    for version in (0, 1, 4, 5, 0x02000000, 0x03000000, (1 << 32) - 1):
        yield f"version {version}", file_bytes.gguf(version=struct.pack("<I", version))
    yield "big-endian", b"GGUF" + struct.pack(">IQQ", 3, 0, 0)
    for size in (4, 8, 16, 23, 24, 40, len(valid) - 1):
        yield f"cut at {size}", valid[:size]
    for count in (2, 1000, 1 << 17, 1 << 31, BOMB, (1 << 63) - 1, (1 << 64) - 1):
        yield f"{count:,} keys", file_bytes.gguf(key_count=count)
        yield f"{count:,} tensors", file_bytes.gguf(tensor_count=count)
    for length in (1 << 20, 1 << 31, 1 << 62, (1 << 64) - 1):
        yield (
            f"key of {length:,} bytes",
            file_bytes.gguf([], [], struct.pack("<Q", length) * 9, key_count=1, alignment=1),
        )
        yield f"string of {length:,} bytes", keys(("k", Raw(8, struct.pack("<Q", length))))
        yield (
            f"tensor name of {length:,} bytes",
            file_bytes.gguf([], [], struct.pack("<Q", length) * 9, tensor_count=1, alignment=1),
        )
    for kind in (13, 14, 255, (1 << 32) - 1):
        yield f"value of type {kind}", keys(("k", Raw(kind, b"\0" * 8)))
        yield f"array of type {kind}", keys(("k", array(kind, 1, b"\0" * 8)))
    yield "array of 2**40 in 49 bytes", file_bytes.gguf([("k", array(8, BOMB))], [])
    yield "array of 2**40 numbers", file_bytes.gguf([("k", array(4, BOMB))], [])
    yield "array of 4e9 bytes", file_bytes.gguf([("k", array(0, 4_000_000_000))], [])
    yield "array of 2**64 - 1", file_bytes.gguf([("k", array(12, (1 << 64) - 1))], [])
    yield "array one longer than the file", keys(("k", array(0, 10_000)))
    yield "arrays nested 3 deep", keys(("k", nested(2)))
    yield "arrays nested 20,000 deep", Late(lambda: keys(("k", nested(20_000))))
    yield (
        "2.2 million empty strings",
        Hollow(17_600_200, file_bytes.gguf([("k", array(8, 2_200_000))], [], alignment=1)),
    )
    yield (
        "two million short strings, then nothing",
        Late(lambda: file_bytes.gguf([("k", array(8, 2_000_000, (b"\2" + b"\0" * 7 + b"ab") * 2_000_000)), ("k", 1)])),
    )
    yield (
        "two million arrays of nothing",
        Late(lambda: keys(("k", array(9, 2_000_000, struct.pack("<IQ", 0, 0) * 2_000_000)), ("k", 1))),
    )
    yield "two million doubles", Late(lambda: keys(("k", array(12, 2_000_000, b"\1" * 16_000_000)), ("k", 1)))
    yield (
        "twenty arrays of 110,000",
        Late(lambda: keys(*((f"k{n}", array(0, 110_000, b"\0" * 110_000)) for n in range(20)))),
    )
    yield "truth of 2", keys(("k", Raw(7, b"\2")))
    yield "truths of 255", keys(("k", array(7, 3, b"\0\1\xff")))
    yield "key twice", keys(A)
    yield "empty key", keys(("", 1))
    yield "key not UTF-8", keys((b"\xff\xfe", 1))
    yield "value not UTF-8", keys(("k", Raw(8, file_bytes.text(b"\xc3\x28"))))
    yield "token not UTF-8", keys(("tokenizer.ggml.tokens", array(8, 1, file_bytes.text(b"\xff"))))
    for alignment in (0, 3, 7, 24, 1 << 20, (1 << 32) - 1):
        yield f"alignment {alignment}", keys(("general.alignment", alignment))
    yield "alignment text", keys(("general.alignment", "32"))
    yield "alignment float", keys(("general.alignment", 32.0))
    yield "alignment true", keys(("general.alignment", True))
    for axes in (0, 5, 1 << 31, (1 << 32) - 1):
        yield f"{axes:,} axes", tensors(Tensor("w", (4,), axes=axes))
    yield "axis 0", tensors(Tensor("w", (4, 0)))
    yield "axis 2**63", tensors(Tensor("w", (1 << 63,)))
    yield "product overflows to 4", tensors(Tensor("w", (1 << 62, 4, 1, 1)))
    yield "product overflows to 0", tensors(Tensor("w", (1 << 32, 1 << 32)))
    yield "product overflows in blocks", tensors(Tensor("w", (32, 1 << 59), 2))
    for kind in (4, 5, 31, 36, 42, 9999, (1 << 32) - 1):
        yield f"tensor type {kind}", tensors(Tensor("w", (4,), kind))
    yield "row not of whole blocks", tensors(Tensor("w", (33,), 2))
    yield "row of K-quants not of whole blocks", tensors(Tensor("w", (32, 8), 12), data=b"\0" * 144)
    for offset in (1, 4, 33, 1 << 20, 1 << 40, (1 << 64) - 32):
        yield f"offset {offset:,}", tensors(Tensor("w", offset=offset))
    yield "same bytes twice", tensors(Tensor("a"), Tensor("b"))
    yield "overlap", tensors(Tensor("a", (16,)), Tensor("b", offset=32))
    yield "hole", tensors(Tensor("a"), Tensor("b", offset=64))
    yield "hole at the start", tensors(Tensor("w", offset=32))
    yield "tensor twice", tensors(Tensor("a"), Tensor("a", offset=32))
    yield "tensor without a name", tensors(Tensor(""))
    yield "tensor name not UTF-8", tensors(Tensor(b"\xff"))
    yield "tensor name of 1,000", tensors(Tensor("x" * 1000))
    yield "last tensor one byte short", file_bytes.gguf(data=b"\0" * 15)
    yield "integers for weights", tensors(Tensor("w", (4,), int(gguf.GGMLQuantizationType.I32)))
    yield "a type nobody dequantises", tensors(Tensor("w", (32,), int(gguf.GGMLQuantizationType.Q8_1)))
    for value in ("nan", "inf", "-inf"):
        yield f"value {value}", file_bytes.gguf(data=floats(1, float(value), 0, 0))
        yield f"scale {value}", tensors(Tensor("w", (32,), 8), data=np.array([value], "<f2").tobytes() + b"\1" * 32)
    yield "part of a model", keys(("split.count", Raw(2, b"\3\0")))


def odd() -> Iterator[tuple[str, bytes]]:
    """Strange, and right."""
    script = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    yield "chat template that is an attack", keys(("tokenizer.chat_template", script))
    yield "bytes behind the last tensor", file_bytes.gguf() + b"PK\x05\x06" + b"\0" * 18
    yield "names of control characters", tensors(Tensor("\x1b[31m\0"))
    yield "arrays nested 2 deep", keys(("k", nested(1)))
    yield "no tensors", file_bytes.gguf(tensors=[], data=b"")


def positions() -> Iterator[tuple[str, tuple[str, Any]]]:
    """Keys of positions with values that mean nothing."""
    base, scale = "llama.rope.freq_base", "llama.rope.scaling.factor"
    for value in (float("nan"), float("inf"), -10000.0, 0.0, "10000", True, ["1"]):
        yield f"freq_base {value}", (base, value)
    for value in (float("nan"), -8.0, "8"):
        yield f"scaling factor {value}", (scale, value)
    for value in (0, 1, 15, 1 << 20, 2.5, "16"):
        yield f"dimension_count {value}", ("llama.rope.dimension_count", value)
    for value in ("banana", 3, True):
        yield f"scaling type {value}", ("llama.rope.scaling.type", value)
    for key in ("llama.block_count", "llama.embedding_length", "llama.attention.head_count", "llama.context_length"):
        for value in (0, (1 << 32) - 1, "2", 2.5):
            if (key, value) == ("llama.context_length", (1 << 32) - 1):
                continue  # long, and a length
            yield f"{key} {value}", (key, value)
    for value in ("", "banana", 3, ["llama"]):
        yield f"architecture {value}", ("general.architecture", value)


def cases() -> Iterator[Case]:
    for name, content in bad():
        yield Case(f"gguf: {name}", {"a.gguf": content}, "bad", "a.gguf", WEIGHTS)
    for name, content in odd():
        yield Case(f"gguf: {name}", {"a.gguf": content}, "valid", "a.gguf", WEIGHTS)
    for name, (key, value) in positions():
        changed = tuple((dict(GGUF_KEYS) | {key: value}).items())
        content = gguf_model(gguf.GGMLQuantizationType.F32, changed)
        yield Case(f"gguf positions: {name}", {"a.gguf": content}, "bad", "a.gguf", CONFIG)
    for key in ("general.architecture", "llama.block_count", "llama.attention.head_count"):
        changed = tuple(item for item in GGUF_KEYS if item[0] != key)
        content = gguf_model(gguf.GGMLQuantizationType.F32, changed)
        yield Case(f"gguf positions: no {key}", {"a.gguf": content}, "bad", "a.gguf", CONFIG)
