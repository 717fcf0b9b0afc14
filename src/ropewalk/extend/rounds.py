"""The rounds before the last: fewer and fewer candidates, on more and more documents.

    skipped positions   tokens from both ends of a text, at their own positions: the angles of the full length at a
                        fraction of the cost. It does not see how many keys there are, so gains are left out of it
    search              the full length, on documents to search on
    select              the full length, on documents to select on

The first one is believed only where it ranks some candidates as the full length does: see `skipped`. What it saves in
the next is about what these cost, so it is made only on request.

None is at a shorter length: there those win that stretch least, however they fail at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ropewalk.evaluate.documents import Document
from ropewalk.evaluate.passage import Cannot, Engine, Passage
from ropewalk.evaluate.statistics import spearman
from ropewalk.extend.candidates import Candidate, Rope
from ropewalk.extend.view import seen
from ropewalk.scaling import LongRoPE, Scaling, YaRN

FINALISTS = 3
"""Candidates that are judged, besides cropping and a window with sinks."""
PROBES = 6
"""Candidates whose full rank the round with skipped positions must foretell."""
TRUSTED = 0.8
"""Rank correlation below which that round is not used."""
END = 1024
"""Tokens of each end of a text with skipped positions, and fewer for short trained lengths."""

Ask = Callable[[str, Callable[[Engine], Any]], Any]


@dataclass(frozen=True)
class Round:
    name: str
    length: int
    documents: int
    losses: dict[str, float]
    """Nats per token of the tail, the mean over documents."""
    kept: list[str]
    scored: int
    """Tokens of each tail."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Skipped(Round):
    correlation: float = 0.0
    """Of its ranking with that of the full length, over the probes."""
    probes: dict[str, float] | None = None
    """Losses of the probes at the full length."""

    @property
    def used(self) -> bool:
        return self.correlation >= TRUSTED

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "used": self.used}


def ranked(losses: Mapping[str, float], candidates: Mapping[str, Candidate], keep: int) -> list[str]:
    """The best, of equal ones those that change least."""
    return sorted(losses, key=lambda name: (losses[name], candidates[name].factor, name))[:keep]


def plain(
    ask: Ask, name: str, candidates: Mapping[str, Candidate], documents: Sequence[Document], keep: int,
    *, tail: int, near: int,
) -> Round:  # fmt: skip
    """Tail loss of every candidate."""

    def measure(engine: Engine) -> dict[str, float]:
        passages = [Passage.plain(document.tokens, tail) for document in documents]
        return {one.name: _mean(seen(engine, one, near), passages, one.scaling) for one in candidates.values()}

    losses = ask(name, measure)
    return Round(name, len(documents[0].tokens), len(documents), losses, ranked(losses, candidates, keep), tail)


def skipped(
    ask: Ask, candidates: Mapping[str, Candidate], documents: Sequence[Document], rope: Rope, *, tail: int, near: int
) -> Skipped:  # fmt: skip
    """Raises Cannot where it would be no cheaper."""
    longest = len(documents[0].tokens)
    end = max(min(END, near // 2), tail + tail // 2)
    if 8 * end > longest:
        raise Cannot(f"the {2 * end:,} tokens of both ends are more than a quarter of {longest:,}")
    # Candidates that differ in their gain alone are one here, and stay or go together.
    alike: dict[tuple[float, ...], list[str]] = {}
    for one in candidates.values():
        alike.setdefault(tuple(round(divisor, 9) for divisor in rope.divisors(one.scaling)), []).append(one.name)
    firsts = {names[0]: _without_gain(candidates[names[0]].scaling) for names in alike.values()}
    where = np.concatenate([np.arange(end), np.arange(longest - end, longest)])
    passages = [Passage(document.tokens[where], where, tail) for document in documents]
    name = "skipped positions"
    cheap = ask(name, lambda engine: {one: _mean(engine, passages, under) for one, under in firsts.items()})
    order = ranked(cheap, candidates, len(cheap))
    # From the best to the worst, at equal steps.
    probes = sorted({order[round(step * (len(order) - 1) / (PROBES - 1))] for step in range(PROBES)}, key=order.index)
    whole = [Passage.plain(document.tokens, tail) for document in documents[:2]]
    groups = {names[0]: names for names in alike.values()}

    def best(engine: Engine, one: str) -> float:
        """With the gains that compete: what is dropped here is dropped with all of them."""
        return min(_mean(engine, whole, candidates[each].scaling) for each in groups[one])

    full = ask(f"{name}, probes", lambda engine: {one: best(engine, one) for one in probes})
    agrees = spearman([cheap[one] for one in probes], [full[one] for one in probes])
    better = order[: -(-len(order) // 2)] if agrees >= TRUSTED else order
    kept = [each for one in better for each in groups[one]]
    return Skipped(name, longest, len(documents), cheap, kept, tail, agrees, full)


def _without_gain(scaling: Scaling | None) -> Scaling | None:
    if isinstance(scaling, YaRN | LongRoPE):
        return scaling.model_copy(update={"attention_factor": 1.0})
    return scaling


def _mean(engine: Engine, passages: Sequence[Passage], scaling: Scaling | None) -> float:
    return float(np.mean([engine.nats(passage, scaling).mean() for passage in passages]))
