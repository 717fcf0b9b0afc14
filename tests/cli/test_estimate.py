"""`ropewalk estimate`: JSON for programs, and an answer to a GPU nobody knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Ropewalk
from tests.train.test_estimate import SMALL

pytestmark = pytest.mark.no_poison


def test_on_the_command_line(ropewalk: Ropewalk, tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text("{}")
    answer = ropewalk("estimate", str(file), *SMALL, "--mesh", "dp=4", "--gpu", "h100", "--json")
    assert answer.code == 0, answer.stderr
    said = json.loads(answer.stdout)
    assert said["ranks"] == 4
    assert said["fits"] is True
    assert said["hours"] > 0
    assert ropewalk("estimate", str(file), *SMALL, "--gpu", "h101").code == 3
