"""The live table of `ropewalk compare`: the trials that are under way, as their folders have them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ropewalk.cli.compare.live_table import rows
from ropewalk.compare import run_trial as running
from ropewalk.compare.driver import run
from ropewalk.compare.plan import Plan
from ropewalk.trials.jobs import Workers
from tests.compare.tiny_study import study


def shown(out: Path) -> list[str]:
    trials = {trial.hash: trial for trial in Plan(study()).needed({})}
    text = io.StringIO()
    Console(file=text, width=100).print(rows(trials, out))
    return [line.strip() for line in text.getvalue().splitlines()]


def test_a_trial_under_way_is_shown_with_its_step_and_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train: Callable[..., Any] = running.train
    with monkeypatch.context() as patch:
        patch.setattr(running, "train", lambda *a, **k: train(*a, **k, until=3))
        with pytest.raises(running.Stopped):
            run(study(), tmp_path, Workers())
    title, heading, row = shown(tmp_path)
    assert (title, heading.split()) == ("0 of 2 trials done", ["trial", "step", "loss", "tokens/s", "time", "left"])
    name, step, loss, *_ = (cell for cell in row.split("  ") if cell)
    assert (name, step.strip()) == ("tasks: rope / seed 0", "3/4")
    assert 3 < float(loss) < 6  # of 72 symbols
    run(study(), tmp_path, Workers())
    assert shown(tmp_path)[0] == "2 of 2 trials done"
    assert len(shown(tmp_path)) == 2
