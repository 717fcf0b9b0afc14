"""A study: what it refuses, which trials it makes, that none is done twice, and that a kill changes no number."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ropewalk.checkpoints.load.native import Trained
from ropewalk.compare import driver, trials
from ropewalk.compare import run_trial as running
from ropewalk.compare.driver import Shard, Watcher, register, results_in, run
from ropewalk.compare.plan import Plan
from ropewalk.compare.result import _about, _times, compared
from ropewalk.compare.study import load_study
from ropewalk.compare.tables import _search
from ropewalk.compare.trials import Trial, Trials
from ropewalk.data.prepare.sample import sample
from ropewalk.distributed.world import MeshConfig, World
from ropewalk.encodings import template
from ropewalk.models import Transformer
from ropewalk.train.checkpoint.model_directory import write_model
from ropewalk.train.objective import learner
from ropewalk.trials.jobs import Workers
from tests.compare.tiny_study import RECIPE, TASKS, study

HERE = Workers()


def told(found: dict[str, Any]) -> dict[str, Any]:
    """All that a second run must give again."""
    return {name: value for name, value in found.items() if name != "timing"}


def test_an_arm_of_another_size_is_refused() -> None:
    wider = {"rope": "rope", "wide": {"model": {"hidden": 32}}}
    with pytest.raises(ValueError, match=r"wide and the reference rope differ in parameters: [\d,]+ and [\d,]+, \+\d+"):
        Trials(study(arms=wider))
    Trials(study(arms={**wider, "wide": {**wider["wide"], "differs": ["parameters"]}}))


def test_other_batches_are_refused_and_the_difference_is_named() -> None:
    fewer = {"rope": "rope", "short": {"train": {"steps": 3}, "data": {"longest": 4}}}
    with pytest.raises(
        ValueError, match=r"data.longest is 5 and 4; data.length is 12 and 10; .*train.steps is 4 and 3"
    ):
        Trials(study(arms=fewer))
    Trials(study(arms={**fewer, "short": {**fewer["short"], "differs": ["data"]}}))
    # Other positions are the same batches.
    Trials(study(arms={"rope": "rope", "random": {"data": {"positions": {"kind": "random", "reach": 64}}}}))


@pytest.mark.parametrize(("changes", "says"), [
    ({"reference": "none"}, "none is no arm; there are rope, alibi"),
    ({"tasks": None}, "nothing is measured"),
    ({"tasks": {**TASKS, "arms": ["fire"]}}, "names fire; the arms are rope, alibi"),
    ({"tasks": {**TASKS, "reference_seeds": 3}}, "reference_seeds"),
    ({"arms": {"rope": "rope", "again": {"train": {"seed": 7}}}}, "has seed: 7, and every arm .*; leave it out"),
    ({"text": {"lengths": [64]}, "tasks": None}, r"no such data|data/long-english"),
])  # fmt: skip
def test_a_study_that_cannot_be_run_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises((ValueError, OSError), match=says):
        Trials(study(**changes))


def test_an_override_reaches_into_an_arm_that_is_an_encodings_name(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text("{reference: rope, arms: {rope: rope, other: alibi}, tasks: {lengths: [2]}}", encoding="utf-8")
    changes = ["arms.other.model.scale_embedding=true", "arms.rope.model.encoding.base=500"]
    assert {name: arm.model for name, arm in load_study(file, changes).arms.items()} == {
        "rope": {"encoding": {"kind": "rope", "base": 500}},
        "other": {"encoding": "alibi", "scale_embedding": True},
    }
    assert load_study(file, ["arms.other=kerple"]).arms["other"].model == {"encoding": "kerple"}


def test_what_cannot_be_measured_is_refused_before_the_training(tmp_path: Path) -> None:
    tasks = {**TASKS, "recipe": {"data": {"kind": "tasks", "of": ["copy", "recall"], "longest": 5, "vocabulary": 32}}}
    Trials(study(tasks={**tasks, "lengths": [22]}))
    with pytest.raises(ValueError, match=r"recall of 23 keys and 22 symbols for them; write a greater data.vocabulary"):
        Trials(study(tasks={**tasks, "lengths": [2, 23]}))
    data = {"kind": "text", "path": str(sample("text", tmp_path / "data")), "length": 64, "isolate": False}
    text = {"recipe": {"data": data}, "lengths": [128]}
    with pytest.raises(
        ValueError, match=r"text.tail=64: a length of 64 tokens has none before .* text.tail=63 or less"
    ):
        Trials(study(text=text, tasks=None))
    Trials(study(text={**text, "tail": 63}, tasks=None))
    with pytest.raises(ValueError, match=r"pieces of validation text have 1,048,576 tokens, 2 are needed"):
        Trials(study(text={**text, "tail": 63, "lengths": [1 << 20]}, tasks=None))


def test_what_an_arm_cannot_be_asked_is_refused_before_the_training(tmp_path: Path) -> None:
    """It was trained to its end, and then the results of the whole study ended in a KeyError."""
    tasks = {**TASKS, "recipe": {"data": {"kind": "tasks", "of": ["copy", "sort", "recall"], "longest": 5}}}
    fewer = {"data": {"of": ["copy"], "vocabulary": 72}, "differs": ["data", "parameters"]}
    says = (
        r"arm fewer has data.of: \[copy\], and all arms are asked what the reference rope has, sort, recall too; "
        r"write data: \{of: \[copy, sort, recall\]\} in the arm, or the names of the other arms in tasks.arms"
    )
    with pytest.raises(ValueError, match=says):
        Trials(study(tasks=tasks, arms={"rope": "rope", "fewer": fewer}))
    Trials(study(tasks={**tasks, "arms": ["rope"]}, arms={"rope": "rope", "fewer": fewer}))
    more = {"data": {"of": ["parity", "sort", "recall", "copy"]}, "differs": ["data"]}
    Trials(study(tasks=tasks, arms={"rope": "rope", "more": more}))
    # What an arm alone has no symbols or no text for.
    small = {"data": {"vocabulary": 32}, "differs": ["data", "parameters"]}
    with pytest.raises(ValueError, match=r"recall of 23 keys and 22 symbols for them"):
        Trials(study(tasks={**tasks, "lengths": [23]}, arms={"rope": "rope", "small": small}))
    data = {"kind": "text", "path": str(sample("text", tmp_path / "data")), "length": 64, "isolate": False}
    text = {"recipe": {"data": data}, "lengths": [512], "tail": 32}
    cut = {"data": {"isolate": True}, "differs": ["data"]}
    with pytest.raises(ValueError, match=r"pieces of validation text have 512 tokens, 2 are needed"):
        Trials(study(text=text, tasks=None, arms={"rope": "rope", "cut": cut}))
    Trials(study(text=text, tasks=None))


def test_arms_start_from_the_same_weights() -> None:
    arms = {"rope": "rope", "t5": "t5", "learned": {"model": {"encoding": {"kind": "learned", "longest": 64}}}}
    arms["learned"]["differs"] = ["parameters"]  # pyrefly: ignore
    made = Trials(study(arms={**arms, "t5": {"model": {"encoding": "t5"}, "differs": ["parameters"]}}))
    world = World.start(MeshConfig(), device="cpu")
    states = [
        learner(made.trial("tasks", arm, 3).recipe.model, world, seed=3).state_dict()
        for arm in ("rope", "t5", "learned")
    ]
    for other in states[1:]:
        assert len(other) > len(states[0])
        assert all(torch.equal(value, other[name]) for name, value in states[0].items())


def test_a_hash_names_what_a_trial_depends_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trials = Trials(study())
    first = trials.trial("tasks", "rope", 0)
    assert pickle.loads(pickle.dumps(first)).hash == first.hash  # noqa: S301
    more = Trials(study(arms={"rope": "rope", "alibi": "alibi", "xpos": "xpos"}, rates={}))
    assert more.trial("tasks", "rope", 0).hash == first.hash
    others = [more.trial("tasks", "rope", 1), more.trial("tasks", "rope", 0, 2.0), more.trial("tasks", "xpos", 0)]
    others += [more.trial("tasks", "rope", 0, search=True)]
    assert len({first.hash, *(one.hash for one in others)}) == 5


def test_a_hash_names_the_checkpoint_that_is_started_from_by_its_content(tmp_path: Path) -> None:
    recipe = {**RECIPE, "train": {**RECIPE["train"], "start": str(tmp_path / "model")}}
    plain = Trials(study())
    model = Transformer(plain.recipes["tasks", "rope"].model)
    hashes = []
    for number in range(2):
        with torch.no_grad():
            next(model.parameters()).fill_(float(number))
        write_model(model, tmp_path / "model", World.start(), Trained(12, 12))
        trials._start.cache_clear()
        hashes.append(Trials(study(recipe=recipe)).trial("tasks", "rope", 0).hash)
    assert len({plain.trial("tasks", "rope", 0).hash, *hashes}) == 3


def test_the_search_takes_a_part_of_the_training_at_other_rates() -> None:
    made = Trials(study(rates={"share": 0.5}))
    search = made.trial("tasks", "rope", 0, 2.0, search=True)
    assert (search.recipe.train.steps, search.recipe.train.optimizer.lr, search.measure) == (2, 2e-2, None)
    assert search.recipe.train.evaluate.every == 2
    # The warm-up decides which rates are survived, so it is not shortened with the rest, but for room.
    for steps, warmup in ((400, 50), (160, 40)):
        train = {**RECIPE["train"], "steps": steps, "schedule": {"kind": "wsd", "warmup": 50}}
        short = Trials(study(recipe={**RECIPE, "train": train}, rates={"share": 0.5})).trial(
            "tasks", "rope", 0, search=True
        )
        assert (short.recipe.train.steps, short.recipe.train.schedule.warmup) == (steps // 2, warmup)
    plan = Plan(study(rates={"share": 0.5}))
    found = {
        trial.hash: {"loss": loss} for trial, loss in zip(plan._search("tasks", "rope"), (3.0, 2.0, 2.0), strict=True)
    }
    assert plan.own_rate("tasks", "rope", found) == 1.0
    found[plan._search("tasks", "rope")[2].hash]["loss"] = 1.0
    assert plan.own_rate("tasks", "rope", found) == 2.0
    assert [trial.factor for trial in plan.final("tasks", "rope", found, shared=True)] == [1.0]


def test_a_factor_is_of_both_rates_of_muon() -> None:
    train = {**RECIPE["train"], "optimizer": {"kind": "muon", "lr": 1e-2, "matrix_lr": 4e-3}}
    made = Trials(study(recipe={**RECIPE, "train": train}, rates={"share": 0.5}))
    for search in (True, False):
        found: Any = made.trial("tasks", "rope", 0, 2.0, search=search).recipe.train.optimizer
        assert (found.lr, found.matrix_lr) == (2e-2, 8e-3)


def test_the_chosen_factor_is_found_among_those_searched() -> None:
    """1 / sqrt(2) has more digits than are shown."""
    plan = Plan(study(rates={"factors": [2**-0.5, 1, 2**0.5], "share": 0.5}))
    results = {trial.hash: {"loss": trial.factor} for trial in plan._search("tasks", "rope")}
    about = _about(plan, "tasks", "rope", results)
    assert [float(each) for each in about["search"]] == [2**-0.5, 1.0, 2**0.5]
    assert list(about["search"])[1] == "1"
    rows = _search({"text": None, "tasks": {"arms": {"rope": about}}})
    assert [(chosen, edge) for *_, chosen, edge in rows] == [(True, True), (False, False), (False, False)]


def test_one_factor_is_taken_without_a_search() -> None:
    plan = Plan(study(rates={"factors": [0.5]}))
    needed = plan.needed({})
    assert plan.own_rate("tasks", "alibi", {}) == 0.5
    assert sorted((one.arm, one.factor, one.share, one.recipe.train.optimizer.lr) for one in needed) == [
        ("alibi", 0.5, 1.0, 5e-3), ("alibi", 1.0, 1.0, 1e-2), ("rope", 0.5, 1.0, 5e-3), ("rope", 1.0, 1.0, 1e-2),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="factors"):
        study(rates={"factors": []})


def test_seeds_are_added_until_the_interval_is_narrow(tmp_path: Path) -> None:
    data = {"kind": "text", "path": str(sample("text", tmp_path / "data")), "length": 32, "isolate": False}
    text = {
        "recipe": {"data": data},
        "lengths": [32],
        "tail": 16,
        "seeds": 2,
        "until": {"half_width": 0.01, "seeds": 4},
    }
    plan = Plan(study(text=text, tasks=None))

    def results(spread: float, validation: float = 0.0, plan: Plan = plan) -> dict[str, Any]:
        """Losses of the same tokens, and validation losses, of seeds that differ by so much."""
        each = [(arm, seed) for arm in ("rope", "alibi") for seed in range(6)]
        return {
            plan.trials.trial("text", arm, seed).hash: {
                "loss": 2 + validation * (seed % 2),
                "measured": {"same_tokens": {"32": [1 + spread * (seed % 2)] * 3}},
            }
            for arm, seed in each
        }

    assert plan.seeds("text", "alibi", results(0.0)) == 2
    assert plan.seeds("text", "alibi", results(1.0)) == 4
    assert plan.seeds("text", "alibi", {}) == 2
    # The interval of the validation loss is not the one that is reported.
    assert plan.seeds("text", "alibi", results(0.0, validation=1.0)) == 2
    for lost in (None, {"same_tokens": {"32": "cannot"}}, {"same_tokens": {"32": [1.0, None]}}):
        found = results(1.0)
        found[plan.trials.trial("text", "alibi", 1).hash]["measured"] = lost
        assert plan.seeds("text", "alibi", found) == 2
    # Nor is any on other text.
    arms = {"rope": "rope", "alibi": {"model": {"encoding": "alibi"}, "data": {"isolate": True}, "differs": ["data"]}}
    apart = Plan(study(text=text, tasks=None, arms=arms))
    assert apart.seeds("text", "alibi", results(1.0, plan=apart)) == 2
    assert Plan(study(text={**text, "arms": ["rope"]}, tasks=None)).seeds("text", "rope", {}) == 5


def test_the_same_study_gives_the_same_numbers_and_does_nothing_twice(tmp_path: Path) -> None:
    one, two = (compared(*run(study(), tmp_path / name, HERE), tmp_path / name) for name in ("one", "two"))
    assert told(one) == told(two)
    assert one["tasks"]["arms"]["rope"]["exact"]["copy"].keys() == {"2", "8"}
    begun: list[Trial] = []
    more = study(arms={"rope": "rope", "alibi": "alibi", "none": "none"})
    run(more, tmp_path / "one", HERE, watcher=Watcher(begin=lambda trials, out: begun.extend(trials)))
    assert [trial.arm for trial in begun] == ["none"]
    assert len((tmp_path / "one" / "registered.jsonl").read_text().splitlines()) == 2
    assert not list((tmp_path / "one" / "runs").iterdir())


def test_a_killed_trial_continues_to_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = compared(*run(study(), tmp_path / "whole", HERE), tmp_path / "whole")
    train: Callable[..., Any] = running.train
    with monkeypatch.context() as patch:
        patch.setattr(running, "train", lambda *a, **k: train(*a, **k, until=3))
        for _ in range(2):  # a kill in the middle of each arm
            with pytest.raises(running.Stopped):
                run(study(), tmp_path / "cut", HERE)
    assert list((tmp_path / "cut" / "runs").iterdir())
    assert told(compared(*run(study(), tmp_path / "cut", HERE), tmp_path / "cut")) == told(whole)


def test_shards_are_disjoint_and_together_the_whole(tmp_path: Path) -> None:
    many = study(tasks={**TASKS, "seeds": 8})
    needed = Plan(many).needed({})
    mine = [[trial for trial in needed if Shard(number, 3).has(trial)] for number in range(3)]
    assert sorted(trial.hash for part in mine for trial in part) == sorted(trial.hash for trial in needed)
    assert all(mine)
    for wrong in ("1", "3/3", "a/b", "-1/2"):
        with pytest.raises(ValueError, match="is no shard"):
            Shard.read(wrong)


def test_divergence_is_a_result(tmp_path: Path) -> None:
    wild = study(arms={"rope": "rope", "wild": {"model": {"std": 1e25}}})
    found = compared(*run(wild, tmp_path, HERE), tmp_path)
    (one,) = found["tasks"]["arms"]["wild"]["diverged"]
    assert (one["seed"], one["why"]) == (0, "Fault")
    assert not found["tasks"]["arms"]["rope"]["diverged"]
    json.dumps(found, allow_nan=False)


def test_an_encoding_outside_the_package_enters_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flat.py").write_text(template.TEXT.format(name="Flat", kind="flat.Flat"), encoding="utf-8")
    Path("study.yaml").write_text(json.dumps(study().model_dump(mode="json")), encoding="utf-8")
    mine = load_study("study.yaml", ["arms.mine=flat.Flat"])
    found = compared(*run(mine, tmp_path / "out", Workers(2)), tmp_path / "out")
    assert found["trials"] == {"done": 3, "missing": []}
    assert found["tasks"]["arms"]["mine"]["exact"]["copy"]["2"]["of"] == 1


def test_a_budget_ends_a_study_between_trials(tmp_path: Path) -> None:
    said: list[str] = []
    _, results = run(study(budget=1e-9), tmp_path, HERE, watcher=Watcher(say=said.append))
    assert len(results) == 1
    assert "the budget of 1e-09 hours is used up; 1 trials not started" in said[-1]


def test_no_worker_waits_for_another_within_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All trials are given to the workers at once, which take them as they become free."""
    calls: list[int] = []

    def counted(function: Any, shared: Any, jobs: Any, workers: Workers) -> Any:
        calls.append(0)
        for job in jobs:
            calls[-1] += 1
            yield function(shared, job)

    monkeypatch.setattr(driver, "mapped", counted)
    run(study(budget=1.0), tmp_path, HERE)
    assert calls == [2]


def test_measured_otherwise_it_is_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, first = run(study(), tmp_path, HERE)
    monkeypatch.setattr(running, "train", None)
    _, both = run(study(tasks={**TASKS, "lengths": [2, 6, 8]}), tmp_path, HERE)
    assert len(both) == 2 * len(first)
    for one in first.values():
        (other,) = [two for two in both.values() if two["arm"] == one["arm"] and two["hash"] != one["hash"]]
        assert (other["curve"], other["versions"]) == (one["curve"], one["versions"])
        assert other["measured"]["exact"]["copy"].items() >= one["measured"]["exact"]["copy"].items()
    # Weights that were not kept whole are trained again.
    for kept in tmp_path.glob("models/*/trained.json"):
        kept.unlink()
    with pytest.raises(TypeError, match="not callable"):
        run(study(tasks={**TASKS, "lengths": [3]}), tmp_path, HERE)


def test_the_losses_of_a_search_are_told(tmp_path: Path) -> None:
    rates = {"factors": [0.5, 1, 2], "share": 0.5}
    found = compared(*run(study(rates=rates), tmp_path, HERE), tmp_path)
    about = found["tasks"]["arms"]["rope"]
    assert list(about["search"]) == ["0.5", "1", "2"]
    best = min(about["search"], key=about["search"].__getitem__)
    assert (float(best), best != "1") == (about["factor"], about["edge"])


def test_equal_time_is_before_the_rate_falls() -> None:
    """The fastest of these arms is at its step 80 of 100 when it begins to; the other, half as fast, at its step 40."""
    plan = Plan(study(recipe={**RECIPE, "train": {**RECIPE["train"], "schedule": {"kind": "wsd", "decay": 0.2}}}))
    results = {}
    for arm, step in (("rope", 1.0), ("alibi", 2.0)):
        (trial,) = plan.final("tasks", arm, {})
        timing = {"step": step, "train": 100 * step, "measure": 0.0}
        curve = [(10 * n, 10.0 - n) for n in range(1, 11)]
        results[trial.hash] = {"timing": timing, "steps": 100, "diverged": None, "curve": curve}
    found = _times(plan, "tasks", results)
    assert found["rope"]["loss_at_equal_time"] == [pytest.approx(2.0)]
    assert found["alibi"]["loss_at_equal_time"] == [pytest.approx(6.0)]


def test_what_is_compared_is_written_down_before(tmp_path: Path) -> None:
    first = register(study(), tmp_path)
    assert register(study(), tmp_path) == first
    assert results_in(tmp_path) == {}
    (line,) = (tmp_path / "registered.jsonl").read_text().splitlines()
    assert json.loads(line)["hash"] == first
    assert register(study(threads=2), tmp_path) != first
    # What is run again after another study is what the file says.
    register(study(), tmp_path)
    assert load_study(tmp_path / "study.yaml").threads == 1
