"""What is done to one part of the input, by whichever process has it: each a pure function of the part.

A part is some files, or spans of them, of about the same size. The survey notes where a long file can be cut, so parts
are the same however many workers share them, and what they give is put together in their order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import chain, pairwise, tee
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ropewalk.data.layout import STREAMS, file_hash
from ropewalk.data.options import Options
from ropewalk.data.prepare import inputs
from ropewalk.data.prepare.tokenizer import Words
from ropewalk.data.urls import Located

T = TypeVar("T")
MOST_PARTS = 1 << 18
"""Where each begins is in memory."""


class Asked(NamedTuple):
    """What all parts have in common."""

    options: Options
    valid: float
    size: int = 0
    """Characters after which a file can be cut."""
    share: float = 0.0
    """Of the training text, for a tokenizer."""
    tokenizer: str = ""
    where: str = ""
    """Where the tokenizer is from, for errors."""
    seen: Callable[[int], None] | None = None
    """Told how many bytes of a file were read, where it is this process that reads."""


class Span(NamedTuple):
    file: Located
    start: inputs.Place = inputs.Place()
    stop: inputs.Place | None = None
    """None: to the end."""


class Encoded(NamedTuple):
    tokens: np.ndarray
    lengths: np.ndarray
    """Tokens of each document."""
    text: int
    """Bytes."""


def grouped(items: Iterable[T], sizes: Iterable[int], least: int) -> Iterator[list[T]]:
    """Items put together until they are that large."""
    held: list[T] = []
    total = 0
    for item, size in zip(items, sizes, strict=True):
        held.append(item)
        total += size
        if total >= least:
            yield held
            held, total = [], 0
    if held:
        yield held


def part_size(options: Options, total: int) -> int:
    """Characters of a part: as many as are encoded at a time, more of a text that would have too many parts."""
    return max(options.chunk, total // MOST_PARTS)


def spans(files: list[Located], surveyed: list[dict[str, Any]], size: int) -> list[list[Span]]:
    """The parts that all files are cut into."""
    cut: list[Span] = []
    sizes: list[int] = []
    for file, found in zip(files, surveyed, strict=True):
        places = [inputs.Place(), *(inputs.Place(*place) for place in found["cuts"]), None]
        cut += [Span(file, start or inputs.Place(), stop) for start, stop in pairwise(places)]
        rest = found["bytes"] - size * len(found["cuts"])
        sizes += [*([size] * len(found["cuts"])), max(rest, 1)]
    return list(grouped(cut, sizes, size))


def survey(asked: Asked, files: list[Located]) -> list[dict[str, Any]]:
    """Of each file its hash, how much is in it, and where it can be cut."""
    return [_survey(asked, file) for file in files]


def _survey(asked: Asked, file: Located) -> dict[str, Any]:
    options = asked.options
    found: dict[str, Any] = {"name": file.name, "sha256": "", "bytes": 0, "empty": 0, "train": 0, "valid": 0}
    found |= {"least": 1.0, "most": 0.0, "cuts": []}
    characters = 0
    for count, item in enumerate(inputs.read(file, options.kind, options.document)):
        characters += sum(map(len, item.texts)) + 1
        if characters >= asked.size:
            found["cuts"].append(list(item.after))
            characters = 0
        if asked.seen and count % 1000 == 0:
            asked.seen(item.after.offset)
        if not all(text.strip() for text in item.texts):
            found["empty"] += 1
            continue
        found[split(asked, item.texts)] += 1
        share = _share(_key(options.kind, item.texts), 0)
        found["least"], found["most"] = min(found["least"], share), max(found["most"], share)
        found["bytes"] += sum(len(text.encode()) for text in item.texts)
    found["sha256"] = file_hash(file)
    return found


def sample(asked: Asked, part: list[Span]) -> list[str]:
    """Training text for a tokenizer, some of it where there is much."""
    return [
        text
        for texts in _texts(asked, part)
        if split(asked, texts) == "train" and _share(texts[0], 8) < asked.share
        for text in texts
    ]


def encode(asked: Asked, part: list[Span]) -> dict[str, Encoded]:
    """The tokens of a part, by split and stream."""
    words = _words(asked.tokenizer, asked.where, tuple(asked.options.special().items()))
    streams = STREAMS[asked.options.kind]
    held: dict[str, list[tuple[np.ndarray, int]]] = {}
    every, lengths = tee(_texts(asked, part))
    for items in grouped(every, (sum(map(len, texts)) + 1 for texts in lengths), asked.options.chunk):
        ids = iter(words.encode(list(chain.from_iterable(items))))
        for texts in items:
            chosen = split(asked, texts)
            for stream, text in zip(streams, texts, strict=True):
                held.setdefault(f"{chosen}/{stream}", []).append((next(ids), len(text.encode())))
    return {
        name: Encoded(
            np.concatenate([tokens for tokens, _ in found]),
            np.array([len(tokens) for tokens, _ in found], np.int64),
            sum(size for _, size in found),
        )
        for name, found in held.items()
    }


def split(asked: Asked, texts: tuple[str, ...]) -> str:
    return "valid" if _share(_key(asked.options.kind, texts), 0) < asked.valid else "train"


@lru_cache(1)
def _words(source: str, where: str, special: tuple[tuple[str, str | None], ...]) -> Words:
    return Words(source, where, dict(special))


def _texts(asked: Asked, part: list[Span]) -> Iterator[tuple[str, ...]]:
    for span in part:
        for item in inputs.read(span.file, asked.options.kind, asked.options.document, span.start):
            if all(text.strip() for text in item.texts):
                yield item.texts
            if item.after == span.stop:
                break


def _key(kind: str, texts: tuple[str, ...]) -> str:
    return texts[0] if kind == "text" else " ".join(texts[0].casefold().split())


def _share(text: str, start: int) -> float:
    """A number in [0, 1) that a text always has."""
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[start : start + 8], "big") / 2**64
