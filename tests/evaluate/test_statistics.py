"""Intervals over documents against published tables, and their error rates by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ropewalk.evaluate.statistics import FEWEST, holm, p_value, paired, t_cdf, t_quantile, wilson


@pytest.mark.parametrize(
    ("freedom", "value"),
    [(1, 12.7062), (2, 4.30265), (3, 3.18245), (7, 2.36462), (10, 2.22814), (15, 2.13145), (31, 2.03951)],
)
def test_quantiles_of_students_t_are_those_of_the_tables(freedom: int, value: float) -> None:
    assert t_quantile(0.975, freedom) == pytest.approx(value, rel=2e-6)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 8, 9, 30])
def test_the_distribution_is_the_integral_of_its_density(freedom: int) -> None:
    scale = math.gamma((freedom + 1) / 2) / (math.sqrt(freedom * math.pi) * math.gamma(freedom / 2))
    points = np.linspace(0, 1.7, 20_001)
    density = scale * (1 + points**2 / freedom) ** (-(freedom + 1) / 2)
    area = np.trapezoid(density, points)
    assert t_cdf(1.7, freedom) == pytest.approx(0.5 + area, abs=1e-8)
    assert t_cdf(-1.7, freedom) == pytest.approx(0.5 - area, abs=1e-8)


def test_an_interval_by_hand() -> None:
    found = paired([0.01, 0.03, 0.05])
    half = 4.302653 * 0.02 / math.sqrt(3)
    assert (found.mean, found.low, found.high) == pytest.approx((0.03, 0.03 - half, 0.03 + half), rel=1e-6)
    assert found.verdict == "too few documents"


def test_verdicts_need_documents_and_an_interval_without_zero() -> None:
    assert paired([0.02 + 0.001 * n for n in range(FEWEST)]).verdict == "better"
    assert paired([-0.02 - 0.001 * n for n in range(FEWEST)]).verdict == "worse"
    assert paired([(-1) ** n * 0.02 for n in range(FEWEST)]).verdict == "no difference"
    assert paired([0.02 + 0.001 * n for n in range(FEWEST - 1)]).verdict == "too few documents"
    assert str(paired([0.5])) == "+0.5000 (one document)"


def test_random_signs_are_called_different_in_five_per_cent() -> None:
    """What two equal candidates give: differences whose signs mean nothing."""
    draws = np.random.default_rng(7)
    sizes = np.abs(draws.normal(0, 0.03, 16)) + 0.005
    called = sum(paired(list(sizes * draws.choice([-1, 1], 16))).verdict != "no difference" for _ in range(2000))
    assert 0.03 <= called / 2000 <= 0.07


def test_p_values_agree_with_intervals() -> None:
    draws = np.random.default_rng(3)
    for _ in range(50):
        values = list(draws.normal(0.02, 0.03, 12))
        assert (p_value(values) < 0.05) == (paired(values).verdict != "no difference")


def test_holm_stops_at_the_first_that_is_not_small_enough() -> None:
    assert holm({"a": 0.012, "b": 0.04, "c": 0.03}) == {"a": True, "b": False, "c": False}
    assert holm({"a": 0.001, "b": 0.04, "c": 0.02}) == {"a": True, "b": True, "c": True}


def test_ten_of_ten_is_not_certain() -> None:
    low, high = wilson(10, 10)
    assert (low, high) == pytest.approx((0.7225, 1.0), abs=1e-4)
    assert wilson(0, 16)[0] == 0
    assert wilson(8, 16) == pytest.approx((0.28, 0.72), abs=1e-3)
