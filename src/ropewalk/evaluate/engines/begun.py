"""An engine whose texts begin as they do when the model is served: with BOS, where its tokenizer adds one.

Models that always saw BOS rest much of their attention on it, and without it their likelihoods are those of another
model. It takes the place of a passage's first token, so that lengths and positions stay what was asked for; a crop
begins with it too, as a cropped prompt does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ropewalk.evaluate.passage import Engine, Nats, Numbers, Passage
from ropewalk.scaling import Scaling


class Begun:
    """first: the tokens that a text begins with; spelled: as the vocabulary spells them."""

    def __init__(self, engine: Engine, first: Sequence[int], spelled: str) -> None:
        self.engine, self.first = engine, np.asarray(first, dtype=np.int64)
        self.name, self.model = f"{engine.name}, texts begin with {spelled}", engine.model
        self.trained, self.vocabulary = engine.trained, engine.vocabulary

    def nats(self, passage: Passage, scaling: Scaling | None = None) -> Nats:
        return self.engine.nats(self.begun(passage), scaling)

    def choices(self, passage: Passage, candidates: Numbers, scaling: Scaling | None = None) -> Nats:
        return self.engine.choices(self.begun(passage), candidates, scaling)

    def begun(self, passage: Passage) -> Passage:
        """Scored tokens are never replaced: where too few stand before them, the passage grows by what is missing."""
        room = min(len(self.first), len(passage.tokens) - passage.scored)
        more = len(self.first) - room
        positions = np.concatenate([np.arange(more), passage.positions + more])
        return Passage(np.concatenate([self.first, passage.tokens[room:]]), positions, passage.scored)


def start_of(engine: Engine) -> list[int]:
    """The tokens that an engine puts at the start of every text."""
    return engine.first.tolist() if isinstance(engine, Begun) else []
