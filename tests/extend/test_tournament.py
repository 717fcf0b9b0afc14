"""The tournament: what is best wins, what only crops never does, and a killed run ends with the same table."""

from __future__ import annotations

import json
import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ropewalk.evaluate.documents import Document, far_places
from ropewalk.evaluate.measures.needles import Needles
from ropewalk.evaluate.passage import Cannot, Passage
from ropewalk.evaluate.statistics import spearman
from ropewalk.evaluate.store import Stored
from ropewalk.extend.asking import Asking, OutOfTime
from ropewalk.extend.candidates import Candidate, Rope, formulas, listed
from ropewalk.extend.choose import rotation
from ropewalk.extend.judging import LOSSES_ALONE, Judged, decide, sentence
from ropewalk.extend.rounds import Skipped, skipped
from ropewalk.extend.sets import draw
from ropewalk.extend.tails import Tail
from ropewalk.extend.tournament import Result, alone, lengths_of, run
from ropewalk.extend.view import Cropping
from ropewalk.scaling import Linear, LongRoPE
from ropewalk.trials.jobs import Workers
from tests.checkpoints.valid_files import LLAMA, text
from tests.extend.toys import ROPE, TAIL, TO, TRAINED, Engineered, documents, planted, sets, until

LEAVE = Candidate("leave", "as it is")
CROP = Candidate("crop", "far text thrown away", text="cropped")
SINKS = Candidate("sinks", "a crop", text="sinks")
GOOD, STRONGER, CROPS, COSTLY = (
    planted(name, f) for name, f in (("good", 4), ("stronger", 8), ("crops", 5), ("costly", 6))
)
ALL = [LEAVE, CROP, SINKS, GOOD, STRONGER, CROPS, COSTLY]
REACH = {4.0: TO, 8.0: TO, 6.0: TO}


def held(
    engine: Engineered, candidates: list[Candidate], *, file: Path | None = None, cheap: bool = False, **more: Any
) -> Result:
    drawn, details = more.pop("sets", None) or sets(), more.pop("details", True)
    with closing(Asking(Stored(engine, file), engine, more.pop("workers", Workers()), **more)) as asking:
        return run(asking, ROPE, drawn, candidates, None, tail_tokens=TAIL, cheap=cheap, details=details)


def test_the_best_wins_and_is_said_with_its_interval() -> None:
    found = held(Engineered(REACH, {6.0: 0.1, 8.0: 0.3}), ALL)
    assert found.verdict.kind == "extend"
    assert found.verdict.winner == "good"
    gain = found.judged["good"].gain
    assert gain.low > 0
    assert f"{gain}" in found.sentence
    assert "better than cropping to" in found.sentence
    assert found.winner is not None
    assert found.winner.scaling == GOOD.scaling


def test_of_equal_ones_the_smallest_factor_wins_then_the_smallest_cost() -> None:
    found = held(Engineered(REACH), [LEAVE, STRONGER, GOOD, CROP])
    assert found.verdict.kind == "tie"
    assert found.verdict.tied == ["good", "stronger"]
    assert found.verdict.winner == "good"
    assert "A tie with stronger: take the simplest, good" in found.sentence


def test_of_equal_ones_a_formula_is_simpler_than_what_was_searched() -> None:
    """A ramp near a formula has a factor just below it, which makes it no simpler."""
    found = held(Engineered(REACH), [LEAVE, STRONGER, GOOD, CROP]).judged
    near = Judged(replace(GOOD, name="searched", factor=GOOD.factor - 0.01), found["good"].tail)
    verdict = decide({**found, "searched": near})
    assert (verdict.kind, verdict.winner) == ("tie", "good")
    assert verdict.tied == ["good", "stronger", "searched"]


def test_of_equal_ones_no_change_is_the_simplest() -> None:
    """Whatever a change without a factor, such as a gain alone, happens to save on short text."""
    found = held(Engineered(REACH), [LEAVE, STRONGER, GOOD, CROP]).judged
    gain = listed("gain only", "", [1.0] * 8, 1.05, ROPE)
    cheaper = replace(found["good"].tail, loss={**found["good"].tail.loss, TRAINED: [-1.0] * 8})
    leave = Judged(LEAVE, found["good"].tail)
    verdict = decide({"gain only": Judged(gain, cheaper), "leave": leave})
    assert (verdict.kind, verdict.winner) == ("leave", "leave")
    assert verdict.tied == ["leave", "gain only"]


def test_of_equal_factors_the_smaller_cost_on_short_text_is_taken() -> None:
    """Which is measured for these, and for no finalist that a larger factor puts behind them."""

    class Dear(Engineered):
        """Costs more on short text where the gain is not 1."""

        def nats(self, passage: Passage, scaling: Any = None) -> Any:
            dear = isinstance(scaling, LongRoPE) and scaling.rotary_gain > 1 and len(passage.tokens) <= TRAINED
            factor = max(ROPE.divisors(scaling))
            return super().nats(passage, Linear(factor=factor) if factor > 1 else scaling) + 0.1 * dear

    twins = [listed(name, "", [4.0] * 8, gain, ROPE) for name, gain in (("a dear one", 1.1), ("cheap", 1.0))]
    found = held(Dear(REACH), [LEAVE, CROP, *twins, STRONGER])
    assert set(found.verdict.tied) == {"a dear one", "cheap", "stronger"}
    assert found.verdict.winner == "cheap"
    assert found.judged["a dear one"].tail.short_cost.mean == pytest.approx(0.1)
    assert {name for name, one in found.judged.items() if one.tail.has_short} == {"a dear one", "cheap"}
    assert {name for name, one in found.judged.items() if one.tail.foreign} == {"cheap"}


def test_a_candidate_that_crops_never_wins() -> None:
    for seed in range(20):
        found = held(Engineered({}), [LEAVE, CROP, SINKS, CROPS], sets=sets(seed=seed))
        assert found.verdict.kind == "crop"
        assert found.winner is None
        assert found.judged["crops"].gain.mean == pytest.approx(0, abs=1e-6)
        assert found.judged["crops"].tail.benefit.mean == pytest.approx(0, abs=1e-6)
        assert found.sentence.startswith("Cropping is as good")
    # Beside one that reads the text, it is not taken for as good as that.
    assert held(Engineered(REACH), [LEAVE, CROP, CROPS, STRONGER]).verdict.winner == "stronger"


def test_cropping_and_sinks_are_judged_and_win_nothing() -> None:
    found = held(Engineered(REACH), ALL)
    assert found.judged["crop"].gain.mean == pytest.approx(0, abs=1e-9)
    assert {"crop", "sinks"}.isdisjoint(found.verdict.tied)
    text = np.arange(10)
    noted = Engineered()
    cut = Cropping(noted, 6, 2)
    seen: list[Any] = []
    noted.nats = lambda passage, scaling=None: seen.append(passage) or np.zeros(passage.scored)
    cut.nats(Passage.plain(text, 3))
    assert seen[0].tokens.tolist() == [0, 1, 6, 7, 8, 9]
    assert seen[0].positions.tolist() == [0, 1, 2, 3, 4, 5]


def test_sinks_have_the_baseline_of_the_finalists() -> None:
    """On the 8 documents that sinks are measured on the shorter crop is better, and on all of them the longer one."""

    class Uneven(Engineered):
        def nats(self, passage: Passage, scaling: Any = None) -> Any:
            first = any(np.array_equal(passage.tokens, one.tokens[-32:]) for one in sets(16).judge[:8])
            shorter = len(passage.tokens) == 32
            return super().nats(passage, scaling) + shorter * (-0.2 if first else 0.4)

    found = held(Uneven(REACH), [SINKS, GOOD], sets=sets(16))
    baselines = {name: one.tail.best_crop for name, one in found.judged.items()}
    assert baselines == {"good": 64, "sinks": 64}
    assert found.judged["sinks"].gain.documents == 8


def test_a_window_with_sinks_wins_nothing_even_where_it_gains() -> None:
    found = held(Engineered(REACH, {8.0: 0.1}), [LEAVE, GOOD, STRONGER]).judged
    assert decide({"sinks": Judged(SINKS, found["good"].tail), "stronger": found["stronger"]}).winner == "stronger"


def test_worse_than_cropping_is_said() -> None:
    found = held(Engineered({}, {5.0: 0.5}), [LEAVE, CROPS])
    assert found.verdict.kind == "crop better"
    assert found.sentence.startswith("Cropping is better")


def test_the_best_one_being_worse_is_said_whatever_a_noisier_one_allows() -> None:
    def judged(name: str, gains: list[float]) -> Judged:
        crop = [2.0] * len(gains)
        loss = [a - b for a, b in zip(crop, gains, strict=True)]
        found = Tail((1024, 4096), (1024,), {1024: crop}, {1024: crop, 4096: loss}, loss, [None] * len(gains))
        return Judged(planted(name, 2.0), found)

    draws = random.Random(0)
    finals = {
        "steady": judged("steady", [-0.12 + draws.gauss(0, 0.03) for _ in range(16)]),
        "noisy": judged("noisy", [-0.02] * 13 + [-2.5, -2.0, 0.3]),
    }
    verdict = decide(finals)
    assert (verdict.kind, verdict.best) == ("crop better", "steady")
    assert sentence(verdict, finals).startswith("Cropping is better: at 4,096 tokens the best, steady, gains -0.1")


def test_a_gain_that_needs_all_keys_is_not_dropped_by_the_cheap_round() -> None:
    rope = Rope(10_000.0, 64, 2048, 8192)
    every = {one.name: one for one in formulas(rope) if one.text == "whole"}

    class NeedsGain:
        """Angles near NTK's are better by little; with no key left out, a gain is worth much."""

        name = model = "toy"
        trained, vocabulary = 2048, 100

        def engine(self) -> NeedsGain:
            return self

        def nats(self, passage: Passage, scaling: Any = None) -> np.ndarray:
            apart = np.log(rope.divisors(scaling)) - np.log(rope.divisors(every["ntk"].scaling))
            gain = 1.0 if scaling is None else scaling.rotary_gain
            worth = 0.0 if passage.gaps else min(gain, 1.21) - 1
            return np.full(passage.scored, 3 + 0.05 * float(np.abs(apart).mean()) - worth)

    engine = NeedsGain()
    texts = [Document(f"{n}", f"{n}", np.random.default_rng(n).integers(0, 100, 8192), 1) for n in range(4)]
    found = skipped(Asking(Stored(engine, None), engine, Workers()), every, texts, rope, tail=512, near=2048)
    assert found is not None
    passage = Passage.plain(texts[0].tokens, 512)
    best = min(every, key=lambda name: engine.nats(passage, every[name].scaling).mean())
    assert best in found.kept


def test_a_linear_scaling_does_not_say_how_long_training_was(tmp_path: Path) -> None:
    """As `inspect --to` has it: the stated length is the extended one, and by which factor is not said."""
    scaled = {**LLAMA, "max_position_embeddings": 16_384, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}
    (tmp_path / "config.json").write_bytes(text(scaled))
    with pytest.raises(ValueError, match="add --trained N"):
        rotation(tmp_path, 32_768)
    assert rotation(tmp_path, 32_768, 4096).trained == 4096
    assert rotation(tmp_path, 32_768, 4096).reads == 16_384
    with pytest.raises(ValueError, match=r"--to 8,192 is shorter than the 16,384 tokens that the config of"):
        rotation(tmp_path, 8192, 4096)


def test_a_model_that_reads_further_by_itself_is_left_as_it_is() -> None:
    class Reaches(Engineered):
        def nats(self, passage: Passage, scaling: Any = None) -> Any:
            return super().nats(passage, GOOD.scaling if scaling is None else scaling)

    found = held(Reaches(REACH), [LEAVE, GOOD, STRONGER])
    assert found.verdict.kind == "leave"
    assert found.winner is None
    assert found.sentence.startswith("Leave it as it is")


class AtHome(Engineered):
    """Reads all of the text as it is. A change is better on the documents to search and select on by `before`, and by
    `after` on those to judge on."""

    before, after = 0.004, -0.02
    chosen_on: frozenset[int] = frozenset()

    def nats(self, passage: Passage, scaling: Any = None) -> Any:
        change = 0.0 if scaling is None else self.before if int(passage.tokens[-1]) in self.chosen_on else self.after
        # Text is worth something as it is, and each passage has a little of its own.
        own = int(passage.digest[:4], 16) / 2**16
        worth = 0.1 * len(passage.tokens) / TO
        return np.full(passage.scored, 3.0 - worth - change * (1 + 0.1 * own) + 0.001 * own)


@pytest.mark.parametrize(("after", "kind"), [(-0.02, "leave"), (0.0, "leave"), (0.02, "extend")])
@pytest.mark.parametrize("rope", [replace(ROPE, trained=TO), replace(ROPE, extended=TO)], ids=["trained", "stated"])
def test_at_its_own_length_a_change_must_be_better_than_none(rope: Rope, after: float, kind: str) -> None:
    """Leaving it is the worst of all on the documents that choose, and is judged all the same."""
    drawn, engine = sets(), AtHome()
    engine.after = after
    engine.chosen_on = frozenset(int(one.tokens[-1]) for one in (*drawn.search, *drawn.select))
    assert not engine.chosen_on & {int(one.tokens[-1]) for one in drawn.judge}
    changes = [planted(f"x{factor}", factor) for factor in range(2, 10)]
    asking = Asking(Stored(engine, None), engine, Workers())
    # As with a scaling of its own, so that of equal ones it is not the simplest.
    leave = replace(LEAVE, factor=16.0)
    found = run(asking, rope, drawn, [leave, CROP, *changes], None, tail_tokens=TAIL)
    assert found.rounds[0].losses["leave"] == max(found.rounds[0].losses.values())
    assert "leave" in found.judged
    assert found.verdict.kind in ((kind, "tie") if kind == "extend" else (kind,))
    if kind == "leave":
        assert found.winner is None
        assert found.sentence.startswith(
            "Leave it as it is: at 256 tokens no change is shown to be better; it gains +0."
        )
    else:
        assert found.winner is not None
        # Of cropping all finalists are better, leaving it among them.
        assert set(found.verdict.proven) == {
            name for name, one in found.judged.items() if one.candidate.text == "whole"
        }
        over = found.to_dict()["verdict"]["over_leaving"]
        assert over["mean"] == pytest.approx(0.021, abs=0.001)
        assert f"better than no change by {over['mean']:+.4f}" in found.sentence


def test_a_crop_leaves_what_the_config_states_whatever_training_is_assumed(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(text({**LLAMA, "max_position_embeddings": 2048}))
    assert rotation(tmp_path, 2048, 1024).own
    assert rotation(tmp_path, 2048).own
    longer = rotation(tmp_path, 4096, 1024)
    assert (longer.own, longer.reads, longer.trained) == (False, 2048, 1024)


def test_few_documents_conclude_nothing() -> None:
    found = held(Engineered(REACH), [LEAVE, GOOD], sets=sets(judge=5))
    assert found.verdict.kind == "too few"
    assert found.winner is None
    assert found.sentence.startswith("5 documents are too few")


def test_under_two_names_one_candidate_is_a_tie() -> None:
    """A/A: two names whose losses differ by chance alone are told apart in 5 of 100, which is the level."""
    one = held(Engineered(REACH), [LEAVE, GOOD]).judged["good"]
    apart = 0
    for seed in range(1000):
        draws = np.random.default_rng(seed)
        named: dict[str, Judged] = {}
        for name in ("a", "b"):
            loss = {n: [v + draws.normal(0, 0.05) for v in each] for n, each in one.tail.loss.items()}
            tail = type(one.tail)(**{**one.tail.__dict__, "loss": loss})
            named[name] = Judged(Candidate(name, "", GOOD.scaling, factor=4), tail)
        apart += len(decide(named).tied) < 2
    # Binomial(1000, 0.05) is below 35 or above 67 once in a hundred; 2,000 other draws gave 96.
    assert 35 <= apart <= 67


@pytest.mark.parametrize("moments", [[1], [2, 9, 20, 21, 30], None])
def test_killed_at_any_moment_it_ends_with_the_same_table(tmp_path: Path, moments: list[int] | None) -> None:
    engine = Engineered(REACH, {6.0: 0.1})
    want = held(engine, ALL).to_dict()
    kills = moments or random.Random(1).sample(range(1, engine.passes // 8), 8)
    file = tmp_path / "measurements.jsonl"
    for moment in kills:
        with pytest.raises(KeyboardInterrupt):
            held(Engineered(REACH, {6.0: 0.1}, fails_at=moment), ALL, file=file)
        if file.exists():
            with file.open("a") as out:
                out.write('{"key": "cut in ha')
    last = Engineered(REACH, {6.0: 0.1})
    assert json.dumps(held(last, ALL, file=file).to_dict()) == json.dumps(want)
    assert last.passes == engine.passes - sum(moment - 1 for moment in kills)


def test_a_budget_ends_between_passes_and_loses_none(tmp_path: Path) -> None:
    file = tmp_path / "kept.jsonl"
    with pytest.raises(OutOfTime, match=r"search at 256: 0 of"):
        held(Engineered(REACH), ALL, file=file, seconds=-1.0)
    assert held(Engineered(REACH), ALL, file=file, seconds=60.0).verdict.winner == "good"


def test_a_verdict_is_known_before_what_it_is_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """The losses decide; needles, foreign text and short text say more, and take as long again."""
    engine, few = Engineered(REACH, {4.0: 0.01}), [LEAVE, CROP, GOOD]

    def known_when_time_ends_at(stage: str) -> Result | None:
        monkeypatch.setattr(Asking, "__call__", until(stage, Asking.__call__))
        with pytest.raises(OutOfTime, match=f"^{stage}: 0 of") as caught:
            held(engine, few)
        monkeypatch.undo()
        return caught.value.so_far

    assert known_when_time_ends_at("judge") is None, "a verdict needs every loss"
    found, whole = known_when_time_ends_at("judge on short text"), held(engine, few)
    assert found is not None
    assert (found.verdict, found.not_measured) == (whole.verdict, ["out of time at judge on short text: 0 of 8 passes"])
    gained = f"Take good: at 256 tokens it is better than cropping to 32 by {whole.judged['good'].gain} nats per token"
    assert found.sentence.startswith(gained)
    assert whole.sentence.startswith(gained)
    assert "short text" in whole.sentence
    assert "short text" not in found.sentence
    brief = held(engine, few, details=False)
    assert (brief.verdict, brief.sentence, brief.not_measured) == (found.verdict, found.sentence, [LOSSES_ALONE])


def test_several_workers_give_the_same_result() -> None:
    engine = Engineered(REACH, {6.0: 0.1})
    few = [LEAVE, CROP, GOOD, COSTLY]
    want = held(engine, few).to_dict()
    assert json.dumps(held(engine, few, workers=Workers(2)).to_dict()) == json.dumps(want)


def test_two_runs_in_one_directory_are_refused(tmp_path: Path) -> None:
    run_directory = tmp_path / "run"
    with alone(run_directory), pytest.raises(ValueError, match="another run is at work"), alone(run_directory):
        pass
    with alone(tmp_path / "run"):
        pass


MANY = [LEAVE, *(planted(f"x{factor}", factor) for factor in range(2, 16))]


class ByDistance(Engineered):
    """A larger factor is better or worse by what it costs, at far positions alone; `turned`: the other way round where
    the whole text is there."""

    turned = False

    def nats(self, passage: Passage, scaling: Any = None) -> Any:
        factor = 1.0 if scaling is None else scaling.factor
        sign = -1 if self.turned and not passage.gaps else 1
        return np.full(passage.scored, 3.0 + sign * 0.01 * factor)


@pytest.mark.parametrize("turned", [False, True])
def test_skipped_positions_are_believed_only_where_they_rank_as_the_full_length(turned: bool) -> None:
    engine = ByDistance()
    engine.turned = turned
    drawn = sets()
    rope_long = ROPE.__class__(ROPE.base, ROPE.width, 16, TO)
    asking = Asking(Stored(engine, None), engine, Workers())
    found = run(asking, rope_long, drawn, MANY, None, tail_tokens=8, cheap=True)
    (first, *_) = found.rounds
    assert isinstance(first, Skipped)
    assert first.correlation == (-1 if turned else 1)
    assert first.used is not turned
    assert len(first.kept) == (len(MANY) if turned else 8)
    assert found.verdict.best == ("x15" if turned else "leave")


def test_the_three_sets_share_no_document_and_are_drawn_by_their_text(tmp_path: Path) -> None:
    for one in documents(20):
        (tmp_path / f"{one.name}.txt").write_text(" ".join(map(str, one.tokens)))
    (tmp_path / "twice.txt").write_text((tmp_path / "d0-3.txt").read_text())
    for one in documents(20):  # the same tokens under another digest, and another edition of the text
        (tmp_path / f"{one.name}.md").write_text((tmp_path / f"{one.name}.txt").read_text() + "\n")
        words = (tmp_path / f"{one.name}.txt").read_text().split()
        words[::40] = ["7"] * len(words[::40])
        (tmp_path / f"{one.name}-edition.txt").write_text(" ".join(words))
    (tmp_path / "short.txt").write_text("1 2 3")
    (tmp_path / "never.txt").write_text(" ".join(map(str, range(1000, 1000 + TO))))
    given = {"longest": TO, "near": TRAINED, "tail": TAIL, "judge": 8}

    def encode(text: str) -> list[int]:
        return [int(word) for word in text.split()]

    drawn = draw([tmp_path], encode, **given)
    every = [one.digest for part in (drawn.search, drawn.select, drawn.judge) for one in part]
    assert [len(part) for part in (drawn.search, drawn.select, drawn.judge)] == [2, 2, 8]
    assert every == sorted(set(every))
    assert len({one.tokens.tobytes() for part in (drawn.search, drawn.select, drawn.judge) for one in part}) == 12
    assert all(len(far_places(one.tokens, TAIL, TRAINED)) >= 4 for one in drawn.judge)
    second = draw([tmp_path], encode, **given, number=1)
    assert second.search[0].digest == drawn.search[0].digest
    assert {one.digest for one in second.judge}.isdisjoint(every)
    assert "at least 256 tokens" in drawn.rule
    assert "first 2 to search, the next 2 to select, 8" in drawn.rule
    with pytest.raises(ValueError, match="20 documents will do and 28 are needed"):
        draw([tmp_path], encode, **given, number=2)
    with pytest.raises(ValueError, match="1 fewer than 256 tokens, 1 an end that repeats nothing far, 40 near copies"):
        draw([tmp_path], encode, **given, number=2)
    # Those before the last one taken.
    counts = [sum(one.left_out.values()) for one in (drawn, second)]
    assert counts[0] <= counts[1] <= 42
    assert 0 < counts[1]


@pytest.mark.parametrize(("extended", "kind", "crop"), [(None, "extend", 32), (128, "crop better", 128)])
def test_a_crop_leaves_what_the_own_scaling_of_a_model_reads(extended: int | None, kind: str, crop: int) -> None:
    """The model as it is copies from 128 tokens, a candidate from all of the text, at 0.15 nats a token: better than
    cropping to the 64 that it was trained for, and worse than cropping to what it reads."""
    engine = Engineered({1.0: 128, 4.0: TO}, {4.0: 0.15}, broken=0.0)
    rope, drawn = replace(ROPE, extended=extended), sets(10)
    for one in drawn.judge:  # what the tail repeats stands within the last 128 tokens
        one.tokens[-120:-104] = one.tokens[4:20]
        one.tokens[4:20] = 399
    asking = Asking(Stored(engine, None), engine, Workers())
    found = run(asking, rope, drawn, [planted("good", 4)], None, tail_tokens=TAIL, cheap=False)
    assert found.verdict.kind == kind
    assert found.judged["good"].tail.best_crop == crop
    assert f" cropping to {crop}" in found.sentence


def test_lengths_have_something_to_crop_to() -> None:
    def rope(trained: int, to: int, extended: int | None = None) -> Rope:
        return Rope(10_000.0, 64, trained, to, None, extended)

    assert lengths_of(rope(2048, 8192), 512) == [1024, 2048, 4096, 8192]
    assert lengths_of(rope(2048, 2048), 256) == [512, 1024, 2048]
    with pytest.raises(ValueError, match="has nothing to be compared with"):
        lengths_of(rope(64, 64), 40)
    for trained, to, tail, fewer in (
        (256, 2048, 256, 252),
        (256, 2048, 252, 252),
        (512, 512, 512, 508),
    ):
        with pytest.raises(ValueError, match=rf"--tail {tail} leaves no text .* give fewer than {fewer}"):
            lengths_of(rope(trained, to), tail)
    assert lengths_of(rope(256, 2048), 251)
    assert lengths_of(rope(8192, 2**18, 2**17), 512) == [8192, 2**16, 2**17, 2**18]  # Llama 3.1
    assert lengths_of(rope(8192, 2**17, 2**17), 512) == [2**15, 2**16, 2**17]
    long = replace(rope(8192, 2**17, 2**17), scaling=Linear(factor=16))
    assert lengths_of(long, 512) == [8192, 2**15, 2**16, 2**17]


def test_rank_correlation() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    # 1 - 6 (1 + 1) / (4 (16 - 1))
    assert spearman([1, 2, 3, 4], [2, 1, 3, 4]) == pytest.approx(0.8)
    assert spearman([1, 1, 1], [1, 2, 3]) == 0
    # Ties share their ranks: 1.5, 1.5, 3 against 1, 2, 3.
    assert spearman([5, 5, 7], [1, 2, 3]) == pytest.approx(np.corrcoef([1.5, 1.5, 3], [1, 2, 3])[0, 1])


def shifted(gains: list[float], name: str = "good", shorter: float = 0.1) -> Judged:
    """A candidate with these gains over the best crop, the longest, or the shorter one by so much."""
    n = len(gains)
    crop = {32: [3.0 + shorter] * n, 64: [3.0] * n}
    best = min(3.0, 3.0 + shorter)
    loss = {32: crop[32], 64: crop[64], TO: [best - gain for gain in gains]}
    tail = Tail((32, 64, TO), (32, 64), crop, loss, [3.0] * n, [(3.0, 2.5), (3.0, 2.4)] * (n // 2))
    return Judged(replace(planted("good", 4), name=name), tail)


def test_a_verdict_against_its_interval_says_why() -> None:
    """One of three finalists is better by its own interval, and not after Holm's correction over all of them."""
    spread = [-1.5, -1.0, -0.5, -0.25, 0.25, 0.5, 1.0, 1.5]
    judged = {"a": shifted([0.03 + 0.033 * by for by in spread], "a")}
    judged |= {name: shifted([0.001 * by for by in spread], name) for name in ("b", "c")}
    verdict = decide(judged)
    assert verdict.kind == "crop"
    assert judged["a"].gain.low > 0
    assert "Holm's correction over 3 finalists leaves it open" in sentence(verdict, judged)
    del judged["a"]
    assert "Holm" not in sentence(decide(judged), judged)


@pytest.mark.parametrize(("shorter", "said"), [(0.1, ";"), (-0.1, " over cropping to 64;")])
def test_far_tokens_are_compared_with_the_longest_crop(shorter: float, said: str) -> None:
    """0.5 and 0.6 nats better on far tokens than cropping to 64, also where cropping to 32 is better over all."""
    one = shifted([0.2 + 0.01 * n for n in range(8)], shorter=shorter)
    words = sentence(decide({"good": one}), {"good": one})
    assert f"on far tokens {one.tail.far_gain}{said}" in words
    assert f"better than cropping to {64 if shorter > 0 else 32} by" in words


def test_where_cropping_is_better_the_verdict_says_what_it_gives_up() -> None:
    """A model may lose in the mean and still retrieve what a crop does not contain."""
    found = {"good": [True, True, True, False], "crop": [True, False, False, False]}
    one = replace(shifted([-0.2 - 0.01 * n for n in range(8)]), needles=[Needles(64, [[True] * 4], [0.0])])
    one.needles.append(Needles(TO, [found["good"]], [0.0]))
    crop = replace(one, candidate=CROP, needles=[Needles(TO, [found["crop"]], [0.0])])
    finals = {"good": one, "crop": crop}
    verdict = decide(finals)
    assert verdict.kind == "crop better"
    words = sentence(verdict, finals)
    assert f"; on far tokens {one.tail.far_gain}; " in words
    assert "needles found 75% [30%, 95%] (control 100%, cropping finds 25%); " in words


def test_a_cheap_round_that_is_not_made_is_said() -> None:
    found = held(Engineered(REACH), MANY, cheap=True)
    assert not any(isinstance(one, Skipped) for one in found.rounds)
    assert "skipped positions: the 72 tokens of both ends are more than a quarter of 256" in found.not_measured
    found = held(Engineered(REACH), ALL, cheap=True)
    assert any("5 candidates are too few" in what for what in found.not_measured)
    assert not held(Engineered(REACH), ALL).not_measured


def test_likelihoods_that_are_not_finite_are_said_with_their_scaling(tmp_path: Path) -> None:
    """In float16, say, under one scaling of many."""
    engine = Engineered(REACH, {8.0: float("nan")})
    with pytest.raises(Cannot, match=r"toy gives likelihoods that are not finite at \d+ positions under linear x8"):
        held(engine, ALL, file=tmp_path / "kept.jsonl")


def test_a_verdict_says_what_the_gain_is_made_of() -> None:
    """benefit - harm = gain, on the documents where the far text was replaced."""
    found = held(Engineered(REACH, {4.0: 0.05}), [LEAVE, CROP, GOOD])
    tail = found.judged["good"].tail
    said = f"far text is worth {tail.benefit}, the length costs {tail.harm}"
    assert said in found.sentence
    pieces = zip(tail.foreign, tail.loss[TO], tail.crop[tail.best_crop], strict=False)
    assert tail.benefit.mean - tail.harm.mean == pytest.approx(np.mean([crop - loss for _, loss, crop in pieces]))
    useless = held(Engineered({4.0: TRAINED}, {4.0: 0.05}), [LEAVE, CROP, GOOD])
    assert useless.sentence.startswith("Cropping is better")
    tail = useless.judged["good"].tail
    assert (tail.benefit.mean, tail.harm.mean) == pytest.approx((0, 0.05))
    assert f"far text is worth {tail.benefit}, the length costs {tail.harm}" in useless.sentence
