"""What encodings start training from and what their parameters are held to, by the papers and their code."""

from __future__ import annotations

import pytest
import torch

from ropewalk import encodings, positions

MANY = 4096  # heads: enough for a range to be seen in a sample


def spread(values: torch.Tensor, low: float, high: float) -> None:
    """Evenly over the range, and nowhere outside of it."""
    assert values.min() >= low
    assert values.max() <= high
    assert values.mean().item() == pytest.approx((low + high) / 2, abs=0.02 * (high - low))
    assert values.std().item() == pytest.approx((high - low) / 12**0.5, rel=0.05)


@pytest.mark.parametrize(("form", "rate"), [("log", 1), ("power", 2)])
def test_kerple(form: str, rate: float) -> None:
    torch.manual_seed(0)
    kerple = encodings.build({"kind": "kerple", "form": form}, heads=MANY)
    spread(kerple.scale.detach(), 0, 2)
    spread(kerple.rate.detach(), 0, rate)
    with torch.no_grad():
        kerple.scale.fill_(-1.0)
        kerple.rate.copy_(torch.tensor([-1.0, 3.0]).repeat(MANY // 2))
    scale, rates = kerple(torch.arange(3))
    assert scale.unique().tolist() == pytest.approx([0.01])
    assert rates.unique().tolist() == pytest.approx([0.01, 3.0 if form == "log" else 2.0])


@pytest.mark.parametrize(("form", "first"), [("log-n", 8), ("llama4", 7), ("ministral", 8)])
def test_the_first_position_that_a_temperature_changes(form: str, first: int) -> None:
    """Trained on 8 tokens: ln(m + 1)/ln 8, floor((m + 1)/8) and floor(m/8) in the logarithm; 1 below."""
    table = encodings.build({"kind": "temperature", "form": form, "trained": 8})(positions.plain(12))
    assert (table.flatten() > 1).nonzero()[0].item() == first


@pytest.mark.parametrize("form", ["log-n", "llama4", "ministral"])
def test_before_the_first_position_a_temperature_changes_nothing(form: str) -> None:
    """As below the trained length; the logarithms would be NaN and -inf. Padding may be numbered so."""
    table = encodings.build({"kind": "temperature", "form": form, "trained": 8})(positions.explicit([-20, -9, -8, -1]))
    assert table.flatten().tolist() == [1.0] * 4


def test_a_share_of_the_limit_needs_one_limit() -> None:
    """Keys numbered by another limit than the queries would be another share of it."""
    places = positions.plain(4, limit=8), positions.plain(4, limit=16)
    encodings.build({"kind": "scalar", "form": "integer"}, width=8).at(*places)
    with pytest.raises(ValueError, match="limit"):
        encodings.build({"kind": "scalar", "form": "unit"}, width=8).at(*places)


def test_fire() -> None:
    torch.manual_seed(0)
    fire = encodings.build({"kind": "fire", "hidden": 64}, heads=MANY)
    spread(fire.outer.detach(), -1 / 8, 1 / 8)
    assert (fire.slope.item(), fire.threshold.item()) == (pytest.approx(0.1), 512.0)
    assert not fire.offset.any()


def test_tables() -> None:
    torch.manual_seed(0)
    assert encodings.build("t5", heads=16).weight.std().item() == pytest.approx(1 / 4, rel=0.1)
    learned = encodings.build({"kind": "learned", "longest": 512}, width=64)
    assert learned.weight.std().item() == pytest.approx(0.02, rel=0.02)
