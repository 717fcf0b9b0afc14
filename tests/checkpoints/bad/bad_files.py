"""The corpus of bad files: written by hand, and mutants of valid models; the same files for the same seed everywhere.

    corpus(start, count) -> cases        the hand-made ones first, then mutants without end

A case is a few files and what has to come of them: `bad` is refused, `valid` loads, `either` is a mutant that may have
stayed valid, and must then really load. Who answers, and how that is judged, is in bad_files_run.py.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import cache
from typing import Any, Literal, NamedTuple

SEED = 0

Expected = Literal["bad", "valid", "either"]


class Link(NamedTuple):
    """A symbolic link."""

    to: str


class Hollow(NamedTuple):
    """A file of so many bytes, of which only the first are written."""

    size: int
    start: bytes = b""


class Pipe(NamedTuple):
    """A named pipe: to open it is to wait."""


class Folder(NamedTuple):
    """A directory where a file should be."""


class Late(NamedTuple):
    """A large file, made where it is written: a process that held it would pass its memory on to its children."""

    make: Callable[[], bytes]


Content = bytes | Link | Hollow | Pipe | Folder | Late


class Case(NamedTuple):
    name: str
    files: Mapping[str, Content]
    expected: Expected
    target: str = ""
    """The file that is opened; empty: the directory."""
    entries: tuple[str, ...] = ("sniff", "weights")
    """Which of bad_files_run's entry points answer."""


WEIGHTS = ("sniff", "weights")
CONFIG = ("sniff", "resolve", "inspect")
MODEL = ("sniff", "resolve", "weights", "load")
TOKENIZER = ("sniff", "tokenizer", "about")


def corpus(start: int, count: int, seed: int = SEED) -> Iterator[Case]:
    made = hand_made()
    for number in range(start, start + count):
        yield made[number] if number < len(made) else mutant(number, seed)


@cache
def hand_made() -> tuple[Case, ...]:
    from tests.checkpoints import valid_files
    from tests.checkpoints.bad import (
        bad_configs,
        bad_directories,
        bad_gguf,
        bad_own,
        bad_safetensors,
        bad_tokenizers,
    )

    parts = (valid_files, bad_safetensors, bad_gguf, bad_configs, bad_directories, bad_tokenizers, bad_own)
    every = tuple(case for part in parts for case in part.cases())
    assert len({case.name for case in every}) == len(every)
    return every


@cache
def seeds() -> tuple[Case, ...]:
    from tests.checkpoints import valid_files

    return tuple(case for case in valid_files.cases() if all(isinstance(f, bytes) for f in case.files.values()))


def mutant(number: int, seed: int = SEED) -> Case:
    """One valid model with one of its files changed in one of the ways files get changed."""
    rng = random.Random(f"{seed}:{number}")
    parent = rng.choice(seeds())
    file = rng.choice(sorted(parent.files))
    before = parent.files[file]
    assert isinstance(before, bytes)
    ways = [flip, cut, splice, length]
    if file.endswith(".json"):
        ways += [swap, swap, swap]
    way = rng.choice(ways)
    name = f"mutant {number}: {way.__name__} {parent.name.removeprefix('valid: ')} {file}"
    return parent._replace(name=name, files={**parent.files, file: way(before, rng)}, expected="either")


def flip(data: bytes, rng: random.Random) -> bytes:
    """One to eight bits, half of the time near the start, where the header is."""
    changed = bytearray(data)
    reach = len(data) if rng.random() < 0.5 else min(len(data), 512)
    for _ in range(rng.randint(1, 8)):
        changed[rng.randrange(reach)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def splice(data: bytes, rng: random.Random) -> bytes:
    """A piece of this or another file over, or between, what was there."""
    other = rng.choice([data, *(f for case in seeds() for f in case.files.values() if isinstance(f, bytes))])
    start = rng.randrange(len(other))
    piece = other[start : start + rng.randint(1, 64)]
    at = rng.randrange(len(data))
    return data[:at] + piece + data[at + (len(piece) if rng.random() < 0.5 else 0) :]


def length(data: bytes, rng: random.Random) -> bytes:
    """A number of 4 or 8 bytes near the start, one more or less, or far out of range."""
    code, width = rng.choice([("<I", 4), ("<Q", 8)])
    at = rng.choice([0, 4, 8, 16, 24, *[rng.randrange(min(len(data), 1024))] * 4])
    if at + width > len(data):
        return data + b"\0"
    (value,) = struct.unpack_from(code, data, at)
    most = (1 << 8 * width) - 1
    options = [value + 1, value - 1, value + (1 << 31), value ^ (1 << 31), 1 << 31, (1 << 31) - 1, 0, most, 1 << 62]
    changed = rng.choice([*options, value + (1 << 63), 1 << 63]) & most
    return data[:at] + struct.pack(code, changed) + data[at + width :]


GARBAGE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 3, 7, 0.5, -0.5, 1e-30, 1e30, 1e300, 1e308, 2**31, 2**63, 2**64, 10**39),
    *("", "8", "yarn", "linear", "default", "llama", "../x", "\x1b[31m", "\u202e", "x" * 10_000),
    *([], {}, [1], [1.0] * 8, [[]], [None], {"a": 1}, {"rope_type": "yarn"}, {"type": "linear", "factor": 2.0}),
    *({"full_attention": {}}, {"full_attention": None}, ["full_attention"], ["full_attention", "sliding_attention"]),
)


def swap(data: bytes, rng: random.Random) -> bytes:
    """One to three values of a JSON object replaced, taken away, moved, or put where none was."""
    top = json.loads(data)
    for _ in range(rng.randint(1, 3)):
        owner = rng.choice(list(objects(top)))
        key = rng.choice([*owner, "rope_scaling", "rope_parameters", "rope_theta", "layer_types", "sliding_window"])
        match rng.randrange(4):
            case 0:
                owner.pop(key, None)
            case 1:
                other = rng.choice(list(objects(top)))
                owner[key] = deepcopy(other.get(key, rng.choice(list(other.values()) or [None])))
            case _:
                owner[key] = deepcopy(rng.choice(GARBAGE))
    return json.dumps(top).encode()


def objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for child in value.values():
            yield from objects(child)
