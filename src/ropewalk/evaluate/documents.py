"""Texts to measure on, as tokens of one model, and which of them can show whether far text is used.

A document is used at every length or at none: a curve over lengths must not be a curve over documents.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ropewalk.evaluate.passage import Numbers


@dataclass(frozen=True, eq=False)
class Document:
    name: str
    digest: str
    """SHA-256 of the text: reports name documents and never quote them."""
    tokens: Numbers
    bytes: int
    """Of the text that these tokens spell, for bits per byte."""

    def read_of(self, text: str) -> str:
        """The part of its text that these tokens spell."""
        return text.encode()[: self.bytes].decode(errors="ignore")


def read(paths: Sequence[Path], encode: Callable[[str], Sequence[int]], *, longest: int, most: int) -> list[Document]:
    """The first `most` documents with at least `longest` tokens, each cut to its first `longest`."""
    found: list[Document] = []
    short = 0
    for name, text in texts(paths):
        document = cut(name, text, encode, longest)
        if document is None:
            short += 1
            continue
        found.append(document)
        if len(found) == most:
            break
    if not found:
        raise ValueError(
            f"no document has {longest:,} tokens ({short} are shorter); give longer documents, or a shorter length"
        )
    return found


def cut(name: str, text: str, encode: Callable[[str], Sequence[int]], longest: int) -> Document | None:
    """The first `longest` tokens of a text; None where it has fewer."""
    size = len(text.encode())
    # A token spells at least one byte of UTF-8, so a text of fewer bytes has too few tokens.
    if size < longest:
        return None
    tokens = np.asarray(encode(text), dtype=np.int64)
    if len(tokens) < longest:
        return None
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Document(name, digest, tokens[:longest], round(longest / len(tokens) * size))


def texts(paths: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """A .txt or .md file is a document; each line of a .jsonl file is one, under "text". As `data prepare` reads them:
    a byte order mark is no part of the text, and blank lines of a .jsonl file are none."""
    for path in paths:
        if path.is_dir():
            held = sorted(file for file in path.rglob("*") if file.suffix in (".txt", ".md", ".jsonl"))
            if not held:
                raise ValueError(f"{path} holds no .txt, .md or .jsonl file; give the directory or file of the texts")
            yield from texts(held)
            continue
        if not path.exists():
            raise ValueError(f"{path} does not exist; give a .txt, .md or .jsonl file, or a directory of them")
        try:
            if path.suffix == ".jsonl":
                yield from _lines(path)
            else:
                yield path.name, path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start:,})") from None


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                text = json.loads(line)["text"]
            except (ValueError, KeyError, TypeError):
                text = None
            if not isinstance(text, str):
                raise ValueError(f'{path}:{number}: not a JSON object with a text under "text"')
            if not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text):
                raise ValueError(f"{path}:{number}: the text has half of a surrogate pair, which is no character")
            yield f"{path.name}:{number}", text


def far_places(tokens: Numbers, tail: int, farther: int) -> Numbers:
    """Numbers of tail tokens that repeat a pair of tokens last seen more than `farther` tokens back.

    Where (previous token, token) occurred far back and not nearer, copying across the old limit can help. The rule uses
    the text alone, so the places are the same for every candidate.
    """
    last: dict[tuple[int, int], int] = {}
    found = []
    start = len(tokens) - tail
    for place in range(1, len(tokens)):
        pair = (int(tokens[place - 1]), int(tokens[place]))
        if place >= start and pair in last and place - last[pair] > farther:
            found.append(place - start)
        last[pair] = place
    return np.asarray(found, dtype=np.int64)
