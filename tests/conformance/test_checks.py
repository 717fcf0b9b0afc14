"""Every check can fail: what is right holds, and a target made to break its requirement does."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk.conformance import Spec, verify
from ropewalk.conformance.checks import every
from tests.conformance.targets import BROKEN, Kept, Twisted, broken, only_rotate, right, small

IDS = list(every())


def test_there_is_a_broken_target_for_each() -> None:
    assert sorted(BROKEN) == sorted(IDS)


@pytest.mark.parametrize("id", IDS)
def test_what_is_right_holds(id: str) -> None:
    result = verify(right(id), only=id)[id]
    assert result.status == "held", result


@pytest.mark.parametrize("id", IDS)
def test_what_is_wrong_breaks(id: str) -> None:
    result = verify(broken(id), only=id)[id]
    assert result.status == "broken", result
    assert result.reproduction
    assert result.page.endswith(f"#{id.lower()}")


@pytest.mark.parametrize("id", ["N01", "N02", "N11", "N03", "C31"])
def test_it_says_from_which_position_on(id: str) -> None:
    result = verify(broken(id), only=id)[id]
    assert result.first_position is not None
    assert result.first_position > 0, "position 0 is always right"
    assert result.measured > result.bound


CAUSES = {
    "base 10,000": (Spec(head_width=16, heads=2, base=500_000.0), {}),
    "rounded to bfloat16": (Spec(head_width=16, heads=2), {"dtype": torch.bfloat16}),
    "scaling was not applied": (
        Spec(head_width=16, heads=2, scaling={"kind": "yarn", "factor": 4, "trained": 512}),
        {},
    ),
}


@pytest.mark.parametrize("words", CAUSES)
def test_it_names_a_well_known_mistake(words: str) -> None:
    spec, cast = CAUSES[words]
    target = Twisted(Kept(), spec=spec, build=lambda dtype=None, device=None: Kept().build(**cast))
    assert words in (verify(target, only="N07")["N07"].why or "")


def test_it_names_an_upside_down_ramp() -> None:
    from ropewalk.conformance import oracles

    spec = Spec(head_width=32, heads=2, scaling={"kind": "yarn", "factor": 4, "trained": 512}, arithmetic="exact")
    plain = oracles.frequencies(spec.model_copy(update={"scaling": None}))
    omega = [p + p / 4 - y for p, y in zip(plain, oracles.frequencies(spec), strict=True)]

    def cos_sin(built, positions):
        angle = oracles.angles(positions, tuple(omega))
        return angle.cos(), angle.sin()

    target = Twisted(Kept(), spec=spec, cos_sin=cos_sin)
    assert "upside down" in verify(target, only="N07")["N07"].why


def test_it_names_positions_that_fall_together() -> None:
    target = Twisted(Kept(), cos_sin=lambda built, p: built(p.bfloat16().long()))
    assert "256 and 257" in verify(target, only="N11")["N11"].why


def test_one_wrong_layout_is_told_once_and_not_by_every_check_of_angles() -> None:
    report = verify(broken("C01"), only="N1,N2,N7,N8,N11,C1")
    assert [result.id for result in report.broken] == ["C01"]
    assert "layout is pairs" in report["C01"].why


def test_the_other_way_round_is_named() -> None:
    base = small()
    target = only_rotate(base, lambda built, x, p: base.rotate(built, x, -p))
    assert "other way" in verify(target, only="C01")["C01"].why


@settings(max_examples=12)
@given(
    width=st.sampled_from([4, 16, 64]),
    base=st.floats(100, 1e7),
    layout=st.sampled_from(["half", "pairs"]),
    factor=st.floats(1.5, 32),
    kind=st.sampled_from(["linear", "ntk", "yarn", "llama3"]),
)
def test_ours_holds_whatever_the_settings(width: int, base: float, layout: str, factor: float, kind: str) -> None:
    settings = [f"base={base}", f"layout={layout}", f"scaling.kind={kind}", f"scaling.factor={factor}"]
    if kind in ("yarn", "llama3"):
        settings.append("scaling.trained=65536")
    from ropewalk.conformance.adapters import ours

    try:
        target = ours.target("rope", "heads=1", f"head_width={width}", *settings)
    except ValueError:  # a ramp that has no place on so short a ladder
        return
    verify(target, only="N1,N2,N7,N8,C1,C5").raise_for_failures()


@settings(max_examples=10)
@given(st.integers(10, 2**36), st.floats(1e-5, 1.0))
def test_an_angle_off_by_more_than_the_bound_is_seen_wherever_it_is(position: int, off: float) -> None:
    from ropewalk.conformance import oracles

    spec = Spec(head_width=8, heads=1, arithmetic="exact")
    positions = torch.tensor([[position]])
    angle = oracles.angles(positions, oracles.frequencies(spec))
    errors = oracles.angle_errors((angle + off).cos(), (angle + off).sin(), positions, spec)
    assert float(errors.min()) == pytest.approx(off, rel=1e-6)


def test_a_vector_without_an_angle_is_not_right() -> None:
    from ropewalk.conformance import oracles

    nothing = torch.zeros(1, 1, 4)
    errors = oracles.angle_errors(nothing, nothing, torch.tensor([[3]]), Spec(head_width=8, heads=1))
    assert float(errors.min()) == math.pi


def test_not_a_number_is_broken() -> None:
    target = Twisted(Kept(), cos_sin=lambda built, p: tuple(part * math.nan for part in built(p)))
    report = verify(target, only="N1,N2,N5,N7,N8,C8")
    assert {result.status for result in report.results} == {"broken", "not applicable"}
    assert report["N01"].status == report["N07"].status == "broken"
