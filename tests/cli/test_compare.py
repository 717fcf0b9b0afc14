"""`ropewalk compare` that does not come to its end, or is not alone: what it says and leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from signal import SIGTERM
from typing import Any

import pytest
from typer.testing import CliRunner

from ropewalk.cli.main import app
from ropewalk.compare import run_trial as running
from ropewalk.train import run as training
from ropewalk.train.guard.lease import LeaseTaken
from tests.compare.tiny_study import study


@pytest.fixture
def compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    monkeypatch.chdir(tmp_path)
    Path("study.yaml").write_text(json.dumps(study().model_dump(mode="json")), encoding="utf-8")
    return lambda: CliRunner().invoke(app, ["compare", "study.yaml", "--workers", "1", "--quiet"])


def test_a_stopped_study_says_how_it_continues_and_under_what_it_does_not(
    compare: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    train: Callable[..., Any] = running.train
    with monkeypatch.context() as patch:
        patch.setattr(running, "train", lambda *a, **k: replace(train(*a, **k, until=3), signal=SIGTERM))
        done = compare()
    assert (done.exit_code, done.stderr) == (143, "stopped at step 3 of 4; the same command continues it\n")
    # As after an update; `compare` has no --allow-drift.
    before = training.versions()
    with monkeypatch.context() as patch:
        patch.setattr(training, "versions", lambda: before | {"torch": "99"})
        done = compare()
    (run,) = Path("study/runs").iterdir()
    assert done.exit_code == 3
    assert f"versions.torch: was '{before['torch']}', is '99'" in done.stderr
    assert f"rm -r {run}" in " ".join(done.stderr.split())
    assert "--allow-drift" not in done.stderr
    assert compare().exit_code == 0


def test_a_trial_that_another_command_is_at_is_named(
    compare: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(*of: Any, **options: Any) -> None:
        raise LeaseTaken("study/runs/abc belongs to a run that is alive: process 1 on here")

    monkeypatch.setattr(running, "train", taken)
    done = compare()
    assert done.exit_code == 3
    assert done.stderr == "Error: study/runs/abc belongs to a run that is alive: process 1 on here\n"


def test_shards_that_end_together_each_leave_a_whole_result(
    compare: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the other one writes is put in place between our writing and our putting in place."""
    put: Callable[..., Any] = Path.replace

    def other_first(self: Path, target: Path) -> Path:
        Path("study/study.json.part").unlink(missing_ok=True)
        return put(self, target)

    monkeypatch.setattr(Path, "replace", other_first)
    done = compare()
    assert done.exit_code == 0, done.output
    assert json.loads(Path("study/study.json").read_text())["trials"] == {"done": 2, "missing": []}
