"""The head of a GGUF file (versions 2 and 3, little-endian), parsed by us and within bounds.

Every length is checked against the bytes left in the file before it is used, products are Python integers, and totals
are capped: a 49-byte file that announces an array of 2**40 is refused at once. Where tensors lie is ggml's own rule:
offsets aligned, one after the other without overlap or hole. Bytes after the last tensor are ignored, as in llama.cpp.
"""

from __future__ import annotations

import math
import mmap
import struct
from typing import Any, NamedTuple, Never

import numpy as np

from ropewalk.checkpoints.errors import DAMAGED, BadInput, plain

MOST_KEYS = 1 << 16
MOST_TENSORS = 1 << 17
MOST_ELEMENTS = 1 << 21
"""Of all arrays together; the largest vocabularies with their scores, types and merges have 1.3 million."""
MOST_ARRAYS = 1 << 16
LONG = 4096
"""Elements from which on an array is checked at once and made a list when it is asked for."""
PIECE = 4096
"""Strings that are checked together, where they are short: in half the time of one after the other."""
LONGEST_KEY = 65_535
LONGEST_NAME = 255
LONGEST_STRING = 32 << 20
LONGEST_ELEMENT = 1 << 16
"""Bytes of one string in an array; the longest tokens and merges of published vocabularies have some hundreds."""
LARGEST_ALIGNMENT = 1 << 16
DEEPEST = 2
MOST_AXES = 4

STRING, ARRAY, BOOL = 8, 9, 7
SCALARS = dict(enumerate("BbHhIif?", start=0)) | {10: "Q", 11: "q", 12: "d"}
"""Metadata types by number, as struct and NumPy spell them."""

TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}
"""ggml's tensor types: name, elements in a block, bytes in a block."""
NUMBER_OF = {name: number for number, (name, _, _) in TYPES.items()}


class TensorInfo(NamedTuple):
    shape: tuple[int, ...]
    """In torch's order: GGUF's dimensions reversed."""
    type: str
    offset: int
    """From the start of the file."""
    size: int
    """In bytes."""


class Later(NamedTuple):
    """A long array that was gone through and found right."""

    kind: int
    count: int
    at: int


class HeadReader:
    """Goes through the header once; `at` is the next byte, `field` what an error is about."""

    def __init__(self, data: mmap.mmap, file: str) -> None:
        self.data = data
        self.file = file
        self.at = 0
        self.end = len(data)
        self.field = "header"
        self.elements = self.arrays = 0

    def refuse(self, problem: str, remedy: str = DAMAGED) -> Never:
        raise BadInput(self.file, self.field, problem, remedy)

    def number(self, code: str) -> Any:
        size = struct.calcsize("<" + code)
        if size > self.end - self.at:
            self.refuse(f"the file ends at byte {self.end:,}, in the middle of a number")
        if code == "?" and self.data[self.at] > 1:
            self.refuse(f"a truth value is {self.data[self.at]}, not 0 or 1")
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += size
        return value

    def string(self, longest: int) -> str:
        length = self.number("Q")
        if length > self.end - self.at:
            self.refuse(f"a string of {length:,} bytes, {self.end - self.at:,} are left in the file")
        if length > longest:
            self.refuse(f"a string of {length:,} bytes, {longest:,} is the most")
        start, self.at = self.at, self.at + length
        return self.text(self.data[start : self.at])

    def text(self, data: bytes) -> str:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            self.refuse("a string is not UTF-8")

    def head(self) -> tuple[int, int, int]:
        """Version, number of keys, number of tensors."""
        if self.data[:4] != b"GGUF":
            self.refuse(f"begins with {self.data[:4]!r}, not GGUF", "is this the right file?")
        self.at, self.field = 4, "version"
        version = self.number("I")
        if int.from_bytes(version.to_bytes(4, "little"), "big") in (1, 2, 3):
            self.refuse("the file is big-endian", "convert it: gguf_convert_endian.py FILE little")
        if version not in (2, 3):
            self.refuse(f"is {version}, ropewalk reads 2 and 3", "convert the model again with a current llama.cpp")
        counts = []
        # A key is at least its length, a letter, a type and a byte; a tensor a name, one dimension, type and offset.
        for self.field, most, least in (("tensor_count", MOST_TENSORS, 33), ("kv_count", MOST_KEYS, 14)):
            counts.append(self.number("Q"))
            if counts[-1] > most:
                self.refuse(f"is {counts[-1]:,}, {most:,} is the most")
            if counts[-1] * least > self.end - self.at:
                self.refuse(f"is {counts[-1]:,}, more than {self.end - self.at:,} bytes can hold")
        return version, counts[1], counts[0]

    def metadata(self, count: int) -> dict[str, Any]:
        """Every key with its value, long arrays as Later."""
        found: dict[str, Any] = {}
        for n in range(count):
            self.field = f"key {n}"
            key = self.string(LONGEST_KEY)
            if not key:
                self.refuse("has no name")
            self.field = key
            if key in found:
                self.refuse("is given twice", "convert the model again")
            found[key] = self.value(self.number("I"), 0)
        return found

    def value(self, kind: int, depth: int) -> Any:
        if kind in SCALARS:
            value = self.number(SCALARS[kind])
            if isinstance(value, float) and not math.isfinite(value):
                self.refuse(f"{value} is not a finite number", "convert the model again")
            return value
        if kind == STRING:
            return self.string(LONGEST_STRING)
        if kind != ARRAY:
            self.refuse(f"type {kind} is none of GGUF's 0 to 12")
        if depth == DEEPEST:
            self.refuse(f"arrays inside arrays more than {DEEPEST} deep", "is this file a model's?")
        return self.array(depth + 1)

    def array(self, depth: int) -> list[Any] | Later:
        kind, count = self.number("I"), self.number("Q")
        self.elements += count
        self.arrays += 1
        if self.arrays > MOST_ARRAYS:
            self.refuse(f"more than {MOST_ARRAYS:,} arrays", "is this file a model's?")
        if self.elements > MOST_ELEMENTS:
            self.refuse(f"an array of {count:,}: {MOST_ELEMENTS:,} elements in all arrays together is the most")
        least = struct.calcsize("<" + SCALARS[kind]) if kind in SCALARS else 8
        if count * least > self.end - self.at:
            self.refuse(f"an array of {count:,}, more than the {self.end - self.at:,} bytes left can hold")
        if kind != STRING and kind not in SCALARS:
            return [self.value(kind, depth) for _ in range(count)]
        if depth > 1 or count < LONG:
            return self.listed(kind, count)
        later = Later(kind, count, self.at)
        self.listed(kind, count, keep=False)
        return later

    def made(self, later: Later) -> list[Any]:
        self.at = later.at
        return self.listed(later.kind, later.count)

    def listed(self, kind: int, count: int, *, keep: bool = True) -> list[Any]:
        """So many values of one type; empty if only to be checked."""
        if kind == STRING:
            return self.strings(count) if keep else self.check_strings(count)
        code = "u1" if kind == BOOL else "<" + SCALARS[kind]
        values = np.frombuffer(self.data, code, count=count, offset=self.at)
        self.at += values.nbytes
        if kind == BOOL and count and values.max() > 1:
            self.refuse(f"a truth value is {values.max()}, not 0 or 1")
        if not keep:
            return []
        return (values != 0).tolist() if kind == BOOL else values.tolist()

    def strings(self, count: int, first: int = 0) -> list[str]:
        """The vocabulary's loop: nothing in it that need not be."""
        data, at, end = self.data, self.at, self.end
        length_at, longest = struct.Struct("<Q").unpack_from, LONGEST_ELEMENT
        found: list[str] = []
        number = first
        try:
            for number in range(first, first + count):
                start = at + 8
                if start > end:
                    self.refuse(f"the file ends at byte {end:,}, in the middle of an array of strings")
                length = length_at(data, at)[0]
                at = start + length
                if at > end:
                    self.refuse(f"a string of {length:,} bytes, {end - start:,} are left in the file")
                if length > longest:
                    self.refuse(f"string {number:,} has {length:,} bytes, {longest:,} is the most")
                found.append(data[start:at].decode())
        except UnicodeDecodeError:
            self.refuse(f"string {number:,} is not UTF-8")
        self.at = at
        return found

    def check_strings(self, count: int) -> list[str]:
        """Past so many strings; a piece that is not plainly right goes through the loop that says what is wrong."""
        for first in range(0, count, PIECE):
            piece = min(PIECE, count - first)
            if (after := self.after_short_strings(piece)) is None:
                self.strings(piece, first)
            else:
                self.at = after
        return []

    def after_short_strings(self, count: int) -> int | None:
        """Where so many strings end, each of UTF-8 and less than 256 bytes; None if they are not."""
        data, at, starts = self.data, self.at, []
        try:
            for _ in range(count):
                starts.append(at)
                at += 8 + data[at]
        except IndexError:
            return None
        if at > self.end:
            return None
        piece = np.frombuffer(data, np.uint8, count=at - self.at, offset=self.at)
        heads = np.array(starts) - self.at
        if any(piece[heads + byte].any() for byte in range(1, 8)):
            return None
        of_text = np.ones(len(piece), bool)
        for byte in range(8):
            of_text[heads + byte] = False
        try:
            piece[of_text].tobytes().decode()
        except UnicodeDecodeError:
            return None
        # All of it is UTF-8; so is each string, if none begins inside a character.
        firsts = piece[heads[piece[heads] > 0] + 8]
        return None if ((firsts & 0xC0) == 0x80).any() else at

    def tensors(self, count: int, metadata: dict[str, Any]) -> dict[str, TensorInfo]:
        alignment = self.alignment(metadata)
        found: dict[str, TensorInfo] = {}
        for n in range(count):
            self.field = f"tensor {n}"
            name = self.string(LONGEST_NAME)
            if not name:
                self.refuse("has no name")
            self.field = name
            if name in found:
                self.refuse("is given twice", "convert the model again")
            found[name] = self.tensor(alignment)
        data_start = -(-self.at // alignment) * alignment
        expected = data_start
        for name, info in sorted(found.items(), key=lambda item: item[1].offset):
            self.field = name
            start = data_start + info.offset
            if start < expected:
                self.refuse(f"begins at byte {start:,}, inside the tensor before it, which ends at {expected:,}")
            if start - expected >= alignment:
                self.refuse(f"begins at byte {start:,}, with a hole behind the tensor before it at {expected:,}")
            expected = start + info.size
            if expected > self.end:
                self.refuse(f"ends at byte {expected:,}, the file at {self.end:,}")
            found[name] = info._replace(offset=start)
        return found

    def alignment(self, metadata: dict[str, Any]) -> int:
        self.field = "general.alignment"
        value = metadata.get(self.field, 32)
        if type(value) is not int or not 0 < value <= LARGEST_ALIGNMENT or value & (value - 1):
            self.refuse(f"is {plain(value, 50)}, not a power of two up to {LARGEST_ALIGNMENT}")
        return value

    def tensor(self, alignment: int) -> TensorInfo:
        """One entry of the list, its offset still from the start of the data."""
        axes = self.number("I")
        if not 1 <= axes <= MOST_AXES:
            self.refuse(f"has {axes:,} dimensions, not 1 to {MOST_AXES}")
        sizes = [self.number("Q") for _ in range(axes)]
        if 0 in sizes:
            self.refuse(f"has no elements ({' x '.join(map(str, sizes))})")
        number = self.number("I")
        if number not in TYPES:
            self.refuse(f"has type {number}, which ropewalk does not know", "convert it with llama-quantize")
        kind, block, width = TYPES[number]
        offset = self.number("Q")
        if sizes[0] % block:
            self.refuse(f"has rows of {sizes[0]:,}, not a multiple of {kind}'s block of {block}")
        if offset % alignment:
            self.refuse(f"has offset {offset:,}, not a multiple of the alignment {alignment}")
        size = math.prod(sizes) // block * width
        if offset + size > self.end - self.at:
            self.refuse(f"needs {size:,} bytes from {offset:,} on, {self.end - self.at:,} are left in the file")
        return TensorInfo(tuple(reversed(sizes)), kind, offset, size)
