"""Positions of training sequences that leave some out, so that short sequences teach the positions of long ones.

    pose      a a a a a a  ->  0 1 2 . . . . 7 8 9      each document in chunks, every one after the first farther on:
                               its skip is drawn from that of the chunk before up to `reach` - length
                               PoSE, arXiv:2309.10400, section 3.2; here chunks are cut anywhere, and the text is not
    random    a a a a a a  ->  0 . 2 3 . . 6 . 8 9      as many positions below `reach` as there are tokens, drawn
                               without replacement and sorted: arXiv:2305.16843, section 3.1

Positions grow within a document, in causality and in windows as in encodings: it is a long text of which some was left
out. They are a function of the seed and of the sequence's place in the order of training. What a model is measured at
is said by `measured_at`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from ropewalk.data.batch import Ints, Row, Side
from ropewalk.positions import PAD
from ropewalk.settings import Settings

Reach = Annotated[int, Field(ge=2, le=2**40)]


class PoSE(Settings):
    """Positional skip-wise training: chunks of each document lie anywhere below `reach`."""

    kind: Literal["pose"] = "pose"
    reach: Reach
    """Positions to train for, more than a sequence has tokens."""
    chunks: int = Field(default=2, ge=2, le=1024)
    """Of each document."""

    def draw(self, count: int, rng: np.random.Generator) -> Ints:
        """Positions for a document of so many tokens."""
        cuts = np.sort(rng.choice(count - 1, min(self.chunks, count) - 1, replace=False)) + 1
        skips = [0]
        for _ in cuts:
            skips.append(int(rng.integers(skips[-1], self.reach - count, endpoint=True)))
        return np.arange(count) + np.repeat(skips, np.diff([0, *cuts, count]))


class Randomised(Settings):
    """Randomised positions: each document's are drawn from all below `reach`."""

    kind: Literal["random"] = "random"
    reach: Reach
    """Positions to train for, more than a sequence has tokens."""

    def draw(self, count: int, rng: np.random.Generator) -> Ints:
        return np.sort(rng.choice(self.reach, count, replace=False))


AnySkips = Annotated[PoSE | Randomised, Field(discriminator="kind")]


def measured_at(skips: AnySkips | None) -> Randomised | None:
    """How the positions of a model trained with these are drawn where it is measured; None: 0, 1, 2, ... After
    randomised ones neighbours at neighbouring positions are what it has hardly seen, so the paper draws them then too;
    PoSE's chunks have them."""
    return skips if isinstance(skips, Randomised) else None


def skipped(row: Row, config: AnySkips, rng: np.random.Generator) -> Row:
    """The same tokens, documents and targets, at other positions."""
    source = None if row.source is None else _side(row.source, config, rng)
    return row._replace(side=_side(row.side, config, rng), source=source)


def _side(side: Side, config: AnySkips, rng: np.random.Generator) -> Side:
    index = side.index.copy()
    for document in np.unique(side.segment[side.segment != PAD]):
        where = side.segment == document
        index[where] = config.draw(int(where.sum()), rng)
    return side._replace(index=index)
