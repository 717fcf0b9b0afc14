"""The page of `ropewalk compare` and the comparison behind it, on made-up trials whose verdicts are known."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from ropewalk.cli.compare.words import show
from ropewalk.compare.derived import asked_alike, best_on_task
from ropewalk.compare.driver import register
from ropewalk.compare.plan import Plan
from ropewalk.compare.result import _kendall, _rankings, compared
from ropewalk.compare.study import Study
from ropewalk.compare.tables import tables, write_tables
from ropewalk.compare.trials import Trial
from ropewalk.data.prepare.sample import sample
from ropewalk.plot.chart import Chart, Line, Note
from ropewalk.report.comparison.charts import cost, positions, protocol, task
from ropewalk.report.comparison.page import page
from tests.compare.tiny_study import RECIPE
from tests.report.reading import shown, stands_alone

HOSTILE = "<script>alert(1)</script>"
PIECES = 10
AT = {"rope": (2.0, 4.0), "alibi": (2.05, 2.05), "same": (2.0, 4.0), "learned": (1.9, None), HOSTILE: (2.5, 30.0)}
"""Loss at the trained length, and at four times of it."""
REACH = {"rope": 4, "alibi": 8, "same": 4}


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return planned(tmp_path_factory.mktemp("data"))


def planned(folder: Path, tasks: dict[str, Any] | None = None, **more: Any) -> Plan:
    data = {"kind": "text", "path": str(sample("text", folder / "d")), "length": 32}
    # Each is another recipe: arms alike in everything are one and the same trial.
    encodings = {name: {"model": {"encoding": {"kind": "rope", "base": 10_000 + n}}} for n, name in enumerate(AT)}
    asked = {"recipe": {"data": {"kind": "tasks", "of": ["copy"], "longest": 4}}, "lengths": [2, 4, 8]}
    text = {"recipe": {"data": {**data, "isolate": False}}, "lengths": [128], "tail": 16, "seeds": 5, **more}
    return Plan(
        Study(
            recipe=RECIPE, reference="rope", arms=encodings, rates=None, text=text,
            tasks={**asked, "arms": list(REACH), **(tasks or {})},
        )
    )  # fmt: skip


def result(trial: Trial, gain: float = 0.2) -> dict[str, Any]:
    """A trial whose losses are those of the table, a little different for each seed and piece of text."""
    noise = 0.004 * math.sin(7.0 * trial.seed + len(trial.arm))
    near, far = AT[trial.arm]
    rows = {
        n: "cannot" if at is None else [at + noise + 0.01 * math.sin(d) for d in range(PIECES)]
        for n, at in ((32, near), (128, far))
    }
    measured: dict[str, Any] = {
        "pieces": PIECES, "same_tokens": rows, "non_overlapping": rows, "sliding": {32: rows[32]},
        "context": [gain] * PIECES,
        "by_position": [{"from": a, "to": 2 * a, "loss": near if a < 32 else far or near} for a in (8, 16, 32, 64)],
    }  # fmt: skip
    if trial.part == "tasks":
        exact = {"copy": {n: float(n <= REACH[trial.arm]) for n in (2, 4, 8)}}
        measured = {"exact": exact, "constant": {"copy": dict.fromkeys((2, 4, 8), 0.01)}}
    return {
        "hash": trial.hash, "part": trial.part, "arm": trial.arm, "seed": trial.seed, "factor": 1.0, "rate": 0.01,
        "parameters": 1234, "steps": 10, "tokens": 1000, "step_flops": 1e6, "diverged": None, "loss": near + noise,
        "curve": [[5, 3.0], [10, near + noise]], "measured": measured, "versions": {"torch": "2"},
        "timing": {"train": 1.0, "step": 0.1 if trial.arm == "rope" else 0.2, "measure": 1.0},
    }  # fmt: skip


def everything(plan: Plan) -> list[Trial]:
    each = [("text", arm) for arm in AT] + [("tasks", arm) for arm in REACH]
    return [plan.trials.trial(part, arm, seed) for part, arm in each for seed in range(5)]


def found(plan: Plan, folder: Path, gain: float = 0.2) -> dict[str, Any]:
    results = {trial.hash: result(trial, gain) for trial in everything(plan)}
    return json.loads(json.dumps(compared(plan, results, folder), allow_nan=False))


def test_verdicts_are_those_that_were_built_in(plan: Plan, tmp_path: Path) -> None:
    answer = found(plan, tmp_path)
    assert answer["trials"] == {"done": 40, "missing": []}
    said = {n: {arm: one["verdict"] for arm, one in each.items()} for n, each in answer["text"]["verdicts"].items()}
    assert said["32"] == {"alibi": "worse", "same": "tie", "learned": "better", HOSTILE: "worse"}
    assert said["128"] == {"alibi": "better", "same": "tie", "learned": "cannot", HOSTILE: "worse"}
    assert answer["text"]["rankings"]["own"][0] == "learned"
    copying = answer["tasks"]["verdicts"]["copy"]
    assert {arm: (one["reach_verdict"], one["reach"]) for arm, one in copying.items()} == {
        "rope": ("reference", [4.0] * 5),
        "alibi": ("better", [8.0] * 5),
        "same": ("tie", [4.0] * 5),
    }
    assert {n: one["verdict"] for n, one in copying["alibi"]["lengths"].items()} == {
        "2": "tie",
        "4": "tie",
        "8": "better",
    }
    # Twice as slow: half the steps when the fastest is done, where its loss was 3.
    assert answer["timing"]["arms"]["text"]["alibi"]["loss_at_equal_time"] == [3.0] * 5


def test_without_a_use_of_context_there_are_no_verdicts_on_text(plan: Plan, tmp_path: Path) -> None:
    answer = found(plan, tmp_path, gain=0.04)
    assert {one["verdict"] for each in answer["text"]["verdicts"].values() for one in each.values()} == {
        "no verdict",
        "cannot",
    }
    assert "No verdicts on text: context lowers the reference's loss by 0.040 nats" in shown(page("study", answer))


def test_a_page_of_hostile_names_stands_alone_and_says_what_was_found(plan: Plan, tmp_path: Path) -> None:
    text = page(f"study {HOSTILE}", found(plan, tmp_path))
    stands_alone(text)
    assert HOSTILE not in text
    english, chinese = shown(text), shown(text, "zh-CN")
    assert (
        "With 128 tokens of text, 4 times the trained length, perplexity on the same last tokens is at most" in english
    )
    assert "3 % above that at the trained length (loss in brackets): alibi (2.05)." in english
    assert f"It rises by more for: rope (4.00), same (4.00), {HOSTILE} (30.00)." in english
    assert "so it cannot be measured: learned" in english
    assert "better learned; worse alibi" in english
    assert "Every seed solves (at least 90% correct) all lengths up to 8 symbols: alibi." in english
    assert "\u6253\u5e73" in chinese


def test_at_one_length_there_are_no_figures_over_lengths(plan: Plan, tmp_path: Path) -> None:
    """The trained length stands in the figure by position, though the last part of a curve is drawn before it."""
    answer = found(plan, tmp_path)
    assert 'id="same"' in page("study", answer)
    answer["text"]["lengths"] = answer["text"]["lengths"][:1]
    for arm in answer["text"]["arms"].values():
        arm["by_position"] = [one for one in arm["by_position"] if one["to"] <= 32]
    text = page("study", answer)
    stands_alone(text)
    assert 'id="position"' in text
    assert 'id="same"' not in text
    assert 'id="windows"' not in text
    (panel,) = positions(answer, "en").panels
    assert panel.x.high > answer["text"]["trained"]


def test_a_page_of_an_unfinished_study_says_so(plan: Plan, tmp_path: Path) -> None:
    first = plan.trials.trial("text", "rope", 0)
    answer = json.loads(json.dumps(compared(plan, {first.hash: result(first)}, tmp_path)))
    stands_alone(page("study", answer))
    assert "39 trials are not finished" in shown(page("study", answer))


def test_every_figure_has_its_numbers_in_a_file(plan: Plan, tmp_path: Path) -> None:
    files = {file.stem: file for file in write_tables(found(plan, tmp_path), tmp_path / "csv")}
    assert files.keys() == {
        "position", "same_tokens", "non_overlapping", "sliding", "verdicts", "cost", "tasks",
        "anchors", "task_verdicts", "task_reach", "task_cost", "rates", "search",
    }  # fmt: skip
    with files["same_tokens"].open(encoding="utf-8", newline="") as opened:
        rows = [row for row in csv.DictReader(opened) if row["arm"] == "learned"]
    assert [row["nats"] for row in rows if row["length"] == "128"] == ["cannot"] * 5
    assert all(abs(float(row["nats"]) - 1.9) < 0.02 for row in rows if row["length"] == "32")


def test_seeds_that_diverged_leave_no_verdict_and_no_mean(plan: Plan, tmp_path: Path) -> None:
    """Of alibi two seeds of five are lost: what is left would be better in copying and decided on text."""
    found = {trial.hash: result(trial) for trial in everything(plan)}
    for trial in everything(plan):
        if trial.arm == "alibi" and trial.seed in (0, 3):
            lost = {"diverged": {"why": "Fault", "said": "step 3"}, "measured": None, "loss": None}
            found[trial.hash] = {**found[trial.hash], **lost, "curve": [[5, 3.0]]}
    said = compared(plan, found, tmp_path)
    assert {said["text"]["verdicts"][n]["alibi"]["verdict"] for n in (32, 128)} == {"some diverged"}
    alibi = said["text"]["arms"]["alibi"]
    assert [loss is None for loss in alibi["same_tokens"]["32"]] == [True, False, False, True, False]
    assert [loss is None for loss in said["timing"]["arms"]["text"]["alibi"]["loss_at_equal_time"]] == [
        True, False, False, True, False,
    ]  # fmt: skip
    assert said["tasks"]["verdicts"]["copy"]["alibi"]["reach"] == [0, 8, 8, 0, 8]
    assert said["tasks"]["verdicts"]["copy"]["alibi"]["reach_verdict"] == "tie"
    english = shown(page("study", said), "en")
    assert "No verdict on alibi" in english
    assert "ties same" in english
    assert "alibi (2.05)" not in english
    rows = [row for row in tables(said)["same_tokens"][1] if row[:2] == ("alibi", "32")]
    assert [(seed, loss is None) for _, _, seed, loss in rows] == [
        (0, True), (1, False), (2, False), (3, True), (4, False),
    ]  # fmt: skip


def test_verdicts_over_documents_do_not_contradict(plan: Plan, tmp_path: Path) -> None:
    said = compared(plan, {trial.hash: result(trial) for trial in everything(plan)}, tmp_path)
    one = said["text"]["verdicts"][32][HOSTILE]
    assert one["verdict"] == "worse"
    assert one["documents"]["mean"] > 0
    assert "verdict" not in one["documents"]


def test_rankings_are_over_the_seeds_that_all_arms_have() -> None:
    """Seeds move all arms alike: the first of one arm and the mean of another are not comparable."""
    arms = {
        "a": {"loss": [3.0, 3.04, 3.08], "shared_loss": [3.0, 3.04, 3.08], "seed": [0, 1, 2], "shared_seed": [0, 1, 2]},
        "b": {"loss": [3.01, 3.05, 3.09], "shared_loss": [3.02], "seed": [0, 1, 2], "shared_seed": [0]},
    }
    assert _rankings(arms) == {"own": ["a", "b"], "shared": ["a", "b"], "seeds": [0], "kendall_tau": 1.0}
    # The first seed of one arm is not done yet, and its second is no match for the other's first.
    arms["b"] |= {"loss": [3.05, 3.09], "shared_loss": [3.05, 3.09], "seed": [1, 2], "shared_seed": [1, 2]}
    arms["a"] |= {"loss": [3.06, 3.02, 3.04], "shared_loss": [3.06, 3.02, 3.04]}
    assert _rankings(arms)["own"] == ["a", "b"]
    assert _rankings(arms)["seeds"] == [1, 2]


@pytest.mark.parametrize(("own", "shared", "tau"), [
    # scipy 1.17, stats.kendalltau
    ([1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 4.0], 2 / 3),
    ([1.0, 2.0, math.inf, math.inf], [1.0, 2.0, math.inf, math.inf], 1.0),
    ([1.0, 2.0, math.inf, math.inf], [2.0, 1.0, math.inf, math.inf], 0.6),
    ([1.0, 2.0, 3.0, math.inf], [1.0, 2.0, math.inf, math.inf], 0.912870929175277),
    ([math.inf, math.inf], [1.0, 2.0], None),
    ([1.0], [1.0], None),
    ([], [], None),
])  # fmt: skip
def test_arms_that_are_alike_have_no_order(own: list[float], shared: list[float], tau: float | None) -> None:
    assert _kendall(own, shared) == (None if tau is None else pytest.approx(tau))


def with_reaches(plan: Plan, reaches: dict[str, list[int]]) -> dict[str, Any]:
    """Results in which each seed of an arm solves copying up to so many symbols."""
    assert plan.study.tasks is not None
    lengths = plan.study.tasks.lengths
    made = {}
    for arm, each in reaches.items():
        for seed, reach in enumerate(each):
            trial = plan.trials.trial("tasks", arm, seed)
            made[trial.hash] = {
                **result(trial),
                "measured": {
                    "exact": {"copy": {n: float(n <= reach) for n in lengths}},
                    "constant": {"copy": dict.fromkeys(lengths, 0.01)},
                },
            }
    return made


def test_a_verdict_on_a_task_has_the_direction_of_the_ranks(tmp_path: Path) -> None:
    """Four seeds of five are below all of the reference and one far above: the mean says better, the ranks worse."""
    plan = planned(tmp_path, tasks={"arms": ["rope", "alibi"], "lengths": [2, 3, 16]})
    found = compared(plan, with_reaches(plan, {"rope": [3] * 5, "alibi": [2, 2, 2, 2, 16]}), tmp_path)
    alibi = found["tasks"]["verdicts"]["copy"]["alibi"]
    assert alibi["reach_p"] == pytest.approx(12 / 252)
    assert alibi["reach_verdict"] == "worse"


def test_seeds_too_few_for_any_verdict_on_a_task_are_no_tie(tmp_path: Path) -> None:
    """One seed that solves all against five that solve nothing: no outcome of so few has a p below 0.05."""
    plan = planned(tmp_path, tasks={"arms": ["rope", "alibi"], "seeds": 1})
    found = compared(plan, with_reaches(plan, {"rope": [0] * 5, "alibi": [8]}), tmp_path)
    alibi = found["tasks"]["verdicts"]["copy"]["alibi"]
    assert (alibi["reach"], alibi["reach_p"], alibi["reach_verdict"]) == ([8], 1 / 6, "no verdict")
    assert alibi["lengths"]["8"] == {"p": 1 / 6, "verdict": "no verdict"}
    # Of five seeds three are done.
    plan = planned(tmp_path, tasks={"arms": ["rope", "alibi"]})
    found = compared(plan, with_reaches(plan, {"rope": [0] * 5, "alibi": [8, 8, 8]}), tmp_path)
    alibi = found["tasks"]["verdicts"]["copy"]["alibi"]
    assert {alibi["reach_verdict"], alibi["lengths"]["8"]["verdict"]} == {"no verdict"}
    # The reference is not trained yet: what others solve is known.
    found = compared(plan, with_reaches(plan, {"alibi": [8] * 5}), tmp_path)
    assert found["tasks"]["verdicts"]["copy"]["alibi"]["reach"] == [8] * 5
    assert "Every seed solves (at least 90% correct) all lengths up to 8 symbols: alibi." in shown(page("study", found))


def lost(plan: Plan, arm: str, *seeds: int) -> dict[str, dict[str, Any]]:
    """Results of text in which these seeds of an arm diverged."""
    made = {trial.hash: result(trial) for trial in everything(plan)}
    for seed in seeds:
        about = {"diverged": {"why": "Fault", "said": "step 3"}, "measured": None, "loss": None, "curve": [[5, 3.0]]}
        trial = plan.trials.trial("text", arm, seed)
        made[trial.hash] = {**result(trial), **about}
    return made


def test_a_reference_that_lost_a_seed_judges_nobody(tmp_path: Path) -> None:
    """Six seeds were asked for, five are enough for a noise floor: the five that are left are not the reference."""
    plan = planned(tmp_path, seeds=6)
    made = lost(plan, "rope", 2)
    for arm in AT:
        sixth = plan.trials.trial("text", arm, 5)
        made[sixth.hash] = result(sixth)
    found = compared(plan, made, tmp_path)
    assert {one["verdict"] for one in found["text"]["verdicts"][32].values()} == {"no verdict"}
    english, chinese = shown(page("study", found)), shown(page("study", found), "zh-CN")
    assert "No verdicts on text: 1 of the reference's 6 seeds diverged" in english
    assert "6 \u4e2a\u79cd\u5b50\u4e2d\u6709 1 \u4e2a\u53d1\u6563" in chinese


def test_an_arm_that_lost_all_its_seeds_is_named(plan: Plan, tmp_path: Path) -> None:
    found = compared(plan, lost(plan, "alibi", *range(5)), tmp_path)
    assert found["text"]["verdicts"][32]["alibi"]["verdict"] == "some diverged"
    english = shown(page("study", found))
    assert "Some seeds diverged or have no finite loss: alibi." in english
    assert "some seeds diverged" in english


def test_why_there_is_no_noise_floor_is_said_as_it_is(tmp_path: Path) -> None:
    plan = planned(tmp_path, reference_seeds=None)
    found = compared(plan, {trial.hash: result(trial) for trial in everything(plan)}, tmp_path)
    assert "the study asks for no noise floor (reference_seeds: null); the reference has 5 seeds" in shown(
        page("study", found)
    )
    plan = planned(tmp_path, reference_seeds=7)
    found = compared(plan, {trial.hash: result(trial) for trial in everything(plan)}, tmp_path)
    assert "the noise floor needs 7 seeds of the reference, and 5 are finished" in shown(page("study", found))


def test_too_few_pieces_of_text_are_a_reason(plan: Plan, tmp_path: Path) -> None:
    made = {trial.hash: result(trial) for trial in everything(plan)}
    for one in made.values():
        if one["part"] == "text":
            rows = one["measured"]["same_tokens"]
            few = {n: row if isinstance(row, str) else row[:4] for n, row in rows.items()}
            one["measured"] = {**one["measured"], "same_tokens": few}
    found = compared(plan, made, tmp_path)
    assert found["text"]["verdicts"][32]["alibi"]["verdict"] == "no verdict"
    assert "or there are too few seeds or pieces of text" in shown(page("study", found))


def test_no_mean_is_taken_over_the_seeds_that_are_left(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of them diverged in its first step, which leaves no time of a step."""
    made = lost(plan, "alibi", 0)
    first = made[plan.trials.trial("text", "alibi", 0).hash]
    first["timing"], first["curve"] = {**first["timing"], "step": None}, []
    found = compared(plan, made, tmp_path)
    late = [row for row in tables(found)["cost"][1] if row[0] == "alibi"]
    assert [(row[1], row[4] is None, row[5]) for row in late] == [
        (0, True, None),
        *((n, False, 3.0) for n in range(1, 5)),
    ]
    (panel,) = cost(found, "en").panels
    assert "alibi" not in [mark.text.strip() for mark in panel.marks if isinstance(mark, Note)]
    show(found, tmp_path, quiet=True)
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "of 5 lost" in line]
    assert row.split("1 of 5 lost")[0].strip() == "alibi"


def test_equal_time_is_when_the_first_arm_is_done(plan: Plan, tmp_path: Path) -> None:
    """Steps of alibi take as long as those of the reference, and it has half as many: the reference is at half."""
    made = {trial.hash: result(trial) for trial in everything(plan)}
    for one in made.values():
        one["timing"]["step"] = 0.1
        if one["arm"] == "alibi":
            one["steps"], one["curve"] = 5, [[5, 2.5]]
    times = compared(plan, made, tmp_path)["timing"]["arms"]["text"]
    assert times["rope"]["loss_at_equal_time"] == [3.0] * 5
    assert times["alibi"]["loss_at_equal_time"] == [2.5] * 5


def test_a_table_that_ends_and_a_seed_that_diverged_are_told_together(tmp_path: Path) -> None:
    plan = planned(tmp_path, tasks={"arms": ["rope", "alibi"], "lengths": [8, 2, 4]})
    made = with_reaches(plan, {"rope": [4] * 5, "alibi": [4] * 5})
    for seed in range(5):
        one = made[plan.trials.trial("tasks", "alibi", seed).hash]
        one["measured"]["exact"]["copy"][8] = "cannot"
        if seed == 1:
            one |= {"measured": None, "loss": None, "diverged": {"why": "Fault", "said": "step 3"}}
    found = compared(plan, made, tmp_path)
    assert found["tasks"]["arms"]["alibi"]["exact"]["copy"]["8"] == {"points": "cannot"}
    assert found["tasks"]["verdicts"]["copy"]["alibi"]["reach"] == [4, 0, 4, 4, 4]
    # In the order in which a line goes through them.
    assert found["tasks"]["lengths"] == [2, 4, 8]


def test_a_validation_loss_that_is_not_finite_leaves_a_report(plan: Plan, tmp_path: Path) -> None:
    made = {trial.hash: result(trial) for trial in everything(plan)}
    made[plan.trials.trial("text", "alibi", 0).hash] |= {"loss": "nan", "curve": [[5, 3.0], [10, "nan"]]}
    found = compared(plan, made, tmp_path)
    assert found["text"]["arms"]["alibi"]["loss"][0] is None
    assert found["text"]["rankings"]["own"][-1] == "alibi"
    stands_alone(page("study", found))


def test_the_numbers_behind_a_figure_are_what_was_measured(plan: Plan, tmp_path: Path) -> None:
    """Also of lines that leave the picture, and of every seed at the lengths that were asked for."""
    made = with_reaches(plan, {"rope": [2, 4, 8, 4, 4], "alibi": [8] * 5, "same": [4] * 5})
    text = page("study", compared(plan, {trial.hash: result(trial) for trial in everything(plan)} | made, tmp_path))
    same, copying = (rows_behind(text, name) for name in ("same", "copy"))
    assert [row[0] for row in same] == ["length in tokens, including the scored ones", "32", "128"]
    assert [float(value) for value in same[2][1:3]] == [pytest.approx(4.0, abs=0.01), pytest.approx(2.05, abs=0.01)]
    assert copying[1:] == [
        ["2", "1, 1, 1, 1, 1", "1, 1, 1, 1, 1", "1, 1, 1, 1, 1"],
        ["4", "0, 1, 1, 1, 1", "1, 1, 1, 1, 1", "1, 1, 1, 1, 1"],
        ["8", "0, 0, 1, 0, 0", "1, 1, 1, 1, 1", "0, 0, 0, 0, 0"],
    ]
    assert [row[0] for row in rows_behind(text, "cost")] == ["arm", *AT]


def rows_behind(text: str, name: str) -> list[list[str]]:
    """Of the table that a figure folds away, in English."""
    (inside,) = re.findall(rf'<figure[^>]*id="{name}".*?</figure>', text, re.DOTALL)
    (body,) = re.findall(r"<table.*?</table>", inside, re.DOTALL)
    cells = [re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL) for row in re.findall(r"<tr.*?</tr>", body, re.DOTALL)]
    return [[shown(cell).strip() for cell in row] for row in cells]


def test_an_unfinished_study_keeps_the_numbers_of_its_seeds(tmp_path: Path) -> None:
    """Seeds 0 and 2 of each arm are not done: rows are of seeds 1, 3 and 4. One arm alone has no ranking."""
    plan = planned(tmp_path)
    made = {trial.hash: result(trial) for trial in everything(plan) if trial.seed not in (0, 2)}
    found = compared(plan, made, tmp_path)
    for name in ("position", "same_tokens", "cost", "tasks"):
        headings, rows = tables(found)[name]
        assert {row[headings.index("seed")] for row in rows} == {1, 3, 4}
    first = plan.trials.trial("text", "rope", 0)
    found = compared(plan, {first.hash: result(first)}, tmp_path)
    rated = {**found, "study": {**found["study"], "rates": {}}}
    assert "The rankings at own" not in shown(page("study", rated))
    assert "cannot be compared: fewer than two arms" in shown(page("study", rated))


def test_a_page_says_what_was_not_the_same(tmp_path: Path) -> None:
    """Other data, positions past the trained length, and a study of another hash that was run before."""
    plan = planned(tmp_path)
    study = plan.study.model_dump()
    study["arms"]["alibi"] |= {"data": {"positions": {"kind": "random", "reach": 128}}}
    study["arms"]["same"] |= {"train": {"steps": 2}, "differs": ["data"]}
    changed = Plan(Study.model_validate(study))
    first, second = register(plan.study, tmp_path), register(changed.study, tmp_path)
    found = compared(changed, {trial.hash: result(trial) for trial in everything(changed)}, tmp_path)
    english, chinese = shown(page("study", found)), shown(page("study", found), "zh-CN")
    assert "4 arms, each compared with rope; 40 trials" in english
    assert "Except same: the study allows their data" in english
    assert (
        "Positions beyond the vertical line were not trained, except for alibi, trained with skipped positions."
        in english
    )
    assert f"Study {second}, first run" in english
    assert f"run in this folder: 1; the earliest is {first}" in english
    assert f"\u54c8\u5e0c\u4e3a {second}" in chinese


def test_a_task_may_be_solved_at_another_length_than_the_shortest(plan: Plan, tmp_path: Path) -> None:
    made = with_reaches(plan, {"rope": [0] * 5, "alibi": [0] * 5, "same": [0] * 5})
    for one in made.values():
        one["measured"]["exact"]["copy"][4] = 1.0
    english = shown(page("study", compared(plan, made, tmp_path)))
    assert "In no arm does every seed solve (at least 90% correct) the shortest length, 2 symbols." in english


def test_arms_on_other_text_have_no_verdict(tmp_path: Path) -> None:
    """The study lets the data differ: as many nats, of other tokens, in pieces that are no pairs."""
    study = planned(tmp_path).study.model_dump()
    other = str(sample("text", tmp_path / "other"))
    study["arms"]["alibi"] |= {"data": {"path": other}, "differs": ["data"]}
    study["arms"]["same"] |= {"data": {"packing": "document", "isolate": True}, "differs": ["data"]}
    study["arms"][HOSTILE] |= {"train": {"steps": 2}, "differs": ["data"]}
    plan = Plan(Study.model_validate({**study, "tasks": None}))
    made = {trial.hash: result(trial) for trial in plan.needed({})}
    rows = made[plan.trials.trial("text", "alibi", 0).hash]["measured"]["same_tokens"]
    rows[32] = rows[32][:4]  # it need not have as many
    found = compared(plan, made, tmp_path)
    said = {arm: one["verdict"] for arm, one in found["text"]["verdicts"][32].items()}
    assert said == {"alibi": "other text", "same": "other text", "learned": "better", HOSTILE: "worse"}
    assert found["text"]["rankings"]["own"] == ["learned", "rope", HOSTILE]
    english = shown(page("study", found))
    assert (
        "No verdict on alibi, same: measured on different text from rope, so their losses are not comparable."
        in english
    )
    assert "No verdict on alibi, same: some seeds" not in english


OTHER = "No verdict on alibi: measured on different text from rope, so their losses are not comparable."


@pytest.mark.parametrize("gain", [0.2, 0.04])
def test_losses_on_other_text_are_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str], gain: float) -> None:
    """Also where no arm is judged, since context does not pay: alibi alone keeps its loss, of another text."""
    study = planned(tmp_path).study.model_dump()
    study["arms"]["alibi"] |= {"data": {"packing": "document", "isolate": True}, "differs": ["data"]}
    plan = Plan(Study.model_validate({**study, "tasks": None}))
    found = compared(plan, {trial.hash: result(trial, gain) for trial in plan.needed({})}, tmp_path)
    show(found, tmp_path, quiet=True)
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("alibi")]
    assert row.count("2.052 other text") == 2
    drawn = {which: protocol(found, which, "en") for which in ("same", "windows")} | {"at": positions(found, "en")}
    names = {key: {line.label for line in lines(one)} for key, one in drawn.items()}
    assert "alibi" not in names["same"]
    assert "alibi" in names["windows"] & names["at"]
    assert [OTHER in one.about for one in drawn.values()] == [True] * 3
    head = shown(page("study", found)).partition("Loss by position")[0]
    assert "3 % above that at the trained length (loss in brackets): no arm." in head
    assert OTHER in head


def test_arms_that_are_asked_other_questions_have_no_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sorting eight of 23 symbols is not sorting eight of 63: alibi solves it, and nobody else solves anything."""
    data = {"kind": "tasks", "of": ["copy", "parity"], "longest": 4}
    study = planned(tmp_path, tasks={"recipe": {"data": data}}).study.model_dump()
    study["arms"]["alibi"] |= {"data": {"vocabulary": 32}, "differs": ["data", "parameters"]}
    plan = Plan(Study.model_validate({**study, "text": None}))
    made = {trial.hash: result(trial) for trial in plan.needed({})}
    for one in made.values():
        each = {n: float(one["arm"] == "alibi") for n in (2, 4, 8)}
        constant = dict.fromkeys((2, 4, 8), 0.9 if one["arm"] == "alibi" else 0.01)
        one["measured"] = {"exact": dict.fromkeys(("copy", "parity"), each), "constant": {"copy": constant}}
        one["measured"]["constant"]["parity"] = dict.fromkeys((2, 4, 8), 0.01)
    found = compared(plan, made, tmp_path)
    tasks = found["tasks"]
    copying, parity = (tasks["verdicts"][task]["alibi"] for task in ("copy", "parity"))
    assert {copying["reach_verdict"], *(one["verdict"] for one in copying["lengths"].values())} == {"other questions"}
    # Bits are the same bits with any vocabulary.
    assert {parity["reach_verdict"], *(one["verdict"] for one in parity["lengths"].values())} == {"better"}
    assert tasks["chance"]["copy"] == {"2": 0.0, "4": 0.0, "8": 0.0}
    assert tasks["rankings"]["own"] == ["rope", "same"]
    assert best_on_task(asked_alike(tasks, "copy")[0], "copy") is None
    assert [line.label for line in lines(task(found, "copy", "en"))] == ["rope", "same"]
    assert [line.label for line in lines(task(found, "parity", "en"))] == list(REACH)
    show(found, tmp_path, quiet=True)
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("alibi")]
    assert [row.count("other questions") for row in rows] == [3, 3, 0, 0]
    text = page("study", found)
    assert [row[0] for row in rows_behind(text, "copy")] == ["symbols", "2", "4", "8"]
    assert "alibi" not in rows_behind(text, "copy")[0]
    english, chinese = shown(text), shown(text, "zh-CN")
    said = "Left out here: alibi, asked different questions from rope (another data.vocabulary)"
    assert f"Copying: no seed of any arm is above chance, at any length. {said}" in english
    assert english.count(said) == 2  # in the first sentences, and below the figure
    assert "\u9898\u76ee\u4e0d\u540c" in chinese
    # What chance is for others is not known from its answers.
    alone = {name: one for name, one in made.items() if one["arm"] == "alibi"}
    assert compared(plan, alone, tmp_path)["tasks"]["chance"] == {"copy": {}, "parity": {}}


def test_an_arm_trained_on_more_tasks_is_asked_the_same_questions(tmp_path: Path) -> None:
    study = planned(tmp_path).study.model_dump()
    study["arms"]["alibi"] |= {"data": {"of": ["copy", "sort"]}, "differs": ["data"]}
    plan = Plan(Study.model_validate({**study, "text": None}))
    found = compared(plan, {trial.hash: result(trial) for trial in plan.needed({})}, tmp_path)
    assert found["tasks"]["verdicts"]["copy"]["alibi"]["reach_verdict"] == "better"
    assert found["tasks"]["rankings"]["own"] == ["rope", "same"]  # whose validation loss is of copying alone


def test_validation_losses_of_other_windows_are_in_no_comparison(tmp_path: Path) -> None:
    """In longer windows more text stands before each token: alibi, with the lowest loss, is twice as fast besides."""
    study = planned(tmp_path).study.model_dump()
    study["arms"]["alibi"] |= {"data": {"length": 64}, "differs": ["data"]}
    study["arms"]["same"] |= {"data": {"long": {"at_least": 300, "times": 2}}, "differs": ["data"]}
    study["arms"][HOSTILE] |= {"train": {"evaluate": {"tokens": 192}}}
    plan = Plan(Study.model_validate({**study, "tasks": None}))
    made = {trial.hash: result(trial) for trial in plan.needed({})}
    for one in made.values():
        if one["arm"] in ("alibi", HOSTILE):
            one |= {"loss": 1.0, "timing": {**one["timing"], "step": 0.05}}
    found = compared(plan, made, tmp_path)
    ranks = found["text"]["rankings"]
    assert ranks["left_out"] == {"alibi": ["data.length"], HOSTILE: ["train.evaluate.tokens"]}
    assert set(ranks["own"]) == set(ranks["shared"]) == {"rope", "same", "learned"}
    times = found["timing"]["arms"]["text"]
    assert times["alibi"]["loss_at_equal_time"] == times[HOSTILE]["loss_at_equal_time"] == []
    assert times["rope"]["loss_at_equal_time"] == found["text"]["arms"]["rope"]["loss"]
    # The same tokens are the same in all arms.
    assert found["text"]["verdicts"][32]["alibi"]["verdict"] == "worse"
    (panel,) = cost(found, "en").panels
    assert {mark.text.strip() for mark in panel.marks if isinstance(mark, Note)} == {"rope", "same", "learned"}
    text = page("study", found)
    assert [row[0] for row in rows_behind(text, "cost")] == ["arm", "rope", "same", "learned"]
    english, chinese = shown(text), shown(text, "zh-CN")
    said = f"(differing settings in brackets): alibi (data.length), {HOSTILE} (train.evaluate.tokens)."
    assert english.count(said) == 2  # at the table and at the figure
    assert english.count("1.0000 (other data)") == 4
    assert "1.0000\uff08\u6570\u636e\u4e0d\u540c\uff09" in chinese


def lines(chart: Chart) -> list[Line]:
    return [mark for mark in chart.panels[0].marks if isinstance(mark, Line) and mark.label]
