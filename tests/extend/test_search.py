"""A search beside the formulas: what it starts from, what it finds where the best is known, what it may look at."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ropewalk.cli.extend.words import searched_lines
from ropewalk.evaluate.passage import Nats, Passage
from ropewalk.evaluate.store import Stored
from ropewalk.extend.asking import Asking
from ropewalk.extend.candidates import Rope, formulas
from ropewalk.extend.search import searched
from ropewalk.extend.search.objective import Objective
from ropewalk.extend.search.ramp import BEYOND, Ramp, nearest, ranges
from ropewalk.extend.search.refine import refine, slow
from ropewalk.extend.tournament import Result, run
from ropewalk.report.extension.page import page
from ropewalk.scaling import LongRoPE, Scaling
from ropewalk.trials.jobs import Workers
from tests.extend.toys import TAIL, TO, TRAINED, Engineered, sets
from tests.report.reading import Page

REAL = Rope(10_000.0, 64, 2048, 8192)
ROPE = Rope(10_000.0, 32, TRAINED, TO)
BEST = Ramp(first=2.3, span=5.0, power=0.8, factor=5.0, base=1.3, gain=1.07)
PASSES = 120


class Curved(Engineered):
    """Its loss grows with the distance from one list of divisors and one gain, at the full length."""

    best: Sequence[float] = BEST.divisors(16)
    best_gain = BEST.gain

    def nats(self, passage: Passage, scaling: Scaling | None = None) -> Nats:
        found = super().nats(passage, None)
        if passage.positions[-1] < TRAINED:
            return found
        divisors = ROPE.divisors(scaling)
        off = np.mean([min(abs(math.log(d / b)), 2.0) ** 2 for d, b in zip(divisors, self.best, strict=True)])
        gain = 1.0 if scaling is None else scaling.rotary_gain
        # What it was trained for is as good as 0.4 off: there is something to win, and something to lose.
        return found - 2.0 - 0.4 + float(off) + 10 * (gain - self.best_gain) ** 2


def held(engine: Curved, file: Path | None = None, passes: int | None = PASSES) -> Result:
    asking = Asking(Stored(engine, file), engine, Workers())
    return run(asking, ROPE, sets(), formulas(ROPE), None, tail_tokens=TAIL, cheap=False, search_passes=passes)


@pytest.mark.parametrize("rope", [REAL, ROPE], ids=["64", "32"])
def test_every_formula_is_a_point_of_the_family_or_near_one(rope: Rope) -> None:
    exact, limits = {"leave", "linear", "ntk", "dynamic base", "gradient base", "gain only"}, ranges(rope)
    for one in formulas(rope):
        divisors = rope.divisors(one.scaling)
        wanted = [min(d, BEYOND * rope.ratio) for d in divisors]
        ramp = nearest(wanted, one.gain, rope)
        off = [abs(math.log(a / b)) for a, b in zip(ramp.divisors(rope.width // 2), wanted, strict=True)]
        assert np.mean(off) < (1e-6 if one.name in exact and list(divisors) == wanted else 0.1), one.name
        assert ramp.gain == one.gain
        alone = next((i for i, divisor in enumerate(divisors) if divisor != 1), len(divisors))
        assert ramp.divisors(rope.width // 2)[:alone] == [1.0] * alone, f"{one.name} leaves fast pairs alone"
        assert all(limits[name][0] <= value <= limits[name][1] for name, value in ramp.__dict__.items())


def test_a_ramp_is_its_equation() -> None:
    found = Ramp(first=2, span=4, power=2, factor=9, base=4, gain=1).divisors(11)
    want = [9 ** (min(max((i - 2) / 4, 0), 1) ** 2) * 4 ** (i / 10) for i in range(11)]
    assert found == pytest.approx(want, rel=1e-12)


def test_what_is_searched_beats_every_formula_and_wins_where_the_best_is_no_formula() -> None:
    pytest.importorskip("optuna")
    engine = Curved()
    found, without = held(engine), held(Curved(), passes=None)
    assert found.searched is not None
    tried = {one.formula for one in found.searched.trials if one.formula}
    assert tried & {*without.judged}, "it starts from the best"
    assert 4 <= len(tried) <= len(found.searched.trials) / 2, "most settings are its own"
    complete = {one.formula: one.value for one in found.searched.trials if one.value is not None}
    assert found.searched.select["ramp"] < min(value for name, value in found.searched.select.items() if name in tried)
    assert len(complete) > 1
    assert found.searched.passes <= PASSES
    assert found.verdict.winner == "searched"
    assert "searched" in found.verdict.proven
    scaling = found.judged["searched"].candidate.scaling
    assert isinstance(scaling, LongRoPE)
    assert scaling.short == scaling.long
    assert found.judged["searched"].gain.mean > max(one.gain.mean for one in without.judged.values()) + 0.005
    # One more hypothesis for Holm's correction, and the formulas that would be finalists are so beside it.
    assert {*found.judged} == {*without.judged, "searched"}


def test_a_killed_search_ends_the_same_and_asks_for_nothing_twice(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    engine = Curved()
    want = json.dumps(held(engine).to_dict())
    file, lost = tmp_path / "kept.jsonl", 0
    for moment in (70, 61):
        with pytest.raises(KeyboardInterrupt):
            held(Curved(fails_at=moment), file)
        lost += 1
    last = Curved()
    assert json.dumps(held(last, file).to_dict()) == want
    assert last.passes == engine.passes - (70 + 61) + lost


def test_a_search_never_sees_the_documents_to_judge_on() -> None:
    pytest.importorskip("optuna")
    drawn, seen = sets(), []

    class Noting(Curved):
        def nats(self, passage: Passage, scaling: Scaling | None = None) -> Nats:
            seen.append(passage.tokens.tobytes())
            return super().nats(passage, scaling)

    engine = Noting()
    every = [one for one in formulas(ROPE) if one.text == "whole"]
    finals = {one.name: one for one in every[:3]}
    asking = Asking(Stored(engine, None), engine, Workers())
    searched.search(asking, ROPE, drawn, every, finals, None, passes=PASSES, tail=TAIL)
    assert set(seen) == {one.tokens.tobytes() for one in (*drawn.search, *drawn.select)}


def test_a_refinement_moves_slow_pairs_alone_and_only_to_the_better() -> None:
    engine = Curved()
    off = [d * (1.3 if i >= 8 else 1.0) for i, d in enumerate(BEST.divisors(16))]
    objective = Objective(Asking(Stored(engine, None), engine, Workers()), sets().search, None, TAIL)
    start = BEST.candidate(ROPE)
    half, value = objective.begin("", start.scaling), objective.finish("", start.scaling)
    assert refine(objective, ROPE, BEST.divisors(16), BEST.gain, value, half, 40) == (BEST.divisors(16), value)
    engine = Curved()
    engine.best = off
    objective = Objective(Asking(Stored(engine, None), engine, Workers()), sets().search, None, TAIL)
    half, value = objective.begin("", start.scaling), objective.finish("", start.scaling)
    before = objective.passes
    moved, better = refine(objective, ROPE, BEST.divisors(16), BEST.gain, value, half, 80)
    assert objective.passes - before <= 80
    assert better < value
    fast = [i for i in range(16) if i not in slow(BEST.divisors(16), ROPE)]
    assert fast
    assert all(moved[i] == BEST.divisors(16)[i] for i in fast)
    # 8 turns in 256 tokens, written out.
    assert fast == [i for i, d in enumerate(BEST.divisors(16)) if 256 * 10_000 ** (-i / 16) / d / (2 * math.pi) > 8]


def test_what_does_not_pay_on_the_documents_to_select_on_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna")
    # It looks better on the documents to search on, and divides by ten times too much.
    monkeypatch.setattr(searched, "refine", lambda on, rope, divisors, *more: ([10 * d for d in divisors], -1.0))
    found = held(Curved()).searched
    assert found is not None
    assert found.select["refined"] > found.select["ramp"]
    assert not found.refined
    assert found.candidate.scaling == found.ramp.candidate(ROPE).scaling
    drawn = sets()
    elsewhere = {one.tokens.tobytes() for one in drawn.select}

    class Disagreeing(Curved):
        """To select on, the best is a formula."""

        def nats(self, passage: Passage, scaling: Scaling | None = None) -> Nats:
            there = passage.tokens.tobytes() in elsewhere
            self.best = ROPE.divisors(yarn.scaling) if there else BEST.divisors(16)
            self.best_gain = yarn.gain if there else BEST.gain
            return super().nats(passage, scaling)

    yarn = next(one for one in formulas(ROPE) if one.name == "yarn")
    found = held(Disagreeing()).searched
    assert found is not None
    assert found.select["yarn"] < found.select["ramp"]
    assert "refined" not in found.select


def test_steps_that_found_nothing_are_not_called_untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ramp is better than every formula, so that its slow pairs are refined, and no step is better."""
    pytest.importorskip("optuna")
    monkeypatch.setattr(searched, "refine", lambda on, rope, divisors, gain, value, *more: (list(divisors), value))
    found = held(Curved())
    assert found.searched is not None
    assert min(found.searched.select, key=found.searched.select.__getitem__) == "ramp"
    text = page("m", {"model": "m", **found.to_dict(), "written": None})
    for said in ("\n".join(searched_lines(found.searched)), text):
        assert "refining its slow pairs found no change that lowers the objective" in said
        assert "not refined" not in said
    assert "\u6ca1\u6709\u4e00\u6b65\u80fd\u8fdb\u4e00\u6b65\u964d\u4f4e\u76ee\u6807" in text


def test_a_search_that_cannot_be_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Curved()
    monkeypatch.setattr(searched, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="optuna"):
        held(engine)
    assert engine.passes == 0


def test_the_page_shows_the_search_in_both_languages() -> None:
    pytest.importorskip("optuna")
    found = {"model": "m", **held(Curved()).to_dict(), "written": None}
    text = page("m", found)
    for language, says in (("en", "What the search found"), ("zh-CN", "\u641c\u7d22\u7684\u7ed3\u679c")):
        words = Page(text, language).words
        assert says in words
        assert (
            "tail loss, without needles"
            if language == "en"
            else "\u672b\u5c3e\u635f\u5931\uff0c\u4e0d\u542b\u952e\u503c\u5bf9"
        ) in words
        assert f"{found['searched']['ramp']['gain']:.4g}" in words
    assert page("m", json.loads(json.dumps(found))) == text


def test_too_few_passes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searched, "find_spec", lambda name: object())
    engine = Curved()
    with pytest.raises(ValueError, match=r"--search 9 is too few passes: 10 compare .* takes 2; give at least 26"):
        held(engine, passes=9)
    assert engine.passes == 0  # before the rounds, which take hours


def test_needles_count_in_what_is_made_small() -> None:
    class Finding(Curved):
        def choices(self, passage: Passage, candidates: Any, scaling: Scaling | None = None) -> Nats:
            return np.full((passage.scored, len(candidates)), 3.0)

    def encode(text: str) -> list[int]:
        return [sum(map(ord, word)) % 390 for word in text.split()]

    engine = Finding()
    asking = Asking(Stored(engine, None), engine, Workers())
    drawn = sets().search
    long = [type(one)(one.name, one.digest, np.tile(one.tokens, 4), 1) for one in drawn]
    without, with_needles = Objective(asking, long, None, TAIL), Objective(asking, long, encode, TAIL)
    assert with_needles("", None) == pytest.approx(without("", None) + 0.05 * 3.0)
    assert with_needles.passes == with_needles.cost == 3
