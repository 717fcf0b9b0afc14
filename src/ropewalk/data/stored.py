"""Prepared tokens, read where they lie on disk: nothing that grows with the data is held in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from ropewalk.data.batch import Ints
from ropewalk.data.layout import HEADER, BadData, names

MOST_OPEN = 256
"""Files mapped at a time: a corpus of a trillion tokens has a thousand shards, a process a thousand handles."""


class Documents:
    """One stream of one split: documents by number, tokens by their place in the whole stream."""

    def __init__(self, folder: Path, split: str, stream: str, about: dict[str, Any]) -> None:
        self.folder, self.stream, self.dtype = folder / split, stream, np.dtype(about["dtype"])
        self.vocabulary, self.fingerprint = int(about["vocabulary"]), str(about["fingerprint"])
        shards = about["splits"][split]["streams"][stream]["shards"]
        self.tokens_before = [0, *accumulate(int(shard["tokens"]) for shard in shards)]
        self.documents_before = [0, *accumulate(int(shard["documents"]) for shard in shards)]
        self.tokens, self.documents = self.tokens_before[-1], self.documents_before[-1]
        self._check(shards)
        self._tokens = lru_cache(MOST_OPEN)(self._map_tokens)
        self._offsets = lru_cache(MOST_OPEN)(self._map_offsets)

    def span(self, start: int, stop: int) -> Ints:
        """The tokens from one place to another, over the borders of shards."""
        parts = [self._tokens(shard)[a:b] for shard, a, b in self._within(self.tokens_before, start, stop)]
        found = np.concatenate([part.astype(np.int64) for part in parts] or [np.zeros(0, np.int64)])
        if len(found) and (worst := int(found.max())) >= self.vocabulary:
            shard = bisect_right(self.tokens_before, start + int(found.argmax())) - 1
            raise BadData(
                f"{self.folder / names(self.stream, shard)[0]}: token {worst} at place {start + int(found.argmax())}, "
                f"the vocabulary has {self.vocabulary}; the file is not as it was written, prepare the data again"
            )
        return found

    def bounds(self, first: int, last: int) -> Ints:
        """Where documents first..last-1 start in the stream, and where the last of them stops."""
        parts = [
            self._offsets(shard)[a:b].astype(np.int64) + self.tokens_before[shard]
            for shard, a, b in self._within(self.documents_before, first, last)
        ]
        stop = self.start(last)
        return np.concatenate([*parts, np.array([stop], np.int64)])

    def start(self, document: int) -> int:
        """Where a document starts in the stream; one past the last starts at its end."""
        if document >= self.documents:
            return self.tokens
        shard = bisect_right(self.documents_before, document) - 1
        return int(self._offsets(shard)[document - self.documents_before[shard]]) + self.tokens_before[shard]

    def starts(self, start: int, stop: int) -> Ints:
        """The places in start..stop-1 where a document starts."""
        found = [np.zeros(0, np.int64)]
        for shard, a, b in self._within(self.tokens_before, start, stop):
            offsets = self._offsets(shard)
            low, high = np.searchsorted(offsets[:-1], [a, b])
            found.append(offsets[low:high].astype(np.int64) + self.tokens_before[shard])
        return np.concatenate(found)

    def _within(self, before: list[int], start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """The shards that start..stop-1 lies in, with the part of each."""
        shard = bisect_right(before, start) - 1
        while start < stop and shard + 1 < len(before):
            end = min(stop, before[shard + 1])
            if start < end:
                yield shard, start - before[shard], end - before[shard]
            start, shard = max(start, end), shard + 1

    def _map_tokens(self, shard: int) -> np.ndarray:
        return np.memmap(self.folder / names(self.stream, shard)[0], dtype=self.dtype, mode="r")

    def _map_offsets(self, shard: int) -> np.ndarray:
        # Not np.load, which parses the header with ast: in threads that fails before CPython 3.11.8 (gh-106905).
        return np.memmap(self.folder / names(self.stream, shard)[1], dtype=np.dtype("<i8"), mode="r", offset=HEADER)

    def _check(self, shards: list[dict[str, Any]]) -> None:
        """Every file is there and as long as it was; what is inside is hashed by `ropewalk data show --check`."""
        for number, shard in enumerate(shards):
            wanted = (int(shard["tokens"]) * self.dtype.itemsize, HEADER + 8 * (int(shard["documents"]) + 1))
            for name, size in zip(names(self.stream, number), wanted, strict=True):
                file = self.folder / name
                have = file.stat().st_size if file.is_file() else None
                if have != size:
                    state = "is missing" if have is None else f"has {have:,} bytes, {size:,} were written"
                    raise BadData(f"{file} {state}; prepare the data again, or copy it again from where it is whole")
