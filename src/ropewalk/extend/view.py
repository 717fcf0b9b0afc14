"""A candidate as an engine: a scaling, or a text of which the model sees only a part."""

from __future__ import annotations

import numpy as np

from ropewalk.evaluate.passage import Cannot, Engine, Nats, Numbers, Passage
from ropewalk.extend.candidates.base import SINKS, Candidate
from ropewalk.scaling import Scaling


def seen(engine: Engine, candidate: Candidate, near: int) -> Engine:
    """The engine as this candidate lets it read. near: tokens that a crop leaves; shorter texts are as they were."""
    if candidate.text == "whole":
        return engine
    return Cropping(engine, near, SINKS if candidate.text == "sinks" else 0)


class Cropping:
    """An engine that throws away all but the last tokens of a text, and the first `sinks`."""

    def __init__(self, engine: Engine, keep: int, sinks: int = 0) -> None:
        self.engine, self.kept, self.sinks = engine, keep, sinks
        self.name, self.model = engine.name, engine.model
        self.trained, self.vocabulary = engine.trained, engine.vocabulary

    def nats(self, passage: Passage, scaling: Scaling | None = None) -> Nats:
        return self.engine.nats(self._cut(passage), scaling)

    def choices(self, passage: Passage, candidates: Numbers, scaling: Scaling | None = None) -> Nats:
        return self.engine.choices(self._cut(passage), candidates, scaling)

    def _cut(self, passage: Passage) -> Passage:
        if len(passage.tokens) <= self.kept:
            return passage
        rest = self.kept - self.sinks
        if passage.scored >= rest:
            raise Cannot(f"{passage.scored:,} scored tokens do not fit into a crop to {self.kept:,}")
        return Passage.plain(np.concatenate([passage.tokens[: self.sinks], passage.tokens[-rest:]]), passage.scored)
