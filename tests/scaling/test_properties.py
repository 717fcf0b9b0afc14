"""What holds for every scaling and all its parameters."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk.scaling import (
    NTK,
    Dynamic,
    Linear,
    Llama3,
    LongRoPE,
    Proportional,
    YaRN,
    from_hf,
    ladder,
    to_hf_v4,
    turns,
)

FACTORS = st.one_of(st.just(1.0), st.floats(1, 4096), st.integers(1, 64).map(float))
TRAINED = st.integers(256, 1 << 20)
BASES = st.floats(500.0, 1e9)
WIDTHS = st.integers(2, 64).map(lambda half: 2 * half)

linears = st.builds(Linear, factor=FACTORS)
ntks = st.builds(NTK, factor=FACTORS)
dynamics = st.builds(Dynamic, factor=FACTORS, trained=TRAINED, length=st.integers(1, 1 << 22))
yarns = st.builds(
    YaRN,
    factor=FACTORS,
    trained=TRAINED,
    beta_fast=st.floats(8, 64),
    beta_slow=st.floats(0.5, 4),
    truncate=st.booleans(),
    dialect=st.sampled_from(["hf", "deepseek"]),
    attention_factor=st.none() | st.floats(0.5, 4),
    mscale=st.none() | st.floats(0, 2),
    mscale_all_dim=st.none() | st.floats(0, 2),
)
paper_yarns = st.builds(YaRN, factor=FACTORS, trained=TRAINED, ramp=st.just("paper"), dialect=st.just("paper"))
llama3s = st.builds(Llama3, factor=FACTORS, trained=TRAINED, low=st.floats(0.1, 4), high=st.floats(4.5, 64))
proportionals = st.builds(Proportional, fraction=st.floats(0.5, 1), factor=FACTORS)


@st.composite
def longropes(draw, width=None):
    count = (width or draw(WIDTHS)) // 2
    lists = st.lists(st.floats(1, 1000), min_size=count, max_size=count).map(sorted)
    named = draw(st.sampled_from(["factor", "extended", "attention_factor"]))
    trained = draw(TRAINED)
    extended = st.integers(trained, 4096 * trained)
    value = {"factor": FACTORS, "extended": extended, "attention_factor": st.floats(0.5, 4)}[named]
    return LongRoPE(
        short=draw(lists),
        long=draw(lists),
        trained=trained,
        length=draw(st.integers(1, 1 << 22)),
        **{named: draw(value)},
    )


@given(st.data(), BASES, WIDTHS)
@settings(max_examples=300, deadline=None)
def test_between_divided_and_plain_monotone_and_finite(data, base, width):
    scaling = data.draw(
        st.one_of(linears, ntks, dynamics, yarns, paper_yarns, llama3s, proportionals, longropes(width))
    )
    plain, found = ladder(base, width), scaling.frequencies(base, width)
    assert len(found) == width // 2
    assert all(x.is_finite() and x >= 0 for x in found)
    assert all(a >= b for a, b in pairwise(found)), "wavelengths must not fall"
    assert all(-(2**63) <= turn < 2**63 for turn in turns(found))
    if isinstance(scaling, Dynamic):
        deepest = 1 + scaling.factor * max(0, scaling.length / scaling.trained - 1)
    elif isinstance(scaling, LongRoPE):
        deepest = max(scaling.short + scaling.long)
    else:
        deepest = scaling.factor
    slack = 1 + 1e-12
    for before, after in zip(plain, found, strict=True):
        assert float(after) <= float(before)
        assert float(after) * slack >= float(before) / deepest or after == 0
    assert math.isfinite(scaling.rotary_gain)
    assert math.isfinite(scaling.logit_gain)
    assert scaling.rotary_gain > 0
    assert scaling.logit_gain >= 1


@given(BASES, WIDTHS, TRAINED)
@settings(deadline=None)
def test_factor_one_is_the_plain_ladder_to_the_last_digit(base, width, trained):
    plain = ladder(base, width)
    for scaling in (
        Linear(factor=1),
        NTK(factor=1),
        YaRN(factor=1, trained=trained),
        YaRN(factor=1, trained=trained, truncate=False),
        YaRN(factor=1, trained=trained, ramp="paper"),
        Llama3(factor=1, trained=trained),
        Proportional(fraction=1),
        Dynamic(factor=1, trained=trained, length=trained),
        LongRoPE(short=(1.0,) * (width // 2), long=(2.0,) * (width // 2), trained=trained, factor=1, length=trained),
    ):
        assert scaling.frequencies(base, width) == plain
        assert (scaling.rotary_gain, scaling.logit_gain) == (1, 1)


@given(BASES, WIDTHS, TRAINED, FACTORS)
@settings(deadline=None)
def test_high_band_is_untouched_and_low_band_divided(base, width, trained, factor):
    plain = ladder(base, width)
    for scaling, low, high in (
        (YaRN(factor=factor, trained=trained, ramp="paper"), 1, 32),
        (Llama3(factor=factor, trained=trained), 1, 4),
        # The code ramp rounds its ends outwards by up to one index.
        (YaRN(factor=factor, trained=trained), base ** (-2 / width), 32 * base ** (2 / width)),
    ):
        for before, after in zip(plain, scaling.frequencies(base, width), strict=True):
            rotations = trained * float(before) / (2 * math.pi)
            if rotations > high * 1.0001:
                assert after == before
            if rotations < low * 0.9999:
                assert float(after) == pytest.approx(float(before) / factor, rel=1e-14)


@given(st.one_of(linears, dynamics, yarns, llama3s, proportionals, longropes()), st.floats(1.5, 1e12))
@settings(deadline=None)
def test_hf_round_trip(scaling, base):
    parameters = scaling.to_hf(base)
    longest = scaling.longest or getattr(scaling, "extended", None) or 1 << 20
    read = from_hf(parameters, longest)
    assert read.base == base
    assert read.fraction is None
    assert read.scaling.to_hf(base) == parameters
    assert read.scaling.rotary_gain == scaling.rotary_gain
    if isinstance(scaling, YaRN):
        assert from_hf(parameters, dialect=scaling.dialect).scaling.logit_gain == scaling.logit_gain
        assert _ignoring_gains(read.scaling) == _ignoring_gains(scaling)
    elif isinstance(scaling, LongRoPE):
        assert (read.scaling.short, read.scaling.long) == (scaling.short, scaling.long)
        assert read.scaling.trained == scaling.trained
    elif isinstance(scaling, Dynamic):
        assert read.scaling.for_length(scaling.length) == scaling
    else:
        assert read.scaling == scaling
    if not isinstance(scaling, Proportional):
        legacy, theta = to_hf_v4(scaling, base)
        assert "rope_theta" not in legacy
        assert from_hf({**legacy, "rope_theta": theta}, longest) == read


def _ignoring_gains(yarn):
    return yarn.model_dump(exclude={"dialect", "attention_factor", "mscale", "mscale_all_dim"})


@given(ntks, BASES, WIDTHS)
@settings(deadline=None)
def test_ntk_round_trip_is_a_larger_theta(scaling, base, width):
    theta = scaling.scaled_base(base, width)
    if theta > 10**12:
        with pytest.raises(ValueError, match="past 1e12"):
            scaling.to_hf(base, width)
        return
    read = from_hf(scaling.to_hf(base, width))
    assert read.scaling is None
    assert read.base == float(theta)
    for ours, theirs in zip(scaling.frequencies(base, width), ladder(read.base, width), strict=True):
        assert float(ours) == pytest.approx(float(theirs), rel=1e-15)


@given(st.one_of(linears, ntks, dynamics, yarns, paper_yarns, llama3s, proportionals, longropes()))
@settings(deadline=None)
def test_json_round_trip_hash_and_print(scaling):
    again = type(scaling).model_validate_json(scaling.model_dump_json())
    assert again == scaling
    assert hash(again) == hash(scaling)
    assert str(scaling).startswith(scaling.kind)
    assert len(str(scaling)) < 160
