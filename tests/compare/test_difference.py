"""Verdicts: the same thing is not called different, another thing is, and the tests are the textbook's."""

from __future__ import annotations

import math
import random
from itertools import combinations

import mpmath
import pytest

from ropewalk.compare.difference import difference, least_p, noise_floor, of_means, rank_sum, verdicts


def t_tail(t: float, freedom: int) -> float:
    """Two-sided, by integrating Student's density."""
    scale = mpmath.gamma((freedom + 1) / 2) / (mpmath.sqrt(freedom * mpmath.pi) * mpmath.gamma(freedom / 2))
    return float(2 * scale * mpmath.quad(lambda x: (1 + x * x / freedom) ** (-(freedom + 1) / 2), [t, mpmath.inf]))


def test_the_difference_is_welchs_t_test() -> None:
    arm, reference = [1.0, 2.0, 4.0], [2.0, 4.0, 6.0, 9.0]
    # Means 7/3 and 21/4; variances of them (14/3)/2/3 and (107/4)/3/4; freedom 4.67, taken as 4.
    a, b = 14 / 3 / 2 / 3, 107 / 4 / 3 / 4
    assert int((a + b) ** 2 / (a * a / 2 + b * b / 3)) == 4
    found = difference(arm, reference)
    assert found.mean == pytest.approx(7 / 3 - 21 / 4)
    assert found.p == pytest.approx(t_tail((21 / 4 - 7 / 3) / math.sqrt(a + b), 4), rel=1e-9)
    # 2.776445 is the textbook's t(0.975, 4).
    assert found.half_width == pytest.approx(2.776445 * math.sqrt(a + b), rel=1e-6)


@pytest.mark.parametrize("ratio", [1, 3, 10])
def test_an_arm_that_varies_more_is_not_called_different_more_often(ratio: int) -> None:
    """Eleven arms of three seeds against five of the reference, and no difference: a verdict in one study of twenty."""
    rng = random.Random(ratio)
    called = 0
    for _ in range(1000):
        reference = [rng.gauss(3, 0.01) for _ in range(5)]
        found = {f"{n}": difference([rng.gauss(3, 0.01 * ratio) for _ in range(3)], reference) for n in range(11)}
        called += any(one != "tie" for one in verdicts(found, noise_floor(reference)).values())
    assert called / 1000 <= 0.07


def test_the_noise_floor_covers_19_of_20_pairs_of_runs() -> None:
    rng = random.Random(1)
    seeds = [rng.gauss(2, 0.01) for _ in range(2000)]
    floor = noise_floor(seeds)
    assert floor is not None
    inside = sum(abs(rng.gauss(2, 0.01) - rng.gauss(2, 0.01)) < floor for _ in range(4000))
    assert 0.935 < inside / 4000 < 0.965


def test_the_noise_floor_of_means_covers_19_of_20_pairs_of_means() -> None:
    rng = random.Random(4)
    floor = noise_floor([rng.gauss(2, 0.01) for _ in range(2000)])
    assert floor is not None
    means = [[sum(rng.gauss(2, 0.01) for _ in range(n)) / n for n in (3, 10)] for _ in range(4000)]
    inside = sum(abs(a - b) < of_means(floor, (3, 10)) for a, b in means)
    assert 0.935 < inside / 4000 < 0.965
    assert of_means(floor, (1, 1)) == pytest.approx(floor)


def test_an_arm_all_of_whose_seeds_are_better_than_all_of_a_noisy_reference_is_better() -> None:
    """Losses at twice the trained length, measured: single runs of the reference differ by up to 0.72."""
    reference = [3.492, 3.47, 3.952, 3.866, 3.646, 3.247, 3.728, 3.328, 3.687, 3.484]
    assert verdicts({"arm": difference([2.873, 2.872, 2.896], reference)}, noise_floor(reference)) == {"arm": "better"}


def test_ten_seeds_split_in_two_are_rarely_called_different() -> None:
    """And the test alone, without the floor, keeps its level: the floor is not what saves it."""
    rng = random.Random(2)
    called = alone = splits = 0
    for _ in range(20):
        seeds = [rng.gauss(3, 0.02) for _ in range(10)]
        for half in combinations(range(10), 5):
            arm, reference = [seeds[i] for i in half], [seeds[i] for i in range(10) if i not in half]
            found = {"same": difference(arm, reference)}
            called += verdicts(found, noise_floor(reference))["same"] != "tie"
            alone += found["same"].p < 0.05
            splits += 1
    assert called / splits <= 0.07
    assert 0.03 < alone / splits <= 0.07


def test_a_real_difference_is_found_and_has_a_direction() -> None:
    rng = random.Random(3)
    reference = [rng.gauss(3, 0.01) for _ in range(5)]
    arms = {name: [rng.gauss(at, 0.01) for _ in range(3)] for name, at in (("low", 2.9), ("high", 3.2), ("same", 3.0))}
    found = {name: difference(values, reference) for name, values in arms.items()}
    said = verdicts(found, noise_floor(reference))
    assert said == {"low": "better", "high": "worse", "same": "tie"}
    assert set(verdicts(found, None).values()) == {"no verdict"}
    assert set(verdicts(found, 1.0).values()) == {"tie"}


def test_one_seed_has_no_verdict_however_far_away() -> None:
    reference = [3.0, 3.01, 2.99, 3.0, 3.01]
    found = {"one": difference([9.0], reference), "two": difference([9.0, 9.01], reference)}
    assert verdicts(found, noise_floor(reference)) == {"one": "no verdict", "two": "worse"}


@pytest.mark.parametrize(("arm", "reference", "p"), [
    ([5, 6, 7, 8, 9], [0, 1, 2, 3, 4], 2 / 252),
    ([3, 4, 5], [0, 1, 2], 2 / 20),
    ([20, 20, 20], [20, 20, 20], 1.0),
    ([0, 0, 40], [0, 0, 0], 1.0),
])  # fmt: skip
def test_rank_sums_count_the_ways_to_deal_outcomes_out(arm: list[float], reference: list[float], p: float) -> None:
    assert rank_sum(arm, reference).p == pytest.approx(p)


def test_rank_sums_are_those_of_every_way_with_equal_outcomes_too() -> None:
    rng = random.Random(4)
    for _ in range(50):
        arm, reference = ([rng.choice((0, 5, 10, 40)) for _ in range(rng.randint(1, 5))] for _ in range(2))
        both = [*arm, *reference]
        ranks = [sum(y < x for y in both) + (sum(y == x for y in both) + 1) / 2 for x in both]
        middle = len(arm) * (len(both) + 1) / 2
        ways = [sum(each) - middle for each in combinations(ranks, len(arm))]
        seen = sum(ranks[: len(arm)]) - middle
        found = rank_sum(arm, reference)
        assert found.above == pytest.approx(seen)
        assert found.p == pytest.approx(sum(abs(way) >= abs(seen) - 1e-9 for way in ways) / len(ways))


def test_rank_sums_go_by_ranks_and_not_by_the_mean() -> None:
    """One seed of five goes far, the others are below all of the reference: the mean is above it."""
    arm, reference = [10, 10, 10, 10, 40], [15, 15, 15, 15, 15]
    assert sum(arm) > sum(reference)
    assert rank_sum(arm, reference) == (pytest.approx(12 / 252), -7.5)


def test_rank_sums_of_many_seeds_are_counted_and_not_listed() -> None:
    """There are 1.4e11 ways to deal out 40 outcomes."""
    found = rank_sum([float(n % 4 + 1) for n in range(20)], [float(n % 4) for n in range(20)])
    # Of 200,000 random ways, ranked by scipy, 0.0139 were as uneven.
    assert found.p == pytest.approx(0.0139, abs=1e-3)


@pytest.mark.parametrize(("arm", "reference"), [(1, 1), (1, 5), (2, 5), (3, 3), (5, 5)])
def test_no_outcome_has_a_smaller_p(arm: int, reference: int) -> None:
    assert rank_sum([1.0] * arm, [0.0] * reference).p == least_p(arm, reference)
