"""Estimates: counted by the code that trains, and said in words that can be typed."""

from __future__ import annotations

import pytest

from ropewalk.overrides import load
from ropewalk.train import devices
from ropewalk.train.config import Recipe
from ropewalk.train.cost import step_flops
from ropewalk.train.devices import Device
from ropewalk.train.estimate import dry_run, estimate, mesh_of, smaller

pytestmark = pytest.mark.no_poison
SMALL = [
    *("model.width=64", "model.heads=4", "model.layers=2", "model.hidden=128", "model.vocabulary=512"),
    *(
        "model.fused=false",
        "data.kind=text",
        "data.length=128",
        "train.steps=10",
        "train.batch=2048",
        "data.path=nowhere",
    ),
]


def recipe(*changes: str) -> Recipe:
    return load(Recipe, None, [*SMALL, *changes])


@pytest.mark.parametrize("mesh", ["dp=1", "dp=4", "dp=2,cp=2", "dp=2,tp=2", "dp_replicate=2,dp=2"])
def test_the_ranks_together_do_the_work_of_one(mesh: str) -> None:
    sides, ranks = mesh_of(mesh)
    found = estimate(recipe(), sides, ranks)
    whole = step_flops(recipe().model, found.cut.rows, found.cut.length)
    together = ranks * found.measured.flops * found.cut.passes
    # Attention's way back computes its scores once more. A part of the queries takes a mask, under which the scores are
    # computed too that a triangle leaves out.
    assert whole <= together <= (1.2 if "cp" in mesh else 1.05) * whole
    assert found.measured.peak >= found.measured.parameters + found.measured.optimizer


def test_what_is_no_mesh() -> None:
    with pytest.raises(ValueError, match=r"'pp=2' is no side of a mesh; write for example dp=128,tp=8,cp=4"):
        mesh_of("dp=2,pp=2")


def test_what_does_not_fit_comes_with_the_smallest_change(monkeypatch: pytest.MonkeyPatch) -> None:
    sides, ranks = mesh_of("dp=2")
    whole = estimate(recipe(), sides, ranks).measured.peak
    spare = estimate(recipe("train.recompute=true"), sides, ranks).measured.peak
    assert spare < whole

    def tiny(memory: float) -> None:
        monkeypatch.setitem(devices.DEVICES, "tiny", Device(memory / devices.HELD_BACK, 1e12, 1e12, 1e9, 1e9, 8, 1.0))

    tiny((whole + spare) / 2)
    assert estimate(recipe(), sides, ranks, "tiny").fits is False
    found = smaller(recipe(), sides, ranks, "tiny")
    assert found is not None
    assert found[0] == "train.recompute=true"
    tiny(0.9 * spare)
    found = smaller(recipe(), sides, ranks, "tiny")
    assert found is not None
    assert found[0] == "train.recompute=true train.micro=128"
    tiny(1000)
    assert smaller(recipe(), sides, ranks, "tiny") is None


def test_a_dry_run_says_what_is_trained() -> None:
    found = dry_run(recipe())
    assert found["steps"] == 10
    assert found["parameters"] == 512 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64
    assert found["memory"]["optimizer"] >= 8 * found["parameters"]
    assert found["hours"] > 0
