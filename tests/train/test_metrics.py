"""The record of a run survives kills: half lines are passed over, repeated steps count once."""

from __future__ import annotations

import json
from pathlib import Path

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
        tracker("wandb", "here", {})
