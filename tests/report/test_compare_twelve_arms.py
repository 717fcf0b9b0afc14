"""What the page, the files and the terminal say of a study of twelve arms, among them one that is called none."""

from __future__ import annotations

import copy
import itertools
import math
import re
from pathlib import Path
from typing import Any

import pytest

from ropewalk.cli.compare.words import show
from ropewalk.compare.derived import best_on_task, flattered
from ropewalk.compare.judge_tasks import by_chance, judged_task, points
from ropewalk.compare.tables import tables
from ropewalk.plot.chart import Arrow, Line, Note
from ropewalk.plot.layout import LABEL_GAP, boxes, inches
from ropewalk.report.chart_svg import NARROW, NORMAL
from ropewalk.report.comparison.charts import cost, protocol, task
from ropewalk.report.comparison.page import page
from tests.report.reading import shown, stands_alone
from tests.report.twelve_arms import COPY, CURVES, PIECES, TEXT, found, planned


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("twelve")
    answer = found(planned(folder), folder)
    for arm in answer["text"]["arms"].values():
        arm["search"] = {"0.5": 3.3, "1.0": 3.2, "2.0": None}
        arm["edge"] = arm["factor"] != 1
    return answer


@pytest.fixture
def study(whole: dict[str, Any]) -> dict[str, Any]:
    """One that a test may change."""
    return copy.deepcopy(whole)


def column(study: dict[str, Any], file: str, name: str, **only: Any) -> list[Any]:
    """Of the rows of a CSV file that have these values."""
    headings, rows = tables(study)[file]
    each = [dict(zip(headings, row, strict=True)) for row in rows]
    return [row[name] for row in each if all(row[key] == value for key, value in only.items())]


def test_an_empty_list_does_not_look_like_an_arm(study: dict[str, Any]) -> None:
    text = page("study", study)
    stands_alone(text)
    assert "better t5 (p 0.0079); worse no arm; ties none, alibi." in shown(text)
    assert "\u66f4\u5dee\uff1a\u6ca1\u6709\u4efb\u4f55\u4e00\u7ec4\uff1b\u6253\u5e73\uff1anone, alibi" in shown(
        text, "zh-CN"
    )


def test_a_task_is_judged_at_each_length_by_all_seeds(study: dict[str, Any]) -> None:
    """One seed of t5 has 87 % at the shortest length: by its reach it is no better than the reference."""
    t5 = study["tasks"]["verdicts"]["copy"]["t5"]
    assert (t5["reach"], t5["reach_verdict"]) == ([40, 0, 40, 40, 20], "tie")
    assert {n: one["verdict"] for n, one in t5["lengths"].items()} == {
        "5": "tie", "20": "tie", "25": "better", "40": "better",
    }  # fmt: skip
    assert t5["lengths"]["40"]["p"] == pytest.approx(2 / 252)
    assert study["tasks"]["verdicts"]["copy"]["learned"]["lengths"]["40"] == {"p": None, "verdict": "cannot"}
    english = shown(page("study", study))
    assert (
        "Copying at 40 symbols (trained up to 20), accuracy of each seed: best t5 (100, 100, 99, 98, 58 %)" in english
    )
    assert "The reference rope: 0, 0, 0, 0, 0 %." in english
    assert "Parity at 5 symbols (trained up to 20), accuracy of each seed: best none (100, 100, 100," in english
    assert "At 40 symbols no seed of any arm is above chance." in english


def test_holm_is_over_the_arms_at_one_length() -> None:
    """Eleven arms of five seeds: the least p there is, 2 of 252, is above 0.05 / 11, so that nothing can be judged."""
    reference = {"8": points([0.0] * 5)}
    better = {"8": points([1.0] * 5)}

    def verdict(arms: int, complete: bool = True) -> str:
        exact = {"rope": reference, **{f"a{n}": better for n in range(arms)}}
        return judged_task(exact, "rope", [8], list(exact) if complete else ["rope"], {})["a0"]["lengths"]["8"][
            "verdict"
        ]

    assert (verdict(1), verdict(6), verdict(11), verdict(1, complete=False)) == (
        "better", "better", "no verdict", "no verdict",
    )  # fmt: skip


@pytest.mark.parametrize(("solves", "verdict"), [(0.57, "no verdict"), (0.9, "better")])
def test_constant_answers_are_not_told_apart(solves: float, verdict: str) -> None:
    """Of 100 questions of parity 57 are odd: five seeds that say so are no better than five that say even."""
    exact = {"rope": {"8": points([0.43] * 5)}, "odd": {"8": points([solves] * 5)}}
    found = judged_task(exact, "rope", [8], list(exact), {"8": by_chance(0.57, 100)})
    assert found["odd"]["lengths"]["8"]["verdict"] == verdict
    told = {"rope": {"exact": {"parity": exact["rope"]}}, "odd": {"exact": {"parity": exact["odd"]}}}
    tasks = {"lengths": [8], "arms": told, "chance": {"parity": {"8": by_chance(0.57, 100)}}}
    assert (best_on_task(tasks, "parity") is None) == (verdict == "no verdict")


def test_an_answer_that_nobody_can_guess_is_above_chance() -> None:
    exact = {"rope": {"8": points([0.0] * 5)}, "copies": {"8": points([0.04] * 5)}}
    found = judged_task(exact, "rope", [8], list(exact), {"8": by_chance(0.01, 100)})
    assert found["copies"]["lengths"]["8"]["verdict"] == "better"


def test_the_best_arm_is_not_that_of_the_highest_mean(study: dict[str, Any]) -> None:
    exact = {name: arm["exact"]["copy"] for name, arm in study["tasks"]["arms"].items()}
    exact["alibi"]["40"] = points([1.0, 1.0, 0.0, 0.0, 0.0])
    exact["t5"]["40"] = points([0.1, 0.1, 0.1, 0.1, 0.1])
    assert best_on_task(study["tasks"], "copy") == (40, ["t5"])
    exact["alibi"]["40"] = points([0.1, 0.1, 0.1, 0.1, 0.1])
    assert best_on_task(study["tasks"], "copy") == (40, ["alibi", "t5"])
    for each in exact.values():
        each |= {n: points([0.0] * 5) for n in each}
    assert best_on_task(study["tasks"], "copy") is None
    assert "Copying: no seed of any arm is above chance, at any length." in shown(page("study", study))


def test_the_share_of_seeds_that_solve_a_length_is_shown(
    study: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = {"task": "copy", "arm": "t5", "symbols": "40"}
    (solved,), (low,), (verdict,), (p,) = (
        column(study, "task_verdicts", n, **only) for n in ("solved", "low", "verdict", "p")
    )
    assert (solved, low, verdict, p) == (4, pytest.approx(0.3755, abs=1e-4), "better", pytest.approx(2 / 252))
    assert column(study, "task_reach", "reach", task="copy", arm="t5") == [40, 0, 40, 40, 20]
    text = page("study", study)
    assert "4/538\u201396\u00a0%betterp\u00a00.0079" in shown(text)
    show(study, tmp_path, quiet=True)
    said = capsys.readouterr().out
    assert "t5        4/5 [38, 96]   5/5 [57, 100]  4/5 [38, 96]  4/5 [38, 96]" in said
    assert "100 100 99 98 58 +" in said


def test_tasks_have_their_rates_and_costs_beside_those_of_text(study: dict[str, Any]) -> None:
    english = shown(page("study", study))
    assert "Text: equal tokens and equal time" in english
    assert "Tasks: equal tokens and equal time" in english
    assert column(study, "rates", "rate", part="tasks", arm="t5", which="own") == [0.004] * 5
    assert column(study, "rates", "rate", part="tasks", arm="t5", which="shared") == [0.002]
    own, shared = (column(study, "rates", "nats", part="tasks", arm="t5", which=key) for key in ("own", "shared"))
    assert own == study["tasks"]["arms"]["t5"]["loss"]
    assert shared == study["tasks"]["arms"]["t5"]["shared_loss"]
    assert set(column(study, "task_cost", "arm")) == {*COPY}


def test_arms_at_the_edge_of_the_search_are_named(study: dict[str, Any]) -> None:
    english = shown(page("study", study))
    assert "lies at either end of the search range for t5, scalar-integer: a wider range may suit" in english
    assert "Tasks: learning-rate search" in english
    assert column(study, "search", "nats", part="text", arm="t5") == [3.3, 3.2, None]
    assert column(study, "search", "edge", part="text", arm="t5") == [False, False, True]
    for arm in study["text"]["arms"].values():
        arm["edge"] = False
    for arm in study["tasks"]["arms"].values():
        del arm["search"], arm["edge"]  # as in results that were kept before
    english = shown(page("study", study))
    assert "No arm's chosen learning rate lies at either end" in english
    assert "Tasks: learning-rate search" not in english


def test_two_rankings_that_differ_are_said_to_differ_and_no_more(study: dict[str, Any]) -> None:
    english = shown(page("study", study))
    tau = study["text"]["rankings"]["kendall_tau"]
    assert tau < 1
    assert f"The rankings at own and at shared learning rates differ (Kendall's tau {tau:.2f}, seeds: 1)." in english
    assert "depends on the learning rate" not in english


def test_arms_that_only_windows_flatter_are_named(study: dict[str, Any]) -> None:
    """kerple gains on the same tokens too, a fifth of what it gains by windows; the loss of rope rises with windows."""
    assert [one.name for one in flattered(study["text"])] == ["alibi", "t5", "kerple", "rope-random"]
    gaining = copy.deepcopy(study["text"])
    kerple = gaining["arms"]["kerple"]
    kerple["same_tokens"] |= {
        length: [loss - 0.06 for loss in kerple["same_tokens"]["32"]]
        for length in kerple["same_tokens"]
        if length != "32"
    }
    assert [one.name for one in flattered(gaining)] == ["alibi", "t5", "rope-random"]
    english = shown(page("study", study))
    (said,) = re.findall(r"alibi \(512: (\S+), (\S+)\)", english)
    assert said == ("\u22120.092", "+0.004")
    assert "That is no gain" in english
    for arm in study["text"]["arms"].values():
        arm["non_overlapping"] = arm["same_tokens"]
    assert "That is no gain" not in shown(page("study", study))


def test_each_arm_is_compared_with_itself_at_the_trained_length(study: dict[str, Any]) -> None:
    near, far = (study["text"]["arms"]["rope"]["same_tokens"][n] for n in ("32", "512"))
    each = column(study, "anchors", "perplexity ratio", arm="rope", length=512)
    assert each == [pytest.approx(math.exp(b - a)) for a, b in zip(near, far, strict=True)]
    assert column(study, "anchors", "perplexity ratio", arm="learned", length=512) == ["cannot"] * 3
    middle = math.exp(sum(b - a for a, b in zip(near, far, strict=True)) / len(near))
    assert f"{middle:.3f} [{min(each):.3f}, {max(each):.3f}]" in shown(page("study", study))


def test_a_line_above_the_picture_has_its_name_at_the_top(study: dict[str, Any]) -> None:
    (panel,) = protocol(study, "same", "en").panels
    (line,) = [mark for mark in panel.marks if isinstance(mark, Line) and mark.label.startswith("scalar-integer")]
    assert (list(line.y), line.label) == ([panel.y.high], "scalar-integer \u2191")
    assert "Entirely above the figure, marked by an arrow at its top edge: scalar-integer." in shown(
        page("study", study)
    )


def test_a_line_is_drawn_from_where_it_enters_the_picture(study: dict[str, Any]) -> None:
    study["text"]["arms"]["sinusoidal"]["same_tokens"] = {"32": [9.0] * 3, "64": [3.0] * 3, "512": [9.0] * 3}
    (panel,) = protocol(study, "same", "en").panels
    (line,) = [mark for mark in panel.marks if isinstance(mark, Line) and mark.label == "sinusoidal"]
    assert list(line.y) == [panel.y.high, 3.0, panel.y.high]
    assert 32 < line.x[0] < line.x[1] == 64 < line.x[2] < 512


def test_figures_say_on_how_many_pieces_they_rest(study: dict[str, Any]) -> None:
    """Verdicts rest on all pieces, windows and the loss by position on fewer."""
    assert study["text"]["pieces"] == PIECES != CURVES
    english = shown(page("study", study))
    assert f"One forward pass over each of {CURVES} unseen pieces of text" in english
    assert f"Consecutive windows without overlap, on {CURVES} pieces of text" in english


def test_an_arm_looks_the_same_in_every_figure(study: dict[str, Any]) -> None:
    """Five arms have tasks; the fifth of them is the tenth of those on text."""
    charts = [protocol(study, "same", "en"), task(study, "copy", "en")]
    looks = [
        {
            mark.label: (mark.tone, mark.dashes)
            for mark in chart.panels[0].marks
            if isinstance(mark, Line) and mark.label
        }
        for chart in charts
    ]
    assert set(looks[1]) == set(COPY)
    assert all(looks[0][name] == looks[1][name] for name in COPY)


def test_names_of_twelve_arms_do_not_cover_each_other(study: dict[str, Any]) -> None:
    chart = cost(study, "en")
    (panel,) = chart.panels
    notes = [mark for mark in panel.marks if isinstance(mark, Note)]
    assert {note.text.strip("\u00a0 \u2191") for note in notes} == {*TEXT}
    for width in (NARROW, NORMAL):
        (box,) = boxes(chart, width, chart.height + 0.12)
        areas = []
        for note in notes:
            x, y = panel.x.share(note.x) * box.width, panel.y.share(note.y) * box.height
            long = inches(note.text, 9.5)
            areas.append((x if note.align == "left" else x - long, y, long))
        for (x, y, long), (other, height, length) in itertools.combinations(areas, 2):
            assert x + long <= other + 1e-6 or other + length <= x + 1e-6 or abs(y - height) >= LABEL_GAP - 1e-6
    # A name that had to leave its dot has a line to it.
    assert any(isinstance(mark, Arrow) for mark in panel.marks)


def test_an_arm_far_above_the_others_does_not_set_the_range(study: dict[str, Any]) -> None:
    chart = cost(study, "en")
    assert chart.panels[0].y.high < 3.2
    assert chart.about.endswith("marked by an arrow at its top edge (loss in brackets): scalar-integer (6.12).")


def test_a_budget_that_is_used_up_is_said(
    study: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study["study"]["budget"], study["trials"]["missing"] = 1.0, ["one", "two"]
    assert study["timing"]["cost"]["seconds"] > 3600
    english = shown(page("study", study))
    assert "The budget of 1 hours is used up, and the same command runs no further trials" in english
    assert "Run the same command again to run only the missing trials." not in english
    show(study, tmp_path, quiet=True)
    said = capsys.readouterr().out
    assert "the budget of 1 hours is used up: 2 trials not started; raise budget to run them" in said
    assert "run the same command to continue" not in said
    study["study"]["budget"] = 8.0
    assert "is used up" not in shown(page("study", study))
    show(study, tmp_path, quiet=True)
    assert "2 trials not finished; run the same command to continue" in capsys.readouterr().out


def test_the_head_names_the_verdicts_at_every_length_beyond_the_trained_one(study: dict[str, Any]) -> None:
    said = (
        "At other lengths beyond the trained one (in brackets), against rope: better alibi (25), t5 (25); worse no arm."
    )
    assert said in shown(page("study", study))
    for one in study["tasks"]["verdicts"]["copy"].values():
        one["lengths"]["25"]["verdict"] = "tie"
    assert "At other lengths" not in shown(page("study", study))


def test_a_result_that_was_kept_before_is_still_shown(study: dict[str, Any], tmp_path: Path) -> None:
    """Its verdicts on tasks are those on reaches, and it has no losses of the search."""
    for one in itertools.chain.from_iterable(each.values() for each in study["tasks"]["verdicts"].values()):
        del one["lengths"]
        one["verdict"], one["p"] = one.pop("reach_verdict"), one.pop("reach_p")
    for arm in study["text"]["arms"].values():
        del arm["search"], arm["edge"]
    english = shown(page("study", study))
    assert "best t5 (100, 100, 99, 98, 58 %)" in english
    assert "At 40 symbols, against" not in english
    assert column(study, "task_reach", "verdict", task="copy", arm="t5") == ["tie"] * 5
    show(study, tmp_path, quiet=True)
