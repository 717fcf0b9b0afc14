"""The campaign of `ropewalk extend`: what a run took over all its pieces, and what it leaves when it does not end."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from campaigns import extend, pieces
from ropewalk.evaluate.measures.needles import Needles
from ropewalk.evaluate.statistics import paired
from ropewalk.evaluate.store import Stored
from ropewalk.extend.asking import Asking, OutOfTime
from ropewalk.extend.judging import Judged
from ropewalk.extend.search.ramp import Ramp
from ropewalk.extend.search.searched import Searched
from ropewalk.extend.tails import Tail
from ropewalk.extend.tournament import Result, run
from ropewalk.scaling import YaRN
from ropewalk.trials.jobs import Workers
from tests.blocks import ROOT
from tests.extend.test_tournament import ALL, GOOD, REACH
from tests.extend.toys import ROPE, TAIL, TO, TRAINED, Engineered, sets


@pytest.fixture
def given() -> dict[str, Any]:
    """What the campaign called `choose` with."""
    return {}


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]) -> Any:
    """The campaign with a model whose answers are known: `told(*options)` gives the exit code. The first piece ends
    after 20 passes."""
    kept = tmp_path / "measurements.jsonl"

    def choose(path: Path, to: int, texts: Any, work: Path, **asked: Any) -> Result:
        engine = Engineered(REACH, {6.0: 0.1})
        first = not given
        given.update(asked)

        def progress(stage: str, done: int, total: int) -> None:
            asked["progress"](stage, done, total)
            if first and engine.passes == 20:
                raise OutOfTime("select at 256: 4 of 8 passes")

        asking = Asking(Stored(engine, kept), engine, Workers(), progress=progress)
        return run(asking, ROPE, sets(), ALL, None, tail_tokens=TAIL, ended=asked["ended"])

    monkeypatch.setattr(extend, "choose", choose)
    monkeypatch.setattr(extend, "native", lambda model: False)

    def main(*options: str) -> int:
        out = ["--out", str(tmp_path / "results"), "--work", str(tmp_path / "work"), "--text", "t.jsonl"]
        monkeypatch.setattr(sys, "argv", ["extend", "m.gguf", "--to", str(TO), "--name", "toy", *out, *options])
        return extend.main()

    return main


def result(folder: Path) -> dict[str, Any]:
    (file,) = (folder / "results").glob("*.json")
    return json.loads(file.read_text())


def test_time_and_memory_are_of_all_pieces(told: Any, tmp_path: Path) -> None:
    assert told() == pieces.UNFINISHED
    assert not (tmp_path / "results").exists()
    (file,) = (tmp_path / "work").glob("*.json")
    left = json.loads(file.read_text())
    assert (left["where"], left["passes"]) == ("select at 256: 4 of 8 passes", 20)
    assert [one["name"] for one in left["rounds"]] == ["search at 256", "select at 256"]
    assert left["rounds"][0]["losses"].keys() >= {"leave", "good"}
    assert left["seconds"] == left["took"][0]["seconds"]
    told()
    assert not file.exists()
    said = result(tmp_path)
    (html,) = (tmp_path / "results").glob("*.html")
    assert "this run only measured" in html.read_text()
    first, second = said["took"]
    assert first["passes"] == 20
    assert said["measured"]["passes"] == first["passes"] + second["passes"]
    assert second["GiB"] > 0.01
    bars = said["bars"]
    assert bars["minutes in all"]["bound"] == 240
    assert bars["minutes of the longest piece"] == {
        "value": pytest.approx(max(one["seconds"] for one in said["took"]) / 60, rel=0.01), "bound": 30, "holds": True
    }  # fmt: skip
    assert bars["GiB"]["bound"] == 6


def test_a_bar_is_broken_by_any_piece(tmp_path: Path) -> None:
    file = tmp_path / "pieces.jsonl"
    lines = [{"seconds": 1900, "passes": 3, "GiB": 2.0}, {"seconds": 1000, "passes": 3, "GiB": 7.0}]
    file.write_text("".join(json.dumps(one) + "\n" for one in [*lines, *lines]))
    found = {ratio: extend.Pieces(file).bars(ratio) for ratio in (1.0, 2.0, 4.0)}
    assert {name: one["holds"] for name, one in found[2.0].items()} == {
        "minutes in all": False, "minutes of the longest piece": False, "GiB": False
    }  # fmt: skip
    assert found[1.0]["minutes in all"]["bound"] == 90
    assert found[4.0]["minutes in all"] == {"value": 96.667, "bound": 240.0, "holds": True}


def test_a_smaller_trained_length_is_compared_with_no_change(told: Any, tmp_path: Path, given: dict[str, Any]) -> None:
    for _ in range(2):
        told("--assume", "32", "--documents", "12")
    assert given["only"] == YaRN(factor=TO / 32, trained=32)
    assert given["asked"] == 12
    said = result(tmp_path)
    assert "--assume 32" in said["command"]
    assert [file.stem for file in (tmp_path / "results").glob("*.json")] == ["extend-toy-256-assume-32-documents-12"]
    told()
    assert given["only"] is None
    assert given["asked"] == 4


def judged(name: str, loss: float, found: list[float]) -> Judged:
    """A candidate with a loss that differs a little by document, and shares of 16 needles found."""
    losses = [loss + 0.001 * n for n in range(4)]
    tail = Tail((64, TO), (64,), {64: [3.0] * 4}, {TO: losses}, [], [None] * 4)
    hits = [[place < share * 16 for place in range(16)] for share in found]
    scaling = None if name == "leave" else GOOD.scaling
    return Judged(replace(GOOD, name=name, scaling=scaling), tail, [Needles(TO, hits, [0.0] * len(found))])


def test_losses_and_needles_are_compared_in_pairs() -> None:
    engine = Engineered(REACH)
    found = run(Asking(Stored(engine, None), engine, Workers()), ROPE, sets(), ALL, None, tail_tokens=TAIL)
    finals = [judged("leave", 2.5, [0.25, 0.5, 0.5]), judged("yarn", 2.4, [0.5, 0.5, 0.75])]
    said = extend.compared(replace(found, judged={one.candidate.name: one for one in finals}))
    assert list(said) == ["loss, yarn better than leave", "needles, yarn minus leave"]
    loss, needles = said.values()
    assert (loss.mean, loss.documents) == (pytest.approx(0.1), 4)
    assert needles == paired([0.25, 0.0, 0.25])


def test_what_was_searched_is_compared_with_the_best_formula_of_the_documents_to_select_on() -> None:
    """Not with the best on those to judge on, which would be chosen by what judges it."""
    engine = Engineered(REACH)
    found = run(Asking(Stored(engine, None), engine, Workers()), ROPE, sets(), ALL, None, tail_tokens=TAIL)
    finals = [judged("searched", 2.3, [0.5, 0.75]), judged("yarn", 2.4, [0.5, 0.5]), judged("ntk", 2.35, [0.5, 0.5])]
    ramp = Ramp(first=0, span=1, power=1, factor=4, base=1, gain=1)
    select = {"yarn": 2.0, "ntk": 2.1, "ramp": 1.8, "refined": 1.7}
    searched = Searched(finals[0].candidate, ramp, [], select, True, 9, True)
    both = {one.candidate.name: one for one in finals}
    said = extend.compared(replace(found, judged=both, searched=searched))
    assert said == {
        "loss, searched better than yarn": paired([2.4 + 0.001 * n - (2.3 + 0.001 * n) for n in range(4)]),
        "needles, searched minus yarn": paired([0.0, 0.25]),
    }


def test_one_scaling_is_judged_by_its_losses_alone(
    told: Any, tmp_path: Path, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extend, "rotation", lambda *of: ROPE)
    for _ in range(2):
        told("--scaling", "yarn", "--losses")
    assert given["only"] == YaRN(factor=TO / TRAINED, trained=TRAINED)
    assert given["details"] is False
    assert "--scaling yarn --losses" in result(tmp_path)["command"]
    assert [file.stem for file in (tmp_path / "results").glob("*.json")] == ["extend-toy-256-scaling-yarn-losses"]
    told("--assume", "32")
    assert given["details"] is True


@pytest.mark.parametrize("file", sorted((ROOT / "campaigns/results").glob("extend-*.json")), ids=lambda file: file.stem)
def test_a_committed_result_says_the_gains_of_its_losses(file: Path) -> None:
    said = json.loads(file.read_text(encoding="utf-8"))
    to = str(said["result"]["to"])
    gains = {name: one["tail"]["gain"][to] for name, one in said["result"]["judged"].items()}
    assert {f"gain, {name}": one["mean"] for name, one in gains.items()} == {
        key: value for key, value in said["measured"].items() if key.startswith("gain, ")
    }
    for name, one in said["result"]["judged"].items():
        tail = one["tail"]
        each = zip(tail["crop"][str(tail["best_crop"])], tail["loss"][to], strict=False)
        assert paired([crop - loss for crop, loss in each]).to_dict() == pytest.approx(
            gains[name], rel=1e-12, abs=1e-12
        )
