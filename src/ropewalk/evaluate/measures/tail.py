"""Tail loss: the same last tokens, scored with more and more text before them.

    T = the last `tail` tokens of a document of N tokens
    crop(n)      nats of T given the n - tail tokens before it, the model as it is, n <= L
    loss(n)      the same under a candidate, n up to N; positions 0 .. n - 1, as served
    L            the trained length, or for shorter N the second longest of the lengths
    foreign      the same at N, everything farther than L from the end replaced by another document

    gain    = crop - loss(N)              what the longer context is worth against throwing it away
    harm    = foreign - crop              what length alone costs
    benefit = foreign - loss(N)           what the far text is worth; gain = benefit - harm, an identity

A candidate whose loss stays flat may ignore the far text; a model that crops does that too, and it has benefit 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ropewalk.evaluate.documents import Document, far_places
from ropewalk.evaluate.passage import Engine, Numbers, Passage
from ropewalk.evaluate.statistics import Interval, paired
from ropewalk.scaling import Scaling

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Tail:
    """Nats per token of the tail, one number a document."""

    lengths: tuple[int, ...]
    crop_lengths: tuple[int, ...]
    crop: dict[int, list[float]]
    """By context length up to L, the model as it is."""
    loss: dict[int, list[float]]
    """By context length, under the candidate."""
    foreign: list[float]
    far: list[tuple[float, float] | None]
    """Of far tokens alone: crop and candidate at the longest length; None where a document has none."""

    @property
    def best_crop(self) -> int:
        """The context length at which cropping is best, over all documents: one baseline for all of them."""
        return min(self.crop_lengths, key=lambda length: float(np.mean(self.crop[length])))

    def gain(self, length: int | None = None) -> Interval:
        return self._between(self.crop[self.best_crop], self.loss[length or self.lengths[-1]])

    @property
    def harm(self) -> Interval:
        return self._between(self.foreign, self.crop[self.best_crop])

    @property
    def benefit(self) -> Interval:
        return self._between(self.foreign, self.loss[self.lengths[-1]])

    @property
    def short_cost(self) -> Interval:
        """What the candidate adds at the longest context that the model needs no scaling for."""
        length = max(n for n in self.crop_lengths if n in self.loss)
        return self._between(self.loss[length], self.crop[length])

    @property
    def far_gain(self) -> Interval | None:
        pairs = [pair for pair in self.far if pair is not None]
        return paired([before - after for before, after in pairs]) if pairs else None

    @staticmethod
    def _between(more: Sequence[float], less: Sequence[float]) -> Interval:
        return paired([a - b for a, b in zip(more, less, strict=True)])

    def to_dict(self) -> dict[str, Any]:
        return {
            "crop": self.crop,
            "best_crop": self.best_crop,
            "loss": self.loss,
            "foreign": self.foreign,
            "gain": {length: self.gain(length).to_dict() for length in self.lengths},
            "harm": self.harm.to_dict(),
            "benefit": self.benefit.to_dict(),
            "short_cost": self.short_cost.to_dict(),
            "far_tokens": None if self.far_gain is None else self.far_gain.to_dict(),
        }


def measure(
    engine: Engine,
    documents: Sequence[Document],
    *,
    near: int,
    lengths: Sequence[int],
    scaling: Scaling | None = None,
    tail: int = 512,
    progress: Progress = lambda stage, done, total: None,
) -> Tail:
    """lengths: of context, up to that of the documents; those up to `near` are the crop's too. near: tokens from the
    end past which text is far, the trained length or less."""
    longest = len(documents[0].tokens)
    lengths = tuple(sorted({*lengths}))
    if lengths[-1] != longest or any(len(document.tokens) != longest for document in documents):
        raise ValueError(f"the longest length, {lengths[-1]:,}, must be that of every document")
    if len(documents) < 2:
        raise ValueError("one document: the foreign text of each is taken from another; give at least two")
    within = tuple(length for length in lengths if length <= near)
    if not within or lengths[0] <= tail:
        raise ValueError(
            f"lengths {', '.join(f'{n:,}' for n in lengths)}: at least one of at most {near:,}, "
            f"and all longer than the tail of {tail:,} tokens"
        )
    found = Tail(lengths, within, {n: [] for n in within}, {n: [] for n in lengths}, [], [])
    total = len(documents) * (len(within) + len(lengths) + 1)
    done = 0

    def nats(passage: Passage, under: Scaling | None) -> Any:
        nonlocal done
        answer = engine.nats(passage, under)
        done += 1
        progress("tail loss", done, total)
        return answer

    for number, document in enumerate(documents):
        crops = {n: nats(Passage.plain(document.tokens[-n:], tail), None) for n in within}
        under = {n: nats(Passage.plain(document.tokens[-n:], tail), scaling) for n in lengths}
        found.foreign.append(float(nats(Passage.plain(swapped(documents, number, near), tail), scaling).mean()))
        for length, each in crops.items():
            found.crop[length].append(float(each.mean()))
        for length, each in under.items():
            found.loss[length].append(float(each.mean()))
        places = far_places(document.tokens, tail, near)
        cropped, far = crops[within[-1]], under[longest]
        found.far.append((float(cropped[places].mean()), float(far[places].mean())) if len(places) else None)
    return found


def swapped(documents: Sequence[Document], number: int, near: int) -> Numbers:
    """A document with everything farther than `near` from its end replaced by the next document's text."""
    tokens, other = documents[number].tokens, documents[(number + 1) % len(documents)].tokens
    return np.concatenate([other[: len(tokens) - near], tokens[len(tokens) - near :]])
