"""A batch that spoils a step of a whole run, under each policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ropewalk.train.checkpoint.store import Checkpoints
from ropewalk.train.guard.faults import Fault
from ropewalk.train.loop import Loop
from ropewalk.train.run import Result, train
from tests.distributed.steps import ALONE
from tests.train import small_recipe

BAD = 5
"""The number of the batch; 4 is the step of the last checkpoint before it."""


@pytest.fixture
def spoiled(monkeypatch: pytest.MonkeyPatch) -> None:
    loss = Loop.loss

    def spoil(self: Loop, batch: Any, **settings: Any) -> Any:
        found = loss(self, batch, **settings)
        return found * float("nan") if self.step == BAD and self.learner.training else found

    monkeypatch.setattr(Loop, "loss", spoil)


def run(out: Path, policy: str) -> Result:
    return train(small_recipe.recipe(8, 4, faults={"policy": policy}), out)


def weights(out: Path, step: int) -> dict[str, str]:
    folder = out / "checkpoints" / f"step-{step:08d}"
    found = Checkpoints(folder.parent, ALONE).newest()
    assert found is not None
    assert found.step == step
    return {name: each.sha256 for name, each in found.manifest.files.items() if name.endswith(".distcp")}


@pytest.mark.usefixtures("spoiled")
def test_stop(tmp_path: Path) -> None:
    with pytest.raises(Fault, match=r"step 6: not finite: loss nan.*samples"):
        run(tmp_path, "stop")
    assert weights(tmp_path, 4)
    assert BAD + 1 not in small_recipe.losses(tmp_path)


@pytest.mark.usefixtures("spoiled")
def test_skip_and_rollback_pass_over_the_same_batch(tmp_path: Path) -> None:
    for policy in ("skip", "rollback"):
        assert run(tmp_path / policy, policy).finished
    skipped, rolled = small_recipe.losses(tmp_path / "skip"), small_recipe.losses(tmp_path / "rollback")
    assert sorted(skipped) == sorted(rolled) == [1, 2, 3, 4, 5, 7, 8]
    assert {step: each[0] for step, each in skipped.items()} == {step: each[-1] for step, each in rolled.items()}
    assert rolled[5][0] == rolled[5][1]
    assert weights(tmp_path / "skip", 8) == weights(tmp_path / "rollback", 8)


@pytest.mark.usefixtures("spoiled")
def test_rollback_without_a_checkpoint(tmp_path: Path) -> None:
    recipe = small_recipe.recipe(8, 8, faults={"policy": "rollback"})
    with pytest.raises(FloatingPointError, match="nothing to go back to"):
        train(recipe, tmp_path)


def test_a_second_run_is_refused(tmp_path: Path) -> None:
    from ropewalk.train.guard.lease import Lease, LeaseTaken

    with Lease(tmp_path, ALONE), pytest.raises(LeaseTaken, match="belongs to a run that is alive"):
        run(tmp_path, "stop")


def test_drift_is_refused_and_can_be_allowed(tmp_path: Path) -> None:
    from ropewalk.train.guard.drift import Drift

    train(small_recipe.recipe(8, 4), tmp_path, until=4)
    other = small_recipe.recipe(8, 4, optimizer={"kind": "adamw", "decay": 0.2})
    with pytest.raises(Drift, match=r"recipe\.train\.optimizer\.decay: was 0\.1, is 0\.2"):
        train(other, tmp_path, resume=True)
    assert train(other, tmp_path, resume=True, allow_drift=True).finished
