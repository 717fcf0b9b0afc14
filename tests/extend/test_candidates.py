"""Candidates against the formulas they are named for, written out again as scalar expressions."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

from ropewalk.extend.candidates import Candidate, Rope, formulas, without
from ropewalk.scaling import Llama3, LongRoPE, YaRN

BASE, WIDTH, L, N = 10_000.0, 64, 2048, 8192
ROPE = Rope(BASE, WIDTH, L, N)
FOUND = {one.name: one for one in formulas(ROPE)}
PLAIN = [BASE ** (-2 * i / WIDTH) for i in range(WIDTH // 2)]
S = N / L
GAIN = 0.1 * math.log(4) + 1
# The first and last pair of YaRN's ramp for this base, width and length: 32 turns and 1 turn.
FIRST = math.floor(WIDTH * math.log(L / (32 * 2 * math.pi)) / (2 * math.log(BASE)))
LAST = math.ceil(WIDTH * math.log(L / (2 * math.pi)) / (2 * math.log(BASE)))


def frequencies(one: Candidate) -> list[float]:
    assert one.scaling is not None
    return [float(omega) for omega in one.scaling.for_length(N).frequencies(BASE, WIDTH)]


def theta(base: float) -> list[float]:
    return [base ** (-2 * i / WIDTH) for i in range(WIDTH // 2)]


def share(i: int) -> float:
    return min(max((i - FIRST) / (LAST - FIRST), 0), 1)


def published(omega: float) -> float:
    kept = min(max((L * omega / (2 * math.pi) - 1) / 31, 0), 1)
    return kept * omega + (1 - kept) * omega / S


WANT = {
    "linear": ([omega / S for omega in PLAIN], 1),
    "ntk": (theta(BASE * S ** (64 / 62)), 1),
    "dynamic base": (theta(BASE * (S * N / L - (S - 1)) ** (64 / 62)), 1),
    "gradient base": (theta(BASE ** (math.log(N / (2 * math.pi)) / math.log(L / (2 * math.pi)))), 1),
    "yarn": ([omega * (1 - share(i)) + omega / S * share(i) for i, omega in enumerate(PLAIN)], GAIN),
    "yarn revised": ([omega / (share(i) * S + 1 - share(i)) for i, omega in enumerate(PLAIN)], GAIN),
    "yarn paper": ([published(omega) for omega in PLAIN], GAIN),
    "mrrope": (
        [
            omega / S ** ((j := min(max(i - FIRST, 0), LAST - FIRST)) * (j + 1) / ((LAST - FIRST) * (LAST - FIRST + 1)))
            for i, omega in enumerate(PLAIN)
        ],
        GAIN,
    ),
    "gain only": (PLAIN, GAIN),
}


@pytest.mark.parametrize("name", WANT)
def test_a_candidate_is_its_formula(name: str) -> None:
    omegas, gain = WANT[name]
    one = FOUND[name]
    assert frequencies(one) == pytest.approx(omegas, rel=1e-9)
    assert one.scaling is not None
    assert one.scaling.rotary_gain == one.gain == pytest.approx(gain)
    assert one.factor == pytest.approx(max(a / b for a, b in zip(PLAIN, omegas, strict=True)))


@pytest.mark.parametrize("name", ["yarn", "yarn paper", "yarn revised"])
def test_without_its_gain_a_ramp_stays(name: str) -> None:
    assert frequencies(FOUND[f"{name} without gain"]) == frequencies(FOUND[name])
    assert FOUND[f"{name} without gain"].gain == 1


def test_an_assumed_length_reaches_the_same_end() -> None:
    for name, trained in (("yarn from 2L/3", 1365), ("yarn from L/2", 1024)):
        scaling = FOUND[name].scaling
        assert scaling is not None
        assert scaling.trained == trained
        assert scaling.factor * trained == pytest.approx(N)


def test_clipping_stops_what_never_finished_a_turn() -> None:
    slow = [i for i, omega in enumerate(PLAIN) if L * omega < 2 * math.pi]
    assert len(slow) == 11
    hard, soft = frequencies(FOUND["hard clip"]), frequencies(FOUND["soft clip"])
    for i, omega in enumerate(PLAIN):
        if i not in slow:
            assert hard[i] == soft[i] == pytest.approx(omega)
        else:
            assert hard[i] * 2**20 < 1e-5
            assert soft[i] == pytest.approx(omega * (1 + math.cos(math.pi * (i - slow[0]) / 10)) / 2, abs=2e-9 * omega)


def test_what_is_no_scaling_says_so() -> None:
    assert FOUND["leave"].scaling is None
    assert {one.name for one in FOUND.values() if one.text != "whole"} == {"crop", "sinks"}
    assert "crop" in FOUND["sinks"].about


def test_at_the_trained_length_nothing_stands_twice() -> None:
    names = [one.name for one in formulas(Rope(BASE, WIDTH, L, L))]
    assert names == ["leave", "crop", "sinks", "yarn from 2L/3", "yarn from L/2", "soft clip", "hard clip"]
    missing = without(Rope(BASE, WIDTH, L, L))
    assert {*names, *missing} == {*FOUND}
    assert {*missing.values()} == {"the same as leave"}


@pytest.mark.parametrize(
    ("rope", "missing"),
    [
        (Rope(1e6, 128, 4096, 262_144), {"gradient base": "its factor is "}),
        (Rope(1e4, 64, 1024, 131_072), {"dynamic base": "its factor is 1.626e+04", "gradient base": "its factor is "}),
        (Rope(9e11, 128, L, 4 * L), {"ntk": "its base is 3.68e+12", "base and yarn": "its base is 1.82e+12"}),
        (Rope(1e4, 2, L, N), {"ntk": "a base changes nothing", "base and yarn": "a base changes nothing"}),
        (Rope(1e4, 64, 4, 16), {"yarn": "no ramp", "yarn from L/2": "no ramp", "gradient base": "no meaning"}),
        (Rope(1e4, 4, 1_000_000, 2_000_000), {"soft clip": "fewer than 2", "hard clip": "fewer than 2"}),
    ],
)
def test_what_a_rotation_does_not_have_is_named(rope: Rope, missing: dict[str, str]) -> None:
    found = without(rope)
    for name, why in missing.items():
        assert why in found[name]
    assert {*found, *(one.name for one in formulas(rope))} == {*FOUND}


def test_a_checkpoint_with_a_scaling_is_left_with_it() -> None:
    own = Llama3(factor=8, trained=1024)
    found = {one.name: one for one in formulas(Rope(BASE, WIDTH, 1024, N, own))}
    assert found["leave"].factor == pytest.approx(8)
    alone = found["gain only"].scaling
    assert isinstance(alone, LongRoPE)
    assert alone.short == alone.long
    want = [float(omega) for omega in own.frequencies(BASE, WIDTH)]
    assert frequencies(found["gain only"]) == pytest.approx(want, rel=1e-12)


def test_candidates_need_no_torch() -> None:
    code = "import sys, ropewalk.extend.candidates; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_yarn_keeps_the_settings_that_the_checkpoint_has() -> None:
    """DeepSeek-V3's gain is on scores, as the square; on cos and sin two gains cancel."""
    own = YaRN(factor=40, trained=4096, dialect="deepseek", mscale=1.0, mscale_all_dim=1.0, truncate=False)
    rope = Rope(BASE, WIDTH, 4096, 32_768, own, 163_840)
    found = {one.name: one.scaling for one in formulas(rope)}
    for name, factor in (("yarn", 8), ("yarn from L/2", 16)):
        one = found[name]
        assert isinstance(one, YaRN)
        assert (one.factor, one.truncate, one.rotary_gain) == (factor, False, 1.0)
        assert one.logit_gain == pytest.approx((0.1 * math.log(factor) + 1) ** 2)
    assert "yarn without gain" not in found, "it is yarn, whose gain is elsewhere"
    assert without(rope)["yarn without gain"] == "the same as yarn"
    # A list of divisors would lose the gain on scores.
    assert not {"gain only", "own and linear", "own and yarn"} & {*found}
    ramp = found["llama3"]
    assert isinstance(ramp, Llama3)
    kept = {one.name: one.scaling for one in formulas(Rope(BASE, WIDTH, L, N, Llama3(factor=2, trained=L, high=8.0)))}
    assert isinstance(ramp := kept["llama3"], Llama3)
    assert (ramp.factor, ramp.high) == (4, 8.0)


def test_a_gain_on_scores_tells_two_candidates_apart() -> None:
    """At its own length DeepSeek's YaRN and one without any gain turn by the same angles."""
    own = YaRN(factor=4, trained=L, dialect="deepseek", mscale=1.0, mscale_all_dim=1.0)
    found = {one.name: one for one in formulas(Rope(BASE, WIDTH, L, N, own, N))}
    assert found["leave"].gain == found["yarn paper without gain"].gain == 1
    unlike = YaRN(factor=4, trained=L, attention_factor=1.0)
    assert [round(x, 9) for x in Rope(BASE, WIDTH, L, N, own).divisors(own)] == [
        round(x, 9) for x in Rope(BASE, WIDTH, L, N).divisors(unlike)
    ]


def test_its_own_scaling_is_stretched_too() -> None:
    """Llama 3.1's, twice as far: nothing is turned faster than it was trained to."""
    own = Llama3(factor=8, trained=8192)
    rope = Rope(500_000.0, 128, 8192, 262_144, own, 131_072)
    plain = [500_000.0 ** (-2 * i / 128) for i in range(64)]
    now = [float(omega) for omega in own.frequencies(500_000.0, 128)]
    found = {one.name: one for one in formulas(rope)}
    for name, gain in (("own and linear", 1.0), ("own and yarn", 0.1 * math.log(2) + 1)):
        scaling = found[name].scaling
        assert isinstance(scaling, LongRoPE)
        assert scaling.rotary_gain == pytest.approx(gain)
        for i, (divisor, omega) in enumerate(zip(scaling.long, now, strict=True)):
            kept = 0.0 if name == "own and linear" else min(max((131_072 * omega / (2 * math.pi) - 1) / 31, 0), 1)
            assert plain[i] / divisor == pytest.approx(kept * omega + (1 - kept) * omega / 2)
    within = Rope(500_000.0, 128, 8192, 131_072, own, 131_072)
    assert not any(one.name.startswith("own") for one in formulas(within))
    assert not any(one.name.startswith("own") for one in formulas(ROPE))
