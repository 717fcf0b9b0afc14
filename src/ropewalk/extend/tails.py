"""Tail loss with no more passes than a verdict needs. Most passes of a tournament are made here.

every finalist     the longest length, and cropping, on all documents to judge on: the verdict is made from these
the one it names   its cost on short text, and foreign text, on the first `SOME` documents
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ropewalk.evaluate.documents import Document, far_places
from ropewalk.evaluate.measures import tail
from ropewalk.evaluate.passage import Engine, Passage
from ropewalk.evaluate.statistics import FEWEST, Interval, paired
from ropewalk.scaling import Scaling

SOME = FEWEST
"""Documents for what no verdict is made from: as many as an interval needs."""


@dataclass(frozen=True)
class Tail(tail.Tail):
    """What was not measured is missing, and what was measured on some documents is compared on those."""

    @property
    def has_short(self) -> bool:
        """Whether the cost on short text is known."""
        return any(length in self.loss for length in self.crop_lengths)

    @staticmethod
    def _between(more: Sequence[float], less: Sequence[float]) -> Interval:
        # Some are always the first.
        return paired([a - b for a, b in zip(more, less, strict=False)])

    def to_dict(self) -> dict[str, Any]:
        return {
            "crop": self.crop,
            "best_crop": self.best_crop,
            "loss": self.loss,
            "foreign": self.foreign,
            "gain": {length: self.gain(length).to_dict() for length in self.loss},
            "harm": self.harm.to_dict() if self.foreign else None,
            "benefit": self.benefit.to_dict() if self.foreign else None,
            "short_cost": self.short_cost.to_dict() if self.has_short else None,
            "far_tokens": None if self.far_gain is None else self.far_gain.to_dict(),
        }


def measure(
    engine: Engine,
    documents: Sequence[Document],
    *,
    near: int,
    lengths: Sequence[int],
    tail: int,
    scaling: Scaling | None,
    whole: int,
) -> Tail:
    """Cropping at the lengths up to `near` on all documents, so that every candidate has the same best one, and the
    candidate at the longest length on the first `whole`."""
    within = tuple(length for length in lengths if length <= near)
    longest = lengths[-1]
    found = Tail(tuple(lengths), within, {n: [] for n in within}, {longest: []}, [], [])
    for number, document in enumerate(documents):
        crops = {n: engine.nats(Passage.plain(document.tokens[-n:], tail)) for n in within}
        for length, each in crops.items():
            found.crop[length].append(float(each.mean()))
        if number >= whole:
            continue
        longer = engine.nats(Passage.plain(document.tokens, tail), scaling)
        found.loss[longest].append(float(longer.mean()))
        places = far_places(document.tokens, tail, near)
        pair = (float(crops[within[-1]][places].mean()), float(longer[places].mean())) if len(places) else None
        found.far.append(pair)
    return found


def with_short(
    engine: Engine, found: Tail, documents: Sequence[Document], *, tokens: int, scaling: Scaling | None
) -> Tail:
    """With the candidate at the length of the longest crop: its cost on short text."""
    length = found.crop_lengths[-1]
    cut = [Passage.plain(one.tokens[-length:], tokens) for one in documents[:SOME]]
    return replace(found, loss={length: [float(engine.nats(one, scaling).mean()) for one in cut], **found.loss})


def with_foreign(
    engine: Engine, found: Tail, documents: Sequence[Document], *, near: int, tokens: int, scaling: Scaling | None
) -> Tail:
    swapped = [tail.swapped(documents, number, near) for number in range(len(documents[:SOME]))]
    return replace(found, foreign=[float(engine.nats(Passage.plain(one, tokens), scaling).mean()) for one in swapped])
