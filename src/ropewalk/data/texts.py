"""Rows made of documents.

    stream      |a a a a b b|b b b c c c|      documents end to end, cut every `length` tokens
    document    |a a a a - -|b b b b b -|      a sequence is a piece of one document

A piece starts at position 0 and, isolated, sees only itself. The target of a token is the next one of its document,
also where that lies in the next sequence; after a document's last token nothing is asked.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ropewalk.data.batch import IGNORE, Ints, Row, Side, filled, side
from ropewalk.data.config import TextData
from ropewalk.data.index import Counted, indexed
from ropewalk.positions import PAD

BLOCK = 4096
"""Documents whose rows are counted together, so that finding a row needs one number for each block in memory."""


class Stream(Counted, Protocol):
    """Documents end to end: those of a directory, or some of them."""

    tokens: int

    def span(self, start: int, stop: int) -> Ints: ...
    def starts(self, start: int, stop: int) -> Ints: ...
    def bounds(self, first: int, last: int) -> Ints: ...


class StreamRows:
    def __init__(self, documents: Stream, config: TextData, fill: int) -> None:
        self.documents, self.width, self.fill, self.plain = documents, config.length, fill, not config.isolate
        whole, rest = divmod(documents.tokens, self.width)
        # A row known to hold no padding cannot be filled up: there the last tokens are left out.
        self.count = whole if self.plain else whole + (rest > 0)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> Row:
        start = number * self.width
        found = self.documents.span(start, min(start + self.width + 1, self.documents.tokens))
        begins = np.zeros(self.width + 1, bool)
        begins[self.documents.starts(start, start + len(found)) - start] = True
        tokens = np.full(self.width + 1, self.fill, np.int64)
        tokens[: len(found)] = found
        known = np.arange(1, self.width + 1) < len(found)
        target = np.where(known & ~begins[1:], tokens[1:], IGNORE)
        place = np.arange(self.width)
        if self.plain:
            return Row(number, Side(tokens[:-1], place, np.zeros(self.width, np.int64)), target)
        begins[0] = True
        first = np.maximum.accumulate(np.where(begins[:-1], place, 0))
        there = place < len(found)
        segment = np.where(there, np.cumsum(begins[:-1]) - 1, PAD)
        return Row(number, Side(tokens[:-1], np.where(there, place - first, 0), segment), target)


class DocumentRows:
    plain = False

    def __init__(self, documents: Stream, config: TextData, fill: int) -> None:
        self.documents, self.width, self.fill = documents, config.length, fill
        blocks = range(0, documents.documents, BLOCK)
        self.before = indexed(
            documents,
            f"document-{self.width}",
            lambda found: found.shape == (len(blocks) + 1,),
            lambda: np.cumsum([0, *(int(self._pieces(first)[1].sum()) for first in blocks)]),
        )

    def __len__(self) -> int:
        return int(self.before[-1])

    def __getitem__(self, number: int) -> Row:
        block = int(np.searchsorted(self.before, number, side="right")) - 1
        bounds, pieces = self._pieces(block * BLOCK)
        before = np.cumsum(pieces)
        left = number - int(self.before[block])
        document = int(np.searchsorted(before, left, side="right"))
        piece = left - int(before[document] - pieces[document])
        start = int(bounds[document]) + piece * self.width
        found = self.documents.span(start, min(start + self.width + 1, int(bounds[document + 1])))
        return Row(number, side([found[: self.width]], self.width, self.fill), filled([found[1:]], self.width))

    def _pieces(self, first: int) -> tuple[Ints, Ints]:
        """Of a block of documents: where they start and stop, and how many rows each takes."""
        bounds = self.documents.bounds(first, min(first + BLOCK, self.documents.documents))
        return bounds, -(-np.diff(bounds) // self.width)
