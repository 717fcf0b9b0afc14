"""Sequences made of pairs: as many in one, in the order they are stored, as fit on both sides.

    source   |A A A . B B .|        s A t, the encoder reads: tokens and end
    tokens   |< a a < b b b|        the decoder reads: start and tokens
    target   |a a . b b b .|        and is asked for: tokens and end

A pair has the same segment on both sides, so the decoder's cross-attention sees its own source and no other.
"""

from __future__ import annotations

from array import array

import numpy as np

from ropewalk.data.batch import Ints, Row, filled, side
from ropewalk.data.config import PairsData
from ropewalk.data.index import indexed
from ropewalk.data.stored import Documents

BLOCK = 1 << 20
"""Pairs whose borders are looked at together while rows are laid out."""


class PairRows:
    plain = False

    def __init__(self, source: Documents, target: Documents, config: PairsData, fill: int) -> None:
        self.source, self.target, self.fill = source, target, fill
        self.width, self.source_width = config.length, config.source_length
        self.spans = indexed(
            source,
            f"pairs-{self.width}-{self.source_width}",
            lambda found: found.shape[1:] == (2,) and found[-1:, 1].tolist() == [source.documents],
            self._layout,
        )
        self.left_out = int(self.spans[-1, 0])

    def __len__(self) -> int:
        return len(self.spans) - 1

    def __getitem__(self, number: int) -> Row:
        first, last = map(int, self.spans[number])
        source = [text[1:] for text in _texts(self.source, first, last)]
        target = _texts(self.target, first, last)
        return Row(
            number,
            side([text[:-1] for text in target], self.width, self.fill),
            filled([text[1:] for text in target], self.width),
            side(source, self.source_width, self.fill),
        )

    def _layout(self) -> Ints:
        """The first pair of each row and the one after its last; in the end how many pairs fit in no sequence, and how
        many there are."""
        found, left_out, start = array("q"), 0, 0
        count = self.source.documents
        while start < count:
            end = min(start + BLOCK, count)
            # One token of each text is not read on its side: a source's start, a target's end.
            sides = [
                (self.source.bounds(start, end) - np.arange(start, end + 1), self.source_width),
                (self.target.bounds(start, end) - np.arange(start, end + 1), self.width),
            ]
            # Of a row that begins with each pair: the pair after its last.
            stops = np.minimum(*(np.searchsorted(b, b[:-1] + width, side="right") - 1 for b, width in sides)).tolist()
            at, size = 0, end - start
            while at < size:
                stop = stops[at]
                if stop == at:
                    left_out, at = left_out + 1, at + 1
                    continue
                if stop == size and end < count and at > 0:
                    break  # the next block may have more for this row
                found.extend((start + at, start + stop))
                at = stop
            start += at
        found.extend((left_out, count))
        return np.array(found, np.int64).reshape(-1, 2)


def _texts(documents: Documents, first: int, last: int) -> list[Ints]:
    bounds = documents.bounds(first, last)
    tokens = documents.span(int(bounds[0]), int(bounds[-1]))
    return np.split(tokens, bounds[1:-1] - bounds[0])
