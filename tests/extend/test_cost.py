"""How many passes a tournament takes, counted: documentation and budgets are made from this number."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ropewalk.evaluate.documents import Document
from ropewalk.evaluate.passage import Nats, Numbers, Passage
from ropewalk.evaluate.store import Stored
from ropewalk.extend.asking import Asking
from ropewalk.extend.candidates import Rope, formulas
from ropewalk.extend.search.searched import Passes
from ropewalk.extend.sets import Sets
from ropewalk.extend.tournament import Result, run
from ropewalk.scaling import Scaling
from ropewalk.trials.jobs import Workers

VOCABULARY = 32_000


class Counting:
    """Likelihoods by chance, and the tokens that it was asked to read. lead: nats by which all but leaving is better
    past the trained length."""

    name = model = "counting"
    vocabulary = VOCABULARY

    def __init__(self, trained: int, lead: float = 0.0) -> None:
        self.trained, self.lead, self.tokens = trained, lead, 0

    def engine(self) -> Counting:
        return self

    def nats(self, passage: Passage, scaling: Scaling | None = None) -> Nats:
        self.tokens += len(passage.tokens)
        said = f"{passage.digest} {scaling!r}"
        by_chance = int.from_bytes(hashlib.sha256(said.encode()).digest()[:4], "big") / 2**32
        better = self.lead if scaling is not None and len(passage.tokens) > self.trained else 0.0
        return np.full(passage.scored, 3.0 + 0.01 * by_chance - better)

    def choices(self, passage: Passage, candidates: Numbers, scaling: Scaling | None = None) -> Nats:
        self.tokens += len(passage.tokens)
        return np.full((passage.scored, len(candidates)), 3.0)


def encode(text: str) -> list[int]:
    return [int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big") % VOCABULARY for word in text.split()]


def drawn(to: int, judge: int = 16) -> Sets:
    quarter = judge // 4
    every = [
        Document(f"{n}", f"{n}", np.random.default_rng(n).integers(0, VOCABULARY, to), to)
        for n in range(judge + 2 * quarter)
    ]
    return Sets(every[:quarter], every[quarter : 2 * quarter], every[2 * quarter :], "the first ones")


def counted(rope: Rope, **more: Any) -> tuple[Result, float]:
    """A tournament of all formulas, and its cost in passes of the full length."""
    engine = Counting(rope.trained, more.pop("lead", 0.0))
    asking = Asking(Stored(engine, None), engine, Workers())
    found = run(asking, rope, drawn(rope.to), formulas(rope), encode, **more)
    return found, engine.tokens / rope.to


def test_each_set_and_each_draw_has_needles_of_its_own() -> None:
    """What was chosen by some keys, values and depths is not judged by the same ones."""
    asked: list[set[tuple[int, ...]]] = []

    class Noting(Counting):
        def choices(self, passage: Passage, candidates: Numbers, scaling: Scaling | None = None) -> Nats:
            asked[-1].add(tuple(candidates.tolist()))
            return super().choices(passage, candidates, scaling)

    rope, sets = Rope(10_000.0, 64, 512, 1024), drawn(1024, 8)
    engine = Noting(512)
    asking = Asking(Stored(engine, None), engine, Workers())
    passes = Passes.of(asking, sets, 3, encode, given=1000, tail=64)
    for objective in passes[:2]:
        asked.append(set())
        objective("", None)
    for number in (0, 1):
        asked.append(set())
        again = Asking(Stored(engine, None), engine, Workers())
        run(again, rope, replace(sets, number=number), formulas(rope)[:4], encode, tail_tokens=64)
    assert all(asked)
    assert sum(map(len, asked)) == len(set.union(*asked))


@pytest.mark.parametrize(("to", "most"), [(4096, 125), (8192, 113)])
@pytest.mark.parametrize("lead", [0.0, 0.1], ids=["cropping", "a tie"])
def test_sixteen_judges_cost_what_the_documentation_says(to: int, most: int, lead: float) -> None:
    """TinyLlama's rotation, at twice and four times its trained length."""
    found, passes = counted(Rope(10_000.0, 64, 2048, to), lead=lead)
    assert sum(one.candidate.text == "whole" for one in found.judged.values()) == 3
    assert found.verdict.kind == ("tie" if lead else "crop")
    # In a tie, what finalists of one factor cost on short text is measured too.
    assert passes < most + (4 if lead else 0)
    names = [one.name for one in found.rounds]
    assert names == [f"search at {to:,}", f"select at {to:,}"]
