"""Sixty digits are sixty digits: against mpmath at 300 bits."""

from __future__ import annotations

import decimal
from decimal import Decimal

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.scaling import NTK, YaRN, ladder, turns
from ropewalk.scaling.exact import PI, powers

WIDTHS = st.integers(1, 128).map(lambda half: 2 * half)
BASES = st.floats(1.0001, 1e12)


@pytest.fixture(autouse=True)
def _bits():
    with mpmath.workprec(300):
        yield


def exactly(number: Decimal) -> mpmath.mpf:
    return mpmath.mpf(str(number))


def test_pi():
    assert len(PI.as_tuple().digits) == 80
    assert abs(exactly(PI) - mpmath.pi) < mpmath.mpf(10) ** -79


@given(BASES, WIDTHS)
def test_ladder_to_59_digits_and_turns_to_the_last_bit(base, width):
    with mpmath.workprec(300):
        found = ladder(base, width)
        assert len(found) == width // 2
        expected = [mpmath.power(mpmath.mpf(base), -mpmath.mpf(2 * i) / width) for i in range(width // 2)]
        for ours, theirs in zip(found, expected, strict=True):
            assert abs(exactly(ours) / theirs - 1) < mpmath.mpf(10) ** -59
            assert float(ours) == float(mpmath.nstr(theirs, 50))
        nearest = [int(mpmath.nint(omega / (2 * mpmath.pi) * 2**64)) for omega in expected]
        assert list(turns(found)) == nearest


@given(BASES, WIDTHS.filter(lambda width: width >= 4), st.floats(1, 4096))
def test_ntk_to_57_digits(base, width, factor):
    with mpmath.workprec(300):
        for i, ours in enumerate(NTK(factor=factor).frequencies(base, width)):
            plain = mpmath.power(mpmath.mpf(base), -mpmath.mpf(2 * i) / width)
            theirs = plain * mpmath.power(mpmath.mpf(factor), -mpmath.mpf(2 * i) / (width - 2))
            assert abs(exactly(ours) / theirs - 1) < mpmath.mpf(10) ** -57


def test_powers_of_an_odd_width_have_one_more():
    assert [float(x) for x in powers(Decimal(10_000), 5)] == pytest.approx([1, 10_000**-0.4, 10_000**-0.8], rel=1e-15)
    assert powers(Decimal(10_000), 6) == ladder(10_000.0, 6)
    assert powers(Decimal(10_000), 1) == (1,)


def test_angle_at_the_farthest_position():
    """What 60 digits are for: a frequency as a double is 6e-5 rad off at 2**40, its turns are not."""
    farthest = 2**40
    with mpmath.workprec(300):
        for omega, turn in zip(ladder(500_000.0, 128), turns(ladder(500_000.0, 128)), strict=True):
            true = exactly(omega) * farthest
            ours = mpmath.mpf(turn * farthest) * 2 * mpmath.pi / 2**64
            assert abs(true - ours) < 2e-7


def test_turns_wrap_and_round():
    half_turn = [PI, 3 * PI]
    assert turns(half_turn) == (-(2**63), -(2**63))
    assert turns([0, 0.0, -0.0]) == (0, 0, 0)
    assert turns([float(Decimal(1) / 3)]) == turns([Decimal(float(Decimal(1) / 3))])
    assert turns([-1.0])[0] == -turns([1.0])[0]
    for bad in (float("nan"), float("inf"), Decimal("NaN")):
        with pytest.raises(ValueError, match="not finite"):
            turns([bad])


def test_immune_to_the_callers_decimal_context():
    scaling = YaRN(factor=4, trained=8192)
    expected = ladder(1e6, 96), turns(ladder(1e6, 96)), scaling.frequencies(1e6, 96)
    with decimal.localcontext(decimal.Context(prec=5, rounding=decimal.ROUND_UP, Emin=-3, Emax=3, traps=[])):
        assert (ladder(1e6, 96), turns(ladder(1e6, 96)), scaling.frequencies(1e6, 96)) == expected


@pytest.mark.parametrize("base", [1, 1.0, 0, -3, 1.1e12, float("nan"), float("inf"), "10000", None, True])
def test_base_out_of_range(base):
    with pytest.raises(ValueError, match=r"outside \(1, 1e12\]; give the RoPE base"):
        ladder(base, 64)


@pytest.mark.parametrize("width", [0, -2, 63, 64.0, "64", None, True, 65_538])
def test_width_out_of_range(width):
    with pytest.raises(ValueError, match=r"not an even integer in \[2, 65,536\]"):
        ladder(10_000.0, width)


@pytest.mark.parametrize("base", [1.0000001, 2, 10_000, 1e12])
def test_base_within_range(base):
    assert ladder(base, 2) == (1,)
