"""The record of a run survives kills: half lines are passed over, repeated steps count once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ropewalk.train.metrics import Metrics, read, tracker

seen: list[dict[str, object]] = []


def make(run: str, recipe: dict[str, object]) -> object:
    seen.append({"run": run, **recipe})
    return seen.append


def test_torn_and_repeated_lines(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    first = Metrics(path)
    for step in (1, 2, 3):
        first.write({"step": step, "loss": float(step)})
    first.write({"kind": "valid", "step": 3, "loss": 0.5})
    first.close()
    with path.open("a") as file:
        file.write('{"step": 4, "lo')
    second = Metrics(path)
    for step in (3, 4):
        second.write({"step": step, "loss": 10.0 * step})
    second.close()
    found = read(path)
    assert [(r["step"], r["loss"]) for r in found["train"]] == [(1, 1.0), (2, 2.0), (3, 30.0), (4, 40.0)]
    assert found["valid"] == [{"kind": "valid", "step": 3, "loss": 0.5}]


def test_what_is_not_finite_is_a_word(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "m.jsonl")
    metrics.write({"step": 1, "loss": float("nan")})
    metrics.close()
    assert json.loads((tmp_path / "m.jsonl").read_text()) == {"step": 1, "loss": "nan"}


def test_a_tracker_of_ones_own(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "m.jsonl", [tracker(f"{__name__}:make", "here", {"a": 1})])
    metrics.write({"step": 1, "loss": 2.0})
    metrics.close()
    assert seen == [{"run": "here", "a": 1}, {"step": 1, "loss": 2.0}]
    with pytest.raises(ValueError, match="is no tracker; write trackio"):
        tracker("mlflow", "here", {})


class Recorded:
    """As much of wandb and of trackio as is used, and what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def init(self, **given: Any) -> Recorded:
        self.told.append(("init", given))
        return self

    def define_metric(self, name: str, *, step_metric: str) -> None:
        self.told.append(("metric", (name, step_metric)))

    def log(self, record: dict[str, Any], step: int | None = None) -> None:
        self.told.append(("log", record if step is None else (step, record)))


RECORDS: list[dict[str, Any]] = [
    {"step": 1, "loss": 2.5, "norm": "nan"},
    {"kind": "valid", "step": 1, "loss": 3.0, "by_position": [{"from": 0, "loss": 3.0}]},
    {"kind": "event", "what": "drift", "differences": []},
]


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_trackers_get_the_numbers_of_each_record(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    told = Recorded()
    monkeypatch.setitem(sys.modules, name, told)  # pyrefly: ignore[bad-argument-type]
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    log = tracker(name, "here", {"a": 1})
    for record in RECORDS:
        log(record)
    (_, started), *rest = told.told
    assert started | {"project": "ropewalk", "name": "here", "config": {"a": 1}, "resume": "allow"} == started
    if name == "trackio":
        assert rest == [("log", (1, {"loss": 2.5})), ("log", (1, {"valid/loss": 3.0}))]
        return
    # By a metric of ours: steps that a resumed run repeats are not dropped.
    assert rest == [
        ("metric", ("*", "step")),
        ("log", {"loss": 2.5, "step": 1}),
        ("log", {"valid/loss": 3.0, "step": 1}),
    ]
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    tracker(name, "here", {})
    assert told.told[-2][1]["project"] == "mine"
