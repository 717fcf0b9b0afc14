"""Sequences of several data sets in given shares, and long documents more often than others.

Which set gives sequence n, and which of its own sequences that is, follows from n and the weights alone: of the first n
each has its share to within one for each set. So an order that is mixed is still a function and not a list.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

from ropewalk.data.batch import Ints, Row
from ropewalk.data.index import indexed
from ropewalk.data.stored import Documents
from ropewalk.data.texts import BLOCK

ENDLESS = 2**53
"""Sequences of a run: past it Grain's count of batches, a float, is not exact, and of single sequences overflows."""


class MixedRows:
    """The sequences of several sets as one, numbered one set after the other."""

    def __init__(self, parts: Sequence[Any], weights: Sequence[float], *, once: bool) -> None:
        """once: as many as there are before any comes a second time, for evaluation."""
        shares = [Fraction(str(weight)) for weight in weights]
        whole = lcm(*(share.denominator for share in shares))
        self.parts, self.weights = parts, [int(share * whole) for share in shares]
        self.first = np.cumsum([0, *(len(part) for part in parts)]).tolist()
        self.width, self.plain = parts[0].width, all(part.plain for part in parts)
        self.count = self._once() if once else self.first[-1]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> Row:
        part = bisect_right(self.first, number) - 1
        return self.parts[part][number - self.first[part]]._replace(number=number)

    def _once(self) -> int:
        most = min(len(p) * sum(self.weights) // w for p, w in zip(self.parts, self.weights, strict=True))
        while any(given > len(part) for given, part in zip(counts(most, self.weights), self.parts, strict=True)):
            most -= 1
        return most


class Mixed:
    """Orders of several sets, each without end, as one."""

    def __init__(self, orders: Sequence[Any], rows: MixedRows) -> None:
        self.orders, self.rows = orders, rows

    def __len__(self) -> int:
        return ENDLESS

    def __getitem__(self, place: int) -> Row:
        before, after = counts(place, self.rows.weights), counts(place + 1, self.rows.weights)
        part = next(n for n, (one, two) in enumerate(zip(before, after, strict=True)) if one != two)
        row = self.orders[part][before[part]]
        return row._replace(number=row.number + self.rows.first[part])


def counts(n: int, weights: Sequence[int]) -> list[int]:
    """How many of the first n sequences each set gives."""
    found, rest = [], sum(weights)
    for weight in weights:
        left = n * (rest - weight) // rest
        found.append(n - left)
        n, rest = left, rest - weight
    return found


class Repeated:
    """All sequences, and those of long documents some more times."""

    def __init__(self, rows: Any, long: Any, times: int) -> None:
        self.rows, self.long, self.times = rows, long, times
        self.width, self.plain = rows.width, rows.plain

    def __len__(self) -> int:
        return len(self.rows) + (self.times - 1) * len(self.long)

    def __getitem__(self, number: int) -> Row:
        over = number - len(self.rows)
        # Each time by a number of its own, so that it has dropout masks of its own.
        return self.rows[number] if over < 0 else self.long[over % len(self.long)]._replace(number=number)


class LongDocuments:
    """The documents of at least so many tokens, as one stream; two numbers in memory for each block of documents."""

    def __init__(self, documents: Documents, at_least: int) -> None:
        self.source, self.at_least = documents, at_least
        self.folder = documents.folder
        self.fingerprint = hashlib.sha256(f"{documents.fingerprint} {at_least}".encode()).hexdigest()
        count = -(-documents.documents // BLOCK)
        self.documents_before, self.tokens_before = indexed(
            documents, f"long-{at_least}", lambda found: found.shape == (2, count + 1), lambda: self._counted(count)
        )
        self.documents, self.tokens = int(self.documents_before[-1]), int(self.tokens_before[-1])

    def _counted(self, count: int) -> Ints:
        """Long documents before each block, and their tokens."""
        blocks = [self._block(number) for number in range(count)]
        tokens = _before([int((stops - starts).sum()) for starts, stops in blocks])
        return np.stack([_before([len(starts) for starts, _ in blocks]), tokens])

    def span(self, start: int, stop: int) -> Ints:
        """The tokens from one place to another."""
        found = [np.zeros(0, np.int64)]
        for here, first, last in self._documents(start, stop):
            a, b = max(start - here, 0), min(stop - here, last - first)
            found.append(self.source.span(first + a, first + b))
        return np.concatenate(found)

    def starts(self, start: int, stop: int) -> Ints:
        """The places in start..stop-1 where a document starts."""
        return np.array([here for here, _, _ in self._documents(start, stop) if here >= start], np.int64)

    def bounds(self, first: int, last: int) -> Ints:
        """Where documents first..last-1 start, and where the last of them stops."""
        low = int(np.searchsorted(self.documents_before, first, side="right")) - 1
        high = int(np.searchsorted(self.documents_before, last, side="left"))
        blocks = [self._block(number) for number in range(low, high)]
        sizes = np.concatenate([stops - starts for starts, stops in blocks])
        places = int(self.tokens_before[low]) + _before(sizes)
        before = int(self.documents_before[low])
        return places[first - before : last - before + 1]

    def _documents(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """Of each that start..stop-1 touches: its place here, and where it starts and stops in the source."""
        found, number = [], int(np.searchsorted(self.tokens_before, start, side="right")) - 1
        while number < len(self.tokens_before) - 1 and self.tokens_before[number] < stop:
            starts, stops = self._block(number)
            here = int(self.tokens_before[number]) + _before(stops - starts)
            low, high = np.searchsorted(here[1:], start, side="right"), np.searchsorted(here[:-1], stop)
            found += [(int(here[n]), int(starts[n]), int(stops[n])) for n in range(low, high)]
            number += 1
        return found

    def _block(self, number: int) -> tuple[Ints, Ints]:
        """Where the long ones of a block start and stop in the source."""
        bounds = self.source.bounds(number * BLOCK, min((number + 1) * BLOCK, self.source.documents))
        long = np.diff(bounds) >= self.at_least
        return bounds[:-1][long], bounds[1:][long]


def _before(sizes: Any) -> Ints:
    """Where each of these begins when they lie end to end, and where the last stops."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(sizes, np.int64))])
