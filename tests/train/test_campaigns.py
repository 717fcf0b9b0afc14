"""The campaigns about faults, cut short: a few trials of each, spread over what they vary."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]


def campaign(name: str, out: Path, *arguments: str) -> dict[str, Any]:
    paths = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", f"campaigns.{name}", "--out", str(out), "--json", *arguments]
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def failures(result: dict[str, Any]) -> list[Any]:
    return [failure for piece in result["pieces"].values() for failure in piece["failures"]]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "count"), [("bit_flips", 60), ("disk_full", 60), ("nan_sites", 8), ("crash_points", 16), ("orphans", 2)]
)
def test_short(tmp_path: Path, name: str, count: int) -> None:
    result = campaign(name, tmp_path / "result.json", "--count", str(count), "--piece", str(count))
    assert failures(result) == []
    assert sum(piece["trials"] for piece in result["pieces"].values()) == count


@pytest.mark.timeout(900)
def test_twelve_kills(tmp_path: Path) -> None:
    arguments = ("--kills", "12", "--steps", "90", "--state", str(tmp_path / "state"))
    result = campaign("kills", tmp_path / "result.json", *arguments)
    assert failures(result) == []
    assert result["bars"]["kills"]["value"] == 12
