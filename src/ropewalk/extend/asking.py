"""Measurements by several workers, kept one by one, and ended in time.

What a measure asks of an engine does not depend on the answers, so it is run twice: first with an engine that only
notes the questions, then, when workers have answered those that are not known yet, with the answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from ropewalk.evaluate.passage import Cannot, Engine, Nats, Numbers, Passage
from ropewalk.evaluate.store import Stored
from ropewalk.scaling import Scaling
from ropewalk.trials.jobs import Pool, Workers

Found = TypeVar("Found")
Progress = Callable[[str, int, int], None]


class OutOfTime(Exception):
    """The budget ended; what was measured is kept."""

    so_far: Any = None
    """The `Result` as it stands, once the losses that a verdict is made from are all measured."""


class Ask(NamedTuple):
    passage: Passage
    scaling: Scaling | None
    candidates: Numbers | None = None


class Opens(Protocol):
    """What a worker is given: it can be sent to another process, and opens the engine there."""

    def engine(self) -> Engine: ...


@dataclass(frozen=True)
class Opening:
    path: str
    name: str = "ropewalk"
    dtype: str | None = None
    threads: int | None = None
    """Of each worker, where there are several."""
    expected: str | None = field(default=None, compare=False)
    """The hash of what answers are kept under; a worker that finds another model at the path refuses."""

    def engine(self) -> Engine:
        return _opened(self)


@lru_cache(maxsize=1)
def _opened(opening: Opening) -> Engine:
    from ropewalk.evaluate.checkpoint import opened

    if opening.threads is not None:
        import torch

        torch.set_num_threads(opening.threads)
    engine = opened(opening.path, engine=opening.name, dtype=opening.dtype)[0]
    if opening.expected not in (None, engine.model):
        raise ValueError(
            f"{opening.path} is another model here than where the run was started: {engine.model} and not "
            f"{opening.expected}; give every worker the same files"
        )
    return engine


def forget() -> None:
    """Frees the model that this process holds."""
    _opened.cache_clear()


@dataclass
class Elsewhere:
    """The engine that workers have opened, without its model."""

    name: str
    model: str
    trained: int | None
    vocabulary: int

    def nats(self, passage: Passage, scaling: Scaling | None = None) -> Nats:
        raise RuntimeError("a pass was asked for that no worker was given")

    def choices(self, passage: Passage, candidates: Numbers, scaling: Scaling | None = None) -> Nats:
        raise RuntimeError("a pass was asked for that no worker was given")


class Asking:
    """Answers measures from what is stored, after workers have computed what is not."""

    def __init__(
        self,
        stored: Stored,
        opens: Opens,
        workers: Workers,
        *,
        seconds: float | None = None,
        progress: Progress = lambda stage, done, total: None,
    ) -> None:
        self.stored, self.progress = stored, progress
        self.pool = Pool(_answer, opens, workers)
        self.end = None if seconds is None else time.monotonic() + seconds
        self.passes = 0
        """Computed since the start."""

    def close(self) -> None:
        """Ends the workers, and frees the models that they hold."""
        self.pool.close()

    def __call__(self, stage: str, measure: Callable[[Engine], Found]) -> Found:
        noted = _Noting(self.stored)
        measure(noted)
        waiting = list(noted.asked.items())
        done = 0

        def in_time() -> Iterator[Ask]:
            for _, ask in waiting:
                if self.end is not None and time.monotonic() > self.end:
                    return
                yield ask

        for answer in self.pool(in_time()):
            key, _ = waiting[done]
            done += 1
            self.passes += 1
            if isinstance(answer, str):
                raise Cannot(answer)
            self.stored.keep(key, answer)
            self.progress(stage, done, len(waiting))
        if done < len(waiting):
            raise OutOfTime(f"{stage}: {done:,} of {len(waiting):,} passes")
        return measure(self.stored)


def _answer(opens: Opens, ask: Ask) -> Nats | str:
    """What cannot be computed is an answer too: an exception would end the other workers' passes."""
    try:
        engine = opens.engine()
        if ask.candidates is None:
            found = engine.nats(ask.passage, ask.scaling)
        else:
            found = engine.choices(ask.passage, ask.candidates, ask.scaling)
    except Cannot as error:
        return str(error)
    if np.isfinite(found).all():
        return found
    under = "as the model is" if ask.scaling is None else f"under {ask.scaling}"
    length = f"{int(ask.passage.positions[-1]) + 1:,} positions"
    return f"{engine.name} gives likelihoods that are not finite at {length} {under}; nothing of it was stored"


class _Noting:
    """An engine that answers zeros, and notes what is not known yet."""

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        self.name, self.model = stored.name, stored.model
        self.trained, self.vocabulary = stored.trained, stored.vocabulary
        self.asked: dict[str, Ask] = {}

    def nats(self, passage: Passage, scaling: Scaling | None = None) -> Nats:
        self._note(Ask(passage, scaling))
        return np.zeros(passage.scored)

    def choices(self, passage: Passage, candidates: Numbers, scaling: Scaling | None = None) -> Nats:
        self._note(Ask(passage, scaling, candidates))
        return np.zeros((passage.scored, len(candidates)))

    def _note(self, ask: Ask) -> None:
        key = self.stored.key(*ask)
        if key not in self.stored.known:
            self.asked.setdefault(key, ask)
