"""What a watch says of a step."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from ropewalk.train.guard.faults import Fault, FaultConfig, Watch
from tests.distributed.steps import ALONE

NAN, INF = math.nan, math.inf


def settled(watch: Watch, count: int = 64) -> None:
    for step in range(count):
        assert watch.verdict(step, 2.0 + 0.01 * (step % 5), 1.0) == "good"


@pytest.mark.parametrize(("loss", "norm"), [(NAN, 1.0), (INF, 1.0), (-INF, 1.0), (1.0, NAN), (1.0, INF), (NAN, NAN)])
def test_not_finite(loss: float, norm: float) -> None:
    assert Watch(FaultConfig(policy="skip"), ALONE).verdict(0, loss, norm) == "not finite"
    assert Watch(FaultConfig(policy="rollback"), ALONE).verdict(0, loss, norm) == "not finite"
    with pytest.raises(Fault, match=r"step 1: not finite: loss .*, gradient norm .*policy=skip"):
        Watch(FaultConfig(), ALONE).verdict(0, loss, norm)


def test_where_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    assert isinstance(model[1].weight.grad, torch.Tensor)
    model[1].weight.grad[1, 0] = INF
    watch = Watch(FaultConfig(policy="skip"), ALONE)
    watch.verdict(6, 1.0, INF, lambda: [41, 7], model)
    assert watch.last["parameters"] == {0: ["1.weight"]}
    assert watch.last["samples"] == [7, 41]
    said = capsys.readouterr().err
    assert "step 7" in said
    assert "the gradient of 1.weight; samples 7, 41; skip" in said


def test_a_spike() -> None:
    watch = Watch(FaultConfig(policy="skip"), ALONE)
    settled(watch)
    assert watch.verdict(64, 2.05, 1.0) == "good"
    assert watch.verdict(65, 3.0, 1.0) == "spike"
    assert watch.verdict(66, 0.1, 1.0) == "good"


def test_a_spike_stops_nothing_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    watch = Watch(FaultConfig(), ALONE)
    settled(watch)
    assert watch.verdict(64, 30.0, 1.0) == "good"
    assert "spike" in capsys.readouterr().err
    assert watch.losses[-1] == 30.0


def test_bad_numbers_do_not_blind_it() -> None:
    watch = Watch(FaultConfig(policy="skip", limit=1000), ALONE)
    settled(watch)
    for step in range(64, 164):
        assert watch.verdict(step, NAN if step % 2 else INF, 1.0) == "not finite"
    assert all(math.isfinite(each) for each in watch.losses)
    assert watch.verdict(164, 3.0, 1.0) == "spike"


def test_no_verdict_before_there_is_a_window() -> None:
    watch = Watch(FaultConfig(policy="skip", window=8), ALONE)
    assert [watch.verdict(step, loss, 1.0) for step, loss in enumerate((1.0, 9.0, 1.0))] == ["good"] * 3
    assert Watch(FaultConfig(spike=None), ALONE).verdict(0, 1e30, 1.0) == "good"


def test_a_loss_that_has_settled_has_no_spikes_in_its_noise() -> None:
    watch = Watch(FaultConfig(policy="skip"), ALONE)
    for step in range(100):
        assert watch.verdict(step, 2.0, 1.0) == "good"
    assert watch.verdict(100, 2.01, 1.0) == "good"
    assert watch.verdict(101, 2.2, 1.0) == "spike"


def test_too_often_is_a_stop() -> None:
    watch = Watch(FaultConfig(policy="skip", limit=3), ALONE)
    for step in range(3):
        watch.verdict(step, NAN, 1.0)
    with pytest.raises(Fault, match="fault 4 within 128 steps, 3 are allowed"):
        watch.verdict(3, NAN, 1.0)


def test_seldom_is_not() -> None:
    watch = Watch(FaultConfig(policy="skip", limit=3), ALONE)
    for step in range(0, 2000, 100):
        assert watch.verdict(step, NAN, 1.0) == "not finite"


def test_a_resumed_watch_judges_alike() -> None:
    one = Watch(FaultConfig(policy="skip"), ALONE)
    settled(one)
    one.verdict(64, NAN, 1.0)
    other = Watch(FaultConfig(policy="skip"), ALONE)
    other.load(one.state())
    assert other.verdict(65, 3.0, 1.0) == one.verdict(65, 3.0, 1.0) == "spike"
    assert other.faulty == one.faulty == [64, 65]
