"""A run that goes on with another number of ranks, or on another mesh."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from ropewalk.distributed.apply import unsharded
from ropewalk.distributed.world import World
from ropewalk.train.loop import Loop
from ropewalk.train.run import train
from tests.train import small_recipe

REPOSITORY = Path(__file__).parents[2]


def test_a_checkpoint_is_read_on_any_mesh() -> None:
    paths = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.train.worlds_run", "--steps", "10"]
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["moved"].keys() == {"AdamW", "Muon"}
    for differing in said["moved"].values():
        assert len(differing) == 6
        assert all(each == [] for each in differing.values()), said["moved"]
    assert len(said["read"]) == 6
    assert all(differing == [] for differing in said["read"].values()), said["read"]
    assert max(said["losses"].values()) < 1e-4, said["losses"]


def test_weights_are_not_left_gathered_by_a_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole on every rank until the next step, they would take memory that no estimate has. A mesh of one rank shards
    and gathers as one of many."""
    left: list[str] = []
    plain = Loop.evaluate

    def evaluate(self: Loop) -> None:
        plain(self)
        whole = {name for name, _ in unsharded(self.learner)}
        left.extend(
            name
            for name, parameter in self.learner.named_parameters()
            if name not in whole and not isinstance(parameter, DTensor)
        )
        left.append("measured")

    monkeypatch.setattr(Loop, "evaluate", evaluate)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        train(small_recipe.recipe(2, 2), tmp_path, world=World.start())
    finally:
        dist.destroy_process_group()
    assert left == ["measured"]
