"""What a search makes small: the tail loss at the full length, and the nats of needles' answers.

    mean over documents of the tail's nats per token  +  WEIGHT x mean nats of the right value of a needle

A setting is measured in two steps, half of the documents and then the rest with the needles, so that a bad one is given
up after the first. Every pass that is asked for is counted, whether it is known already or not: a run that was killed
counts the same when it continues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ropewalk.evaluate.documents import Document
from ropewalk.evaluate.measures import needles
from ropewalk.evaluate.passage import Engine, Passage
from ropewalk.extend.rounds import Ask
from ropewalk.scaling import Scaling

WEIGHT = 0.05
"""Nats per token that one nat of a needle's answer counts for: differences of both are then about as large."""


class Objective:
    """On one set of documents. encode: of the model's tokenizer, for needles; None: no needles.
    seed: of their keys, values and depths."""

    def __init__(
        self, ask: Ask, documents: Sequence[Document], encode: Callable[[str], Sequence[int]] | None, tail: int,
        seed: int = 0,
    ) -> None:  # fmt: skip
        self.ask, self.encode, self.seed = ask, encode, seed
        self.passages = [Passage.plain(document.tokens, tail) for document in documents]
        half = max(1, len(documents) // 2)
        self.first, self.rest = self.passages[:half], self.passages[half:]
        self.length = len(documents[0].tokens)
        room = encode is not None and needles.refusal(encode, self.length) is None
        self.fillers = [document.tokens for document in documents[:half]] if room else []
        self.passes = 0
        """Asked for so far."""

    @property
    def cost(self) -> int:
        """Passes of a setting that is measured in full."""
        return len(self.passages) + len(self.fillers)

    def begin(self, stage: str, scaling: Scaling | None) -> float:
        """On the first half of the documents, without needles."""
        self.passes += len(self.first)
        return float(np.mean(self.ask(stage, lambda engine: _tails(engine, self.first, scaling))))

    def finish(self, stage: str, scaling: Scaling | None) -> float:
        """On all of them, when it was begun."""
        self.passes += len(self.rest) + len(self.fillers)

        def measure(engine: Engine) -> tuple[list[float], float]:
            each = _tails(engine, self.passages, scaling)
            if not self.fillers:
                return each, 0.0
            assert self.encode is not None
            found = needles.measure(
                engine, self.fillers, self.encode, self.length, scaling=scaling, seed=self.seed
            )  # fmt: skip
            return each, float(np.mean(found.nats))

        losses, answers = self.ask(stage, measure)
        return float(np.mean(losses)) + WEIGHT * answers

    def __call__(self, stage: str, scaling: Scaling | None) -> float:
        self.begin(stage, scaling)
        return self.finish(stage, scaling)


def _tails(engine: Engine, passages: Sequence[Passage], scaling: Scaling | None) -> list[float]:
    return [float(engine.nats(passage, scaling).mean()) for passage in passages]
