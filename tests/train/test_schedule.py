"""Learning rates against their papers' formulas, written out."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from ropewalk.amounts import amount, counted, duration
from ropewalk.overrides import BadConfig, load
from ropewalk.train.config import Recipe, TrainConfig
from ropewalk.train.schedule import Constant, Cosine, InverseSqrt, WarmupStableDecay


def test_2017() -> None:
    width, warmup = 512, 4000
    train = TrainConfig(steps=100, schedule=InverseSqrt(warmup=warmup))
    for step in (1, 2, 3999, 4000, 4001, 100_000):
        want = width**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert train.peak(width) * train.schedule.share(step, 100_000) == pytest.approx(want, rel=1e-12)


def test_cosine_is_torchs_after_the_warmup() -> None:
    schedule, steps = Cosine(warmup=10, floor=0.1), 110
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100, eta_min=0.1)
    for step in range(10, 111):
        assert schedule.share(step, steps) == pytest.approx(theirs.get_last_lr()[0], rel=1e-9), step
        optimizer.step()
        theirs.step()
    assert [schedule.share(step, steps) for step in (1, 5)] == [0.1, 0.5]


def test_wsd_is_level_then_falls_to_its_floor() -> None:
    schedule = WarmupStableDecay(warmup=10, decay=0.25, floor=0.2)
    shares = [schedule.share(step, 100) for step in range(1, 101)]
    assert shares[9:75] == [1.0] * 66
    assert shares[99] == pytest.approx(0.2 + 0.8 / 26)
    assert all(a > b for a, b in pairwise(shares[74:]))
    assert math.isclose(shares[87] - shares[88], 0.8 / 26)
    assert WarmupStableDecay(warmup=0).share(100, 100) > 0


def test_constant() -> None:
    assert [Constant(warmup=4).share(step, 9) for step in (1, 2, 4, 9)] == [0.25, 0.5, 1.0, 1.0]


@pytest.mark.parametrize(
    ("written", "means"),
    [
        ("20M", 20_000_000),
        ("16k tokens", 16_000),
        ("1.5B", 1_500_000_000),
        ("1T", 10**12),
        (7, 7),
        (2e3, 2000),
        ("12,000", 12000),
    ],
)
def test_amounts(written: object, means: int) -> None:
    assert amount(written) == means


@pytest.mark.parametrize("written", ["many", "16 kilo", "-3", "", "0"])
def test_what_is_no_amount(written: str) -> None:
    with pytest.raises(ValidationError, match=r"not an amount|greater than 0"):
        TrainConfig.model_validate({"tokens": written})


def test_how_long_must_be_said_once() -> None:
    with pytest.raises(BadConfig, match=r"train\.tokens.*both are given.*tokens: 20M"):
        load(Recipe, None, ["train.steps=5", "train.tokens=20M"])
    with pytest.raises(ValidationError, match="neither is given"):
        TrainConfig.model_validate({})


def test_the_command_line_says_in_other_words_how_long(tmp_path: Path) -> None:
    (file := tmp_path / "recipe.yaml").write_text("train: {tokens: 6M, batch: 8192}", encoding="utf-8")
    found = load(Recipe, file, ["train.steps=300"]).train
    assert (found.steps, found.tokens, found.batch) == (300, None, 8192)
    file.write_text("train: {steps: 50}", encoding="utf-8")
    assert load(Recipe, file, ["train.tokens=1M"]).train.tokens == 10**6
    assert load(Recipe, file, ["train.batch=4096"]).train.steps == 50
    file.write_text("train: {steps: 50, tokens: 6M}", encoding="utf-8")
    with pytest.raises(BadConfig, match="both are given"):
        load(Recipe, file, ["train.batch=4096"])


@pytest.mark.parametrize(
    ("seconds", "says"),
    [(0.2, "less than a second"), (12, "12 s"), (60, "1 minute"), (144, "2 minutes"), (5400, "90 minutes"),
     (9000, "2.5 hours"), (86400 * 3, "3.0 days")],
)  # fmt: skip
def test_durations(seconds: float, says: str) -> None:
    assert duration(seconds) == says


def test_one_is_singular() -> None:
    assert [counted(n, "pass", "passes") for n in (0, 1, 1200)] == ["0 passes", "1 pass", "1,200 passes"]
    assert counted(2, "rank") == "2 ranks"
