"""A study that its budget ended says so, also to whoever reads JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ropewalk.cli.main import app
from tests.compare.tiny_study import study


def test_a_budget_that_ended_a_study_is_said_beside_its_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study.yaml").write_text(json.dumps(study(budget=1e-9).model_dump(mode="json")), encoding="utf-8")
    done = CliRunner().invoke(app, ["compare", "study.yaml", "--workers", "1", "--json"])
    assert len(json.loads(done.stdout)["trials"]["missing"]) == 1
    assert done.stderr == "the budget of 1e-09 hours is used up: 1 trial not started; raise budget to run them\n"
