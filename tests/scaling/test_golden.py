"""Frequencies against a frozen table, and against the papers' equations written separately."""

from __future__ import annotations

import math

import pytest

from ropewalk.scaling import NTK, Dynamic, Linear, Llama3, LongRoPE, YaRN, ladder, yarn
from tests.scaling import oracles
from tests.scaling.rows import NAMES, rows

PLACES = (0, 8, 12, 16, 20, 24, 31)
# Base 10000, width 64, trained at 2048, factor 8.
GOLDEN = {
    "plain": (None, "1.000000e+00 1.000000e-01 3.162278e-02 1.000000e-02 3.162278e-03 1.000000e-03 1.333521e-04"),
    "linear": (
        Linear(factor=8),
        "1.250000e-01 1.250000e-02 3.952847e-03 1.250000e-03 3.952847e-04 1.250000e-04 1.666902e-05",
    ),
    "ntk": (
        NTK(factor=8),
        "1.000000e+00 5.847154e-02 1.413894e-02 3.418921e-03 8.267254e-04 1.999096e-04 1.666902e-05",
    ),
    "yarn": (
        YaRN(factor=8, trained=2048),
        "1.000000e+00 1.000000e-01 2.310895e-02 4.615385e-03 6.081303e-04 1.250000e-04 1.666902e-05",
    ),
    "yarn untruncated": (
        YaRN(factor=8, trained=2048, truncate=False),
        "1.000000e+00 1.000000e-01 2.257809e-02 4.233133e-03 4.194592e-04 1.250000e-04 1.666902e-05",
    ),
    "yarn paper": (
        YaRN(factor=8, trained=2048, ramp="paper"),
        "1.000000e+00 1.000000e-01 1.226045e-02 1.887760e-03 3.980287e-04 1.250000e-04 1.666902e-05",
    ),
    "llama3": (
        Llama3(factor=8, trained=2048),
        "1.000000e+00 1.000000e-01 3.162278e-02 7.840189e-03 4.236393e-04 1.250000e-04 1.666902e-05",
    ),
}


def golden_holds(name):
    scaling, expected = GOLDEN[name]
    found = ladder(10_000.0, 64) if scaling is None else scaling.frequencies(10_000.0, 64)
    return " ".join(f"{float(found[i]):.6e}" for i in PLACES) == expected


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_vectors(name):
    assert golden_holds(name)


def test_golden_gains_and_dynamic_base():
    assert YaRN(factor=8, trained=2048).rotary_gain == pytest.approx(1.2079441542, abs=5e-11)
    phi = LongRoPE(short=(1.0,) * 32, long=(2.0,) * 32, trained=2048, factor=8)
    assert phi.rotary_gain == pytest.approx(1.1281521496, abs=5e-11)
    dynamic = Dynamic(factor=8, trained=2048).for_length(16_384)
    assert float(dynamic.scaled_base(10_000.0, 64)) == pytest.approx(649405.526, abs=5e-4)
    # Every other scaling leaves the scores as they are.
    for scaling in (Linear(factor=8), NTK(factor=8), dynamic, Llama3(factor=8, trained=2048)):
        assert (scaling.rotary_gain, scaling.logit_gain) == (1.0, 1.0)


def test_another_engines_ntk_is_another_function():
    ours = NTK(factor=8).frequencies(10_000.0, 64)
    theirs = [oracles.vllm_ntk(i, 10_000.0, 64, 8) for i in range(32)]
    assert [f"{theirs[i]:.6e}" for i in (0, 16)] == ["9.370838e-01", "3.313092e-03"]
    assert max(abs(float(a) / b - 1) for a, b in zip(ours, theirs, strict=True)) > 0.06


@pytest.mark.parametrize("width", [32, 80, 128])
@pytest.mark.parametrize("base", [10_000.0, 150_000.0, 1e6])
@pytest.mark.parametrize("name", NAMES)
def test_equals_the_papers_equations(name, base, width):
    scaling, oracle = rows(width)[name]
    found = [float(x) for x in scaling.frequencies(base, width)]
    assert found == pytest.approx([oracle(i, base, width) for i in range(width // 2)], rel=2e-12, abs=0)


def test_llama3_is_the_papers_ramp():
    llama3 = Llama3(factor=8, trained=8192).frequencies(500_000.0, 128)
    assert llama3 == YaRN(factor=8, trained=8192, beta_slow=1, beta_fast=4, ramp="paper").frequencies(500_000.0, 128)


@pytest.mark.parametrize(
    ("settings", "rotary", "logit"),
    [
        ({}, 1.2772588722, 1.0),
        ({"attention_factor": 1.0}, 1.0, 1.0),
        ({"attention_factor": 1.3, "mscale": 2, "mscale_all_dim": 3}, 1.3, 1.0),
        ({"mscale": 0.707}, 1.2772588722, 1.0),
        ({"mscale_all_dim": 0.707}, 1.2772588722, 1.0),
        ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0, 1.0),
        ({"mscale": 1.0, "mscale_all_dim": 0.0}, 1.2772588722, 1.0),
        ({"dialect": "deepseek"}, 1.2772588722, 1.0),
        ({"dialect": "deepseek", "mscale": 0.707}, 1.1960220226, 1.0),
        ({"dialect": "deepseek", "mscale_all_dim": 0.707}, 1.2772588722 / 1.1960220226, 1.1960220226**2),
        ({"dialect": "deepseek", "mscale": 1.0, "mscale_all_dim": 1.0}, 1.0, 1.2772588722**2),
        ({"dialect": "deepseek", "attention_factor": 1.0, "mscale_all_dim": 1.0}, 1.0, 1.2772588722**2),
        ({"dialect": "paper"}, 1.2772588722, 1.0),
    ],
)
def test_yarn_gains_in_each_dialect(settings, rotary, logit):
    yarn16 = YaRN(factor=16, trained=4096, **settings)
    assert yarn16.rotary_gain == pytest.approx(rotary, rel=1e-9)
    assert yarn16.logit_gain == pytest.approx(logit, rel=1e-9)


def test_gains_equal_their_oracles_and_stay_moderate():
    for factor in (1, 1.5, 4, 64, 4096):
        assert YaRN(factor=factor, trained=4096).rotary_gain == pytest.approx(oracles.yarn_gain(factor), rel=1e-14)
        phi = LongRoPE(short=(1,), long=(1,), trained=4096, factor=factor)
        assert phi.rotary_gain == pytest.approx(oracles.longrope_gain(factor, 4096), rel=1e-14)
        assert 0.5 <= phi.rotary_gain <= 4
    ratio = LongRoPE(short=(1,), long=(1,), trained=4096, extended=131_072)
    assert ratio.rotary_gain == LongRoPE(short=(1,), long=(1,), trained=4096, factor=32).rotary_gain
    assert LongRoPE(short=(1,), long=(1,), trained=4096, attention_factor=1.19).rotary_gain == 1.19


@pytest.mark.parametrize(
    ("mutate", "caught_by"),
    [
        (lambda omega, factor, kept: _blend(omega, factor, 1 - kept), "yarn"),  # inverted ramp
        (lambda omega, factor, kept: _blend(omega, factor, kept**2 if 0 < kept < 1 else kept), "yarn"),
        (lambda omega, factor, kept: _blend(omega, factor + 1, kept), "yarn"),
        (lambda omega, factor, kept: omega if kept > 0.5 else omega / factor, "yarn paper"),  # no blending
    ],
)
def test_a_changed_formula_is_caught(monkeypatch, mutate, caught_by):
    monkeypatch.setattr(yarn, "blend", mutate)
    assert not golden_holds(caught_by)


_blend = yarn.blend


def test_the_fastest_stays_and_the_slowest_is_divided():
    found, plain = NTK(factor=8).frequencies(10_000.0, 64), ladder(10_000.0, 64)
    assert found[0] == plain[0]
    assert math.isclose(plain[-1] / found[-1], 8, rel_tol=1e-25)
