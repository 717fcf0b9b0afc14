"""Every check can fail: what is right holds, and a target made to break its requirement does."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ropewalk.conformance import Spec, verify
from ropewalk.conformance.adapters import ours
from ropewalk.conformance.checks import every
from ropewalk.conformance.findings import NotApplicable
from ropewalk.encodings import Fire
from ropewalk.positions import Positions
from tests.conformance.targets import (
    AXES,
    BROKEN,
    DYNAMIC,
    YARN,
    Kept,
    Naive,
    Shared,
    Twisted,
    broken,
    only_rotate,
    right,
    small,
)

IDS = list(every())


def test_there_is_a_broken_target_for_each() -> None:
    assert sorted(BROKEN) == sorted(IDS)


@pytest.mark.parametrize("id", IDS)
def test_what_is_right_holds(id: str) -> None:
    result = verify(right(id), only=id)[id]
    assert result.status == "passed", result


@pytest.mark.parametrize("id", IDS)
def test_what_is_wrong_breaks(id: str) -> None:
    result = verify(broken(id), only=id)[id]
    assert result.status == "failed", result
    assert result.reproduction
    assert result.page.endswith(f"#{id.lower()}")


@pytest.mark.parametrize("id", ["N01", "N03", "C31"])
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
    assert "256 and 257" in verify(target, only="N01")["N01"].why


@pytest.mark.parametrize("exact", [False, True])
def test_it_tells_wrong_frequencies_from_a_wrong_product(exact: bool) -> None:
    """b^(-x) in float32 is off in the last places where 1 / b^x is not; with a product in float32, and in float64."""
    steps = torch.arange(0, 64, 2).float() / 64
    omega = 1 / 10_000**steps if exact else 10_000 ** (-steps)
    for product in (torch.float32, torch.float64):

        def cos_sin(built, positions, dtype=product):
            angle = (positions[..., None].to(dtype) * omega.to(dtype)).double()
            return angle.cos().float(), angle.sin().float()

        spec = Spec(head_width=64, heads=2, longest=2_000_000)
        report = verify(Twisted(Kept(), spec=spec, cos_sin=cos_sin), only="N01,N07")
        assert report["N01"].status == ("passed" if product == torch.float64 else "float32")
        assert report["N07"].status == ("passed" if exact else "float32")
        assert ("as float32 powers do" in (report["N07"].why or "")) == (not exact)
        claimed = Twisted(Kept(), spec=spec.model_copy(update={"angles": "exact"}), cos_sin=cos_sin)
        assert bool(verify(claimed, only="N01,N07").failed) == (not exact or product == torch.float32)


def test_slopes_that_are_rounded_are_not_called_shuffled() -> None:
    right = small("alibi").slopes
    rounded = Twisted(small("alibi"), slopes=lambda n: [s * (1 + 3e-6) for s in right(n)])
    assert "right but for rounding" in verify(rounded, only="C23")["C23"].why
    mixed = Twisted(small("alibi"), slopes=lambda n: sorted(right(n)))
    assert "in another order" in verify(mixed, only="C23")["C23"].why


def test_a_wrong_frequency_is_not_called_sharing() -> None:
    target = Twisted(Kept(), build=lambda dtype=None, device=None: lambda p: Naive().forward(p * 3))
    report = verify(target, only="N07,C34")
    assert [result.status for result in report.results] == ["failed", "passed"]
    whole = Twisted(Kept(), cos_sin=lambda built, p: built(p.bfloat16().long()))
    result = verify(whole, only="C34")["C34"]
    assert result.status == "passed"
    assert "do not add in one instance alone" in result.why
    assert [found.name for found in verify(Shared(), only="C34")["C34"].compared if not found.holds]


def test_neighbours_far_away_show_a_rounded_bias() -> None:
    """Of products with each position, rounded: right to 8 bits for far keys, and 0 for near ones out there."""
    slope = torch.tensor([1 / 16, 1 / 256])[:, None, None]

    def bias(built, q, k):
        return (slope * k.to(built)[None, None] - slope * q.to(built)[None, :, None]) * torch.where(
            k > q[:, None], -1, 1
        )

    target = Twisted(small("alibi"), build=lambda dtype=torch.float32, device="cpu": dtype, bias=bias)
    found = verify(target, only="N06")["N06"]
    assert found.status == "failed"
    assert found.what.startswith("built in bfloat16")
    assert found.measured == 1 / 16
    assert "[[1000000, 1000001]]" in found.reproduction


def test_positions_rounded_with_learned_weights_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights in bfloat16 are right, positions in bfloat16 are not."""
    assert verify(ours.target("fire"), only="N06")["N06"].status == "passed"

    def forward(self: Fire, at: Positions) -> tuple[Tensor, ...]:
        return self.inner, self.outer, self.offset, self.slope.abs(), self.threshold.abs()

    monkeypatch.setattr(Fire, "forward", forward)
    found = verify(ours.target("fire"), only="N06")["N06"]
    assert found.status == "failed"
    assert found.what.startswith("built in bfloat16")


@pytest.mark.parametrize(
    ("broken_as", "id", "says"),
    [
        (lambda p: p[..., :1].expand_as(p), "N12", "axis 1 of 3 turns nothing"),
        (
            lambda p: p[..., [0, 2, 1]],
            "N12",
            "pair 2 turns by axis 2, the spec says axis 1 (sections (2, 3, 3), blocks)",
        ),
    ],
)
def test_it_names_the_axis(broken_as: object, id: str, says: str) -> None:
    base = small(*AXES)
    target = only_rotate(base, lambda built, x, p: base.rotate(built, x, broken_as(p)))
    assert says in verify(target, only=id)[id].why
    # Text alone, the same number on every axis, shows nothing of it.
    assert not verify(target, only="N01,N03,N07,C01,C09,C10,C12").failed


@pytest.mark.parametrize("form", ["llama4", "ministral", "log-n"])
def test_every_form_of_temperature_holds_and_is_told_from_the_others(form: str) -> None:
    base = small("temperature", "trained=32", f"form={form}")
    assert verify(base, only="N13")["N13"].status == "passed"
    for other in {"llama4", "ministral", "log-n"} - {form}:
        twisted = Twisted(small("temperature", "trained=32", f"form={other}"), spec=base.spec)
        assert f"those of {other}, the spec says {form}" in verify(twisted, only="N13")["N13"].why
    plain = Twisted(base, without=("forward", "attend"), rotate_query=lambda built, x, p: x)
    assert "the temperature is missing" in verify(plain, only="N13")["N13"].why


@pytest.mark.parametrize(
    ("id", "why"),
    [
        ("N12", "its spec declares no sections"),
        ("N13", "its spec declares no temperature"),
        ("C36", "its spec declares no sections"),
        ("C39", "its spec declares no scaling that depends on the length"),
        ("C40", "its spec declares no indexer"),
    ],
)
def test_what_is_not_declared_is_not_asked(id: str, why: str) -> None:
    result = verify(small(), only=id)[id]
    assert (result.status, result.why) == ("not applicable", why)


def test_what_is_not_offered_is_not_asked() -> None:
    base = small()
    bare = Twisted(base, without=("move",), attend=lambda built, q, k, v, m, n: base.attend(built, q, k, v, m, n))
    report = verify(bare, only="C35,C37")
    assert [result.why for result in report.results] == ["the target offers no move", "its attend takes no documents"]
    resolved = small("rope", *DYNAMIC)
    without = Twisted(resolved, frequencies=lambda config: resolved.frequencies(config))
    assert "declare per_call, or give frequencies a `length`" in verify(without, only="C39")["C39"].why


def test_a_model_that_counts_its_cache_is_seen_after_an_eviction() -> None:
    base = small()

    def forward(built, ids, positions=None, cache=None):
        if positions is None:
            rows = 0 if cache is None else int((cache[0].read()[2].segment >= 0).sum())
            positions = torch.arange(rows, rows + ids.shape[1])[None]
        return base.forward(built, ids, positions, cache)

    counting = Twisted(base, forward=forward)
    assert verify(counting, only="C12")["C12"].status == "passed"
    result = verify(counting, only="C14")["C14"]
    assert result.status == "failed"
    assert "left out after an eviction" in result.what
    unasked = verify(Twisted(counting, without=("evict",)), only="C14")["C14"]
    assert unasked.status == "passed"
    assert "offers no evict" in unasked.why


def test_an_export_that_fails_says_where_and_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    result = verify(broken("C29"), only="C30")["C30"]
    assert result.status == "failed"
    assert "a number is read out of a tensor" in result.why
    assert "targets.py:" in result.why
    assert capfd.readouterr() == ("", "")


def test_what_was_compared_before_a_refusal_counts() -> None:
    def forward(built, ids, positions=None, cache=None):
        raise NotApplicable("it has no cache today")

    for rotate, status in ((small().rotate, "passed"), (broken("C12").rotate, "failed")):
        result = verify(Twisted(small(), forward=forward, rotate=rotate), only="C12")["C12"]
        assert result.status == status
        assert len(result.compared) == 2
    assert "no cache today" in verify(Twisted(small(), forward=forward), only="C12")["C12"].why
    alone = Twisted(small(), without=("rotate", "attend"), forward=forward)
    assert verify(alone, only="C12")["C12"].status == "not applicable"


def test_one_wrong_layout_is_told_once_and_not_by_every_check_of_angles() -> None:
    report = verify(broken("C01"), only="N1,N7,N8,C1")
    assert [result.id for result in report.failed] == ["C01"]
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
    verify(target, only="N1,N7,N8,C1,C5").raise_for_failures()


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
    report = verify(target, only="N1,N5,N7,N8,C8")
    assert {result.status for result in report.results} == {"failed", "not applicable"}
    assert report["N01"].status == report["N07"].status == "failed"


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_scores_are_judged_by_themselves(seed: int) -> None:
    """All of YaRN's gain on the query and none on the key: no query is the spec's, and every score is."""
    base = ours.target("rope", "heads=4", "head_width=64", *YARN, "arithmetic=float32", "longest=8192")
    gain = base.spec.scaling.rotary_gain
    moved = Twisted(
        base,
        without=("rotate", "forward", "cos_sin"),
        rotate_query=lambda built, x, p: base.rotate(built, x, p) * gain,
        rotate_key=lambda built, x, p: base.rotate(built, x, p) / gain,
    )
    assert verify(moved, only="C5", seed=seed)["C05"].status == "passed"


@pytest.mark.parametrize(("past", "status"), [(2**40, "passed"), (8192, "failed")])
def test_a_target_without_an_error_at_the_start_may_have_none_far_away(past: int, status: str) -> None:
    """In bfloat16 it answers in float32, and past a table its frequencies are rounded."""

    def rotate(dtype: torch.dtype, x: Tensor, positions: Tensor) -> Tensor:
        omega = 10_000.0 ** (-torch.arange(0, 64, 2, dtype=torch.float64) / 64)
        if dtype == torch.bfloat16 and int(positions.max()) > past:
            omega = omega.bfloat16().double()
        angle = positions[:, None, :, None].double() * omega
        cos, sin = angle.cos().float(), angle.sin().float()
        a, b = x.float().chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def build(dtype: torch.dtype = torch.float32, device: str = "cpu") -> torch.dtype:
        return dtype

    target = SimpleNamespace(spec=Spec(), build=build, rotate=rotate)
    assert verify(target, only="N04")["N04"].status == status
