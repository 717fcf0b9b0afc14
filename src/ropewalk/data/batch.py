"""One batch: what a model reads, where its tokens are, and what it is asked for.

Sequences are made one by one as numpy arrays (`Row`), by any thread, and only then put together as tensors (`Batch`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ropewalk.positions import PAD, Positions

IGNORE = -100
"""The target where nothing is asked."""

Ints = NDArray[np.int64]


class Batch(NamedTuple):
    tokens: Tensor  # (B, L) int64: what the model reads, the decoder of an encoder-decoder
    at: Positions  # (B, L)
    target: Tensor  # (B, L) int64, IGNORE where nothing is asked
    sample: Tensor  # (B,) int64: number of each sequence in the data, whatever batch or rank it is in
    source: Tensor | None = None  # (B, S) int64: what the encoder of an encoder-decoder reads
    source_at: Positions | None = None

    def to(self, device: torch.device | str) -> Batch:
        return Batch(*(None if part is None else part.to(device) for part in self))  # pyrefly: ignore[bad-argument-type]

    def take(self, rows: slice) -> Batch:
        """Some of the sequences; what was known of the positions stays known."""
        source = None if self.source is None else self.source[rows]
        source_at = None if self.source_at is None else self.source_at.rows(rows)
        return Batch(self.tokens[rows], self.at.rows(rows), self.target[rows], self.sample[rows], source, source_at)

    def silent(self, rows: Tensor) -> Batch:
        """No targets in these sequences, (B,) bool."""
        return self._replace(target=self.target.masked_fill(rows[:, None], IGNORE))

    @property
    def targets(self) -> Tensor:
        """How many tokens are asked for."""
        return (self.target != IGNORE).sum()


class Side(NamedTuple):
    """The tokens of one sequence and where they are: index counts within a segment, segment is PAD past the end."""

    tokens: Ints
    index: Ints
    segment: Ints


class Row(NamedTuple):
    number: int
    side: Side
    target: Ints
    source: Side | None = None


def side(pieces: Sequence[Ints], width: int, fill: int) -> Side:
    """Pieces one after the other, each a segment that starts at 0, filled up to `width`."""
    tokens, index = np.full(width, fill, np.int64), np.zeros(width, np.int64)
    segment, start = np.full(width, PAD, np.int64), 0
    for number, piece in enumerate(pieces):
        stop = start + len(piece)
        tokens[start:stop], index[start:stop], segment[start:stop] = piece, np.arange(len(piece)), number
        start = stop
    return Side(tokens, index, segment)


def filled(pieces: Sequence[Ints], width: int) -> Ints:
    """Targets one after the other, IGNORE up to `width`."""
    row = np.full(width, IGNORE, np.int64)
    joined = np.concatenate([*pieces, row[:0]])
    row[: len(joined)] = joined
    return row


def collate(rows: Sequence[Row], *, plain: bool, limit: int, source_limit: int | None = None) -> Batch:
    """plain: every sequence is known to be one unpadded piece. The limits are those of the run, not of these."""
    tokens, at = _stacked([row.side for row in rows], plain, limit)
    target = torch.from_numpy(np.stack([row.target for row in rows]))
    sample = torch.tensor([row.number for row in rows], dtype=torch.int64)
    sources = [row.source for row in rows if row.source is not None]
    if not sources:
        return Batch(tokens, at, target, sample)
    return Batch(tokens, at, target, sample, *_stacked(sources, plain, source_limit or limit))


def _stacked(sides: Sequence[Side], plain: bool, limit: int) -> tuple[Tensor, Positions]:
    tokens, index, segment = (torch.from_numpy(np.stack(part)) for part in zip(*sides, strict=True))
    at = Positions(index, index, segment, limit)
    return tokens, at.know(plain=True) if plain else at
