"""An engine whose answer to every candidate is known: how far back each scaling lets it copy, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ropewalk.evaluate.documents import Document
from ropewalk.evaluate.passage import Engine, Nats, Numbers, Passage
from ropewalk.extend.asking import Asking
from ropewalk.extend.candidates import Candidate, Rope
from ropewalk.extend.candidates.base import scaled
from ropewalk.extend.sets import Sets
from ropewalk.scaling import Linear, Scaling

TRAINED, TO, TAIL = 64, 256, 24
ROPE = Rope(10_000.0, 16, TRAINED, TO)


def planted(name: str, factor: float) -> Candidate:
    """A linear scaling, told from others by its factor."""
    return scaled(name, "planted", Linear(factor=factor), ROPE)


def documents(count: int, seed: int = 0) -> list[Document]:
    """The tail repeats what stands at the beginning, and was not said since."""
    found = []
    for number in range(count):
        draws = np.random.default_rng((seed, number))
        tokens = draws.permutation(400)[:TO].astype(np.int64)
        copied = int(draws.integers(8, 16))
        tokens[-copied:] = tokens[4 : 4 + copied]
        found.append(Document(f"d{seed}-{number}", f"{seed}-{number}", tokens, 3 * TO))
    return found


def sets(judge: int = 10, seed: int = 0) -> Sets:
    drawn = documents(4 + judge, seed)
    return Sets(drawn[:2], drawn[2:4], drawn[4:], "planted")


@dataclass
class Engineered:
    """reach: by factor, how many of the last tokens are seen and copied; missing: as many as it was trained for. cost:
    nats that each token costs more. Past what it was trained for the model as it is breaks."""

    reach: Mapping[float, int] = field(default_factory=dict)
    cost: Mapping[float, float] = field(default_factory=dict)
    fails_at: int | None = None
    """The number of the pass at which it is killed."""
    name: str = "toy"
    model: str = "toy"
    broken: float = 2.0
    """Nats a token that the model as it is loses there."""
    trained: int | None = TRAINED
    vocabulary: int = 400
    passes: int = 0

    def engine(self) -> Engine:
        return self

    def nats(self, passage: Passage, scaling: Scaling | None = None) -> Nats:
        self.passes += 1
        if self.passes == self.fails_at:
            raise KeyboardInterrupt
        factor = 1.0 if scaling is None else float(getattr(scaling, "factor", 1.0))
        reach = self.reach.get(factor, TRAINED)
        broken = self.broken if scaling is None and passage.positions[-1] >= TRAINED else 0.0
        found = np.full(passage.scored, math.log(self.vocabulary) + self.cost.get(factor, 0.0) + broken)
        tokens = passage.tokens[-reach:].tolist()
        first, seen = len(tokens) - passage.scored, set[int]()
        for place, token in enumerate(tokens):
            if place >= first and token in seen:
                found[place - first] -= 2.0
            seen.add(token)
        return found

    def choices(self, passage: Passage, candidates: Numbers, scaling: Scaling | None = None) -> Nats:
        raise AssertionError("no needles are asked for without a tokenizer")


def until(stage: str, ask: Any) -> Any:
    """`Asking.__call__` whose time ends when that stage has to compute something."""

    def timed(self: Asking, name: str, measure: Any) -> Any:
        self.end = 0.0 if name == stage else None
        return ask(self, name, measure)

    return timed
