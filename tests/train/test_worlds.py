"""A run that goes on with another number of ranks, or on another mesh."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_a_checkpoint_is_read_on_any_mesh() -> None:
    paths = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.train.worlds_run", "--steps", "10"]
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert all(differing == [] for differing in said["moved"].values()), said["moved"]
    assert all(differing == [] for differing in said["moved, Muon"].values()), said["moved, Muon"]
    assert len(said["read"]) == 6
    assert all(differing == [] for differing in said["read"].values()), said["read"]
    assert max(said["losses"].values()) < 1e-4, said["losses"]
