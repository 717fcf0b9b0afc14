"""Sequences made of pairs: as many in one, in the order they are stored, as fit on both sides.

    source   |A A A . B B .|        s A t, the encoder reads: tokens and end
    tokens   |< a a < b b b|        the decoder reads: start and tokens
    target   |a a . b b b .|        and is asked for: tokens and end

A pair has the same segment on both sides, so the decoder's cross-attention sees its own source and no other.
"""

from __future__ import annotations

import numpy as np

from ropewalk.data.batch import Ints, Row, filled, side
from ropewalk.data.config import PairsData
from ropewalk.data.stored import Documents

BLOCK = 1 << 20
"""Pairs whose borders are looked at together while rows are laid out."""


class PairRows:
    plain = False

    def __init__(self, source: Documents, target: Documents, config: PairsData, fill: int) -> None:
        self.source, self.target, self.fill = source, target, fill
        self.width, self.source_width = config.length, config.source_length
        self.first, self.last, self.left_out = self._layout()

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, number: int) -> Row:
        first, last = int(self.first[number]), int(self.last[number])
        source = [text[1:] for text in _texts(self.source, first, last)]
        target = _texts(self.target, first, last)
        return Row(
            number,
            side([text[:-1] for text in target], self.width, self.fill),
            filled([text[1:] for text in target], self.width),
            side(source, self.source_width, self.fill),
        )

    def _layout(self) -> tuple[Ints, Ints, int]:
        """The first pair of each row and the one after its last; how many pairs fit in no sequence."""
        first, last, left_out, start = [], [], 0, 0
        count = self.source.documents
        while start < count:
            end = min(start + BLOCK, count)
            # One token of each text is not read on its side: a source's start, a target's end.
            sides = [
                (self.source.bounds(start, end) - np.arange(start, end + 1), self.source_width),
                (self.target.bounds(start, end) - np.arange(start, end + 1), self.width),
            ]
            at, size = 0, end - start
            while at < size:
                stop = min(int(np.searchsorted(b, b[at] + width, side="right")) - 1 for b, width in sides)
                if stop == at:
                    left_out, at = left_out + 1, at + 1
                    continue
                if stop == size and end < count and at > 0:
                    break  # the next block may have more for this row
                first.append(start + at)
                last.append(start + stop)
                at = stop
            start += at
        return np.array(first, np.int64), np.array(last, np.int64), left_out


def _texts(documents: Documents, first: int, last: int) -> list[Ints]:
    bounds = documents.bounds(first, last)
    tokens = documents.span(int(bounds[0]), int(bounds[-1]))
    return np.split(tokens, bounds[1:-1] - bounds[0])
