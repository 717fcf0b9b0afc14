"""Every example runs, says what it promises, and can be read in one sitting."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
DISTRIBUTED = "one_text_on_two_processes"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
DIFFERENCES = {"attention_from_scratch": 3, "rope_in_your_model": 1, "a_cache_that_forgets": 1}
"""How many printed differences must be rounding."""


def test_there_are_six_of_at_most_sixty_lines() -> None:
    assert len(NAMES) == 6
    for name in NAMES:
        assert len((FOLDER / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= 60, name


@pytest.mark.parametrize("name", [name for name in NAMES if name != DISTRIBUTED])
def test_it_runs(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [name, "2"])  # those that train take a number of steps
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    said = capsys.readouterr().out
    found = [float(number) for number in re.findall(r"(?:difference|differs by|middle:) (\S+)$", said, re.MULTILINE)]
    assert len(found) == DIFFERENCES.get(name, 0), said
    assert all(number < 1e-5 for number in found), said


def test_two_processes_agree_with_one() -> None:
    """Its own assertion is what fails; a rank that differs ends with an error."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(FOLDER.parent / "src")}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(FOLDER / f"{DISTRIBUTED}.py")], env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("2048 of 4,096 tokens") == 2, done.stdout
