"""The numeric promises of exact positions, against integer arithmetic of 300 bits."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.encodings import RoPE
from ropewalk.phase import cos_sin, phase
from ropewalk.scaling import ladder, turns
from tests.closeness import assert_close

EDGES = [-1, 0, 1, 2**24 - 1, 2**24, 2**24 + 1, 131_071, 10**6, 2**31 - 1, 2**31, 2**32, 2**36, 2**40, -(2**40)]


def exact_angle(position: int, base: float, pair: int, width: int) -> mpmath.mpf:
    with mpmath.workprec(300):
        return mpmath.fmod(position * mpmath.mpf(base) ** (mpmath.mpf(-2 * pair) / width), 2 * mpmath.pi)


def angle_error(cos: float, sin: float, angle: mpmath.mpf) -> float:
    """How far the direction (cos, sin) is from the angle, without losing digits near zero."""
    with mpmath.workprec(300):
        return abs(float(mpmath.mpf(sin) * mpmath.cos(angle) - mpmath.mpf(cos) * mpmath.sin(angle)))


@pytest.mark.parametrize(("base", "width"), [(10_000.0, 128), (500_000.0, 128), (1e6, 64), (2.0, 8)])
def test_angle_to_2_to_the_40(base: float, width: int) -> None:
    generator = torch.Generator().manual_seed(1)
    places = EDGES + (torch.randint(-(2**40), 2**40, (40,), generator=generator)).tolist()
    rope = RoPE(head_width=width, base=base)
    cos, sin = rope.at(torch.tensor(places)).q_table
    worst = {True: 0.0, False: 0.0}
    for row, place in enumerate(places):
        for pair in range(width // 2):
            got = float(cos[0, 0, row, pair]), float(sin[0, 0, row, pair])
            error = angle_error(*got, exact_angle(place, base, pair, width))
            near = abs(place) <= 2**36
            worst[near] = max(worst[near], error)
    print(f"base {base:g}: {worst[True]:.3g} rad up to 2**36, {worst[False]:.3g} up to 2**40")
    assert worst[False] <= 1e-6
    assert worst[True] <= 2.5e-7


def test_angle_in_float64() -> None:
    rope = RoPE(head_width=128, precision="float64")
    cos, sin = rope.at(torch.tensor([2**30])).q_table
    errors = [
        angle_error(float(cos[0, 0, 0, i]), float(sin[0, 0, 0, i]), exact_angle(2**30, 1e4, i, 128)) for i in range(64)
    ]
    assert max(errors) <= 2e-10


def test_without_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """The path of devices that have no float64, run here on the CPU."""
    monkeypatch.setattr("ropewalk.phase.WITHOUT_FLOAT64", frozenset({"cpu"}))
    cos, sin = cos_sin(phase(torch.tensor(EDGES), turns(ladder(1e4, 128))))
    worst = max(
        angle_error(float(cos[row, i]), float(sin[row, i]), exact_angle(place, 1e4, i, 128))
        for row, place in enumerate(EDGES)
        for i in range(64)
    )
    assert worst <= 1e-6


places = st.integers(-(2**40), 2**40)


@given(m=places, n=places, base=st.floats(1.5, 1e12), width=st.sampled_from([2, 8, 64, 128]))
def test_phase_is_additive_bit_for_bit(m: int, n: int, base: float, width: int) -> None:
    per_position = turns(ladder(base, width))
    of_m, of_n, of_sum = phase(torch.tensor([m, n, m + n]), per_position)
    assert torch.equal(of_m + of_n, of_sum)
    assert of_m.tolist() == [(m * turn + 2**63) % 2**64 - 2**63 for turn in per_position]


def drift(shift: int, dtype: torch.dtype, pairs: int = 10_000) -> tuple[float, float]:
    """RMS and largest change of the scores of random pairs when both positions move by `shift`."""
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 1, pairs, 128, generator=generator)
    m, n = torch.randint(0, 4096, (2, 1, pairs), generator=generator)
    rope = RoPE(head_width=128)

    def scores(by: int) -> torch.Tensor:
        turned = rope.at(m + by).rotate(q, "query").to(dtype), rope.at(n + by).rotate(k, "key").to(dtype)
        return (turned[0].double() * turned[1].double()).sum(-1) / math.sqrt(128)

    change = scores(shift) - scores(0)
    return float(change.square().mean().sqrt()), float(change.abs().max())


@pytest.mark.parametrize(("dtype", "rms", "largest"), [(torch.float32, 3e-7, 2e-6), (torch.bfloat16, 4e-3, 2.5e-2)])
def test_drift_does_not_grow_with_the_shift(dtype: torch.dtype, rms: float, largest: float) -> None:
    near, far = drift(1_000, dtype), drift(10**9, dtype)
    print(f"{dtype}: RMS {near[0]:.3g} at 1e3, {far[0]:.3g} at 1e9, ratio {far[0] / near[0]:.3f}; largest {far[1]:.3g}")
    assert far[0] <= 1.1 * near[0]
    assert max(near[0], far[0]) <= rms
    assert max(near[1], far[1]) <= largest


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", ["half", "pairs"])
def test_norms_are_kept_far_away(dtype: torch.dtype, layout: str) -> None:
    x = torch.randn(1, 2, 500, 128).to(dtype)
    places = torch.randint(0, 2**40, (500,))
    turned = RoPE(head_width=128, layout=layout).at(places).rotate(x, "query")
    before, after = x.double().norm(dim=-1), turned.double().norm(dim=-1)
    assert ((after / before - 1).abs().max().item()) <= {torch.float32: 3e-7, torch.bfloat16: 4e-3}[dtype]


def test_the_relative_law_at_far_positions() -> None:
    """q at m against k at n is q at m - n against k at 0, for any m."""
    torch.manual_seed(0)
    rope = RoPE(head_width=64, base=500_000)
    q, k = torch.randn(2, 1, 1, 1, 64)
    for start in EDGES:
        start = start if start < 2**40 else start - 100
        far = (
            rope.at(torch.tensor([start + 77])).rotate(q, "query") @ rope.at(torch.tensor([start])).rotate(k, "key").mT
        )
        near = rope.at(torch.tensor([77])).rotate(q, "query") @ k.mT
        assert_close(f"from {start}", near, far, 8e-6)
