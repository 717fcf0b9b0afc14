"""The runner: what it picks, what it says, and that it leaves everything as it was."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from ropewalk.conformance import Spec, Target, find, verify
from ropewalk.conformance.checks import every
from ropewalk.conformance.findings import Findings
from ropewalk.conformance.run import chosen
from ropewalk.conformance.spec import MERGED
from tests.conformance.targets import Kept, Twisted, broken, only_rotate, small


def test_ids_are_read_short_and_long() -> None:
    assert [check.id for check in chosen("c4, N1")] == ["N01", "C04"]
    assert [check.id for check in chosen(["N10", "C34"])] == ["N10", "C34"]
    assert [check.id for check in chosen(None)] == list(every())


@pytest.mark.parametrize("text", ["N99", "X1", "N", ""])
def test_an_unknown_id_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="no requirement"):
        chosen(text)


@pytest.mark.parametrize(("old", "into"), MERGED.items())
def test_an_id_that_was_given_up_leads_on(old: str, into: str) -> None:
    with pytest.raises(ValueError, match=f"{old} is part of {into} now; write {into}"):
        chosen(old)


def test_what_cannot_be_taken_is_not_applicable_with_a_reason() -> None:
    report = verify(Kept(), only="C05,C12,C24,C27,N09")
    assert report["C12"].status == report["C24"].status == "not applicable"
    assert "offers no rotation or bias or forward" in report["C12"].why
    assert "this is rope" in report["C24"].why
    assert report["C27"].status == "passed"


def test_a_target_without_anything_is_refused() -> None:
    with pytest.raises(ValueError, match="offers nothing"):
        verify(Twisted(Kept(), without=("cos_sin",)))
    with pytest.raises(ValueError, match="no `build`"):
        verify(type("t", (), {"spec": Spec()}))
    with pytest.raises(ValueError, match="write spec ="):
        verify(Twisted(Kept(), spec={"head_width": 64}))


def test_a_length_dependent_scaling_needs_its_length() -> None:
    with pytest.raises(ValueError, match="give longest"):
        Spec(scaling={"kind": "dynamic", "factor": 2, "trained": 64})


def test_what_raises_is_broken_and_says_so() -> None:
    def cos_sin(built, positions):
        raise RuntimeError("out of\n   table")

    result = verify(Twisted(Kept(), cos_sin=cos_sin), only="N1")["N01"]
    assert result.status == "failed"
    assert "RuntimeError: out of table" in result.why


def test_a_wrong_shape_is_named() -> None:
    result = verify(
        Twisted(Kept(), cos_sin=lambda built, p: [torch.cat([part, part], -1) for part in built(p)]), only="N1"
    )["N01"]
    assert result.status == "failed"
    assert "(B, L, R/2)" in result.why


def test_the_verdict_comes_first() -> None:
    report = verify(broken("N01"), only="N1,N8")
    first, *rest = str(report).splitlines()
    assert first.startswith("2 requirements \u00b7 2 apply \u00b7 1 passed \u00b7 1 failed")
    assert first.endswith(" s")
    text = "\n".join(rest)
    assert "failed from position" in text
    assert "bound 2.5e-07" in text
    assert "reproduce:" in text
    assert "conformance.md#n01" in text


def test_what_raises_has_failed_whatever_float32_explains_before() -> None:
    """Angles by float32 products are no failure; that the reader of configs raises is one."""

    def cos_sin(built: object, positions: Tensor) -> tuple[Tensor, Tensor]:
        steps = torch.arange(0, 64, 2, dtype=torch.float32) / 64
        angles = positions[..., None].float() * 10_000.0**-steps
        return angles.cos(), angles.sin()

    def frequencies(config: object) -> object:
        raise KeyError("rope_theta")

    given = {"spec": Spec(), "build": lambda **more: None, "cos_sin": cos_sin}
    assert verify(SimpleNamespace(**given), only="N07")["N07"].status == "float32"
    found = verify(SimpleNamespace(**given, frequencies=frequencies), only="N07")["N07"]
    assert found.status == "failed"
    assert found.why == "raised KeyError: 'rope_theta'"


def test_failures_can_be_raised() -> None:
    with pytest.raises(AssertionError, match="N01"):
        verify(broken("N01"), only="N1").raise_for_failures()
    verify(Kept(), only="N7").raise_for_failures()


def test_the_report_is_json() -> None:
    data = json.loads(json.dumps(verify(broken("C33"), only="C33,N1,C20").to_dict()))
    assert data["counts"] == {"requirements": 3, "apply": 2, "passed": 1, "float32": 0, "failed": 1, "expected": 0}
    assert [result["id"] for result in data["results"]] == ["N01", "C20", "C33"]


def test_known_failures_are_expected_and_mended_ones_are_seen() -> None:
    known = {"N01": {"reason": "float32 products", "issue": "x#1"}, "N07": {"reason": "none", "issue": "x#2"}}
    report = verify(broken("N01"), only="N1,N7", expected=known)
    assert report["N01"].status == "expected"
    assert report["N01"].issue == "x#1"
    assert report["N07"].fixed
    assert not report.failed
    assert "fixed: N07" in str(report)


def test_a_declared_bound_is_used_and_shown() -> None:
    spec = Kept.spec.model_copy(update={"bounds": {"N01": 10.0}})
    report = verify(Twisted(broken("N01"), spec=spec), only="N1")
    assert report["N01"].status == "passed"
    assert report["N01"].declared


def with_bounds(base: Any, **bounds: Any) -> Twisted:
    return Twisted(base, spec=base.spec.model_copy(update={"bounds": bounds}))


def test_a_bound_of_one_thing_is_not_one_of_another() -> None:
    """The ratio of N04 says nothing of the error itself, which a gain on narrow queries makes."""

    def rotate(built: Any, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return small().rotate(built, x * 1.05 if x.dtype == torch.bfloat16 else x, positions)

    rough = only_rotate(small(), rotate)
    result = verify(with_bounds(rough, N04={"ratio": 1e9}), only="N4")["N04"]
    assert (result.status, result.what, result.bound) == ("failed", "RMS error at the start", 1e-2)
    assert not result.declared
    loose = verify(with_bounds(rough, N04={"ratio": 1e9, "RMS error": 1e9}), only="N4")["N04"]
    assert (loose.status, loose.declared) == ("passed", True)


def test_numbers_of_different_things_have_names() -> None:
    checks = every()
    assert {name for name, check in checks.items() if check.parts} == {"N04", "N07", "C29", "C34"}
    assert checks["C29"].declared({"C29": {"difference": 1e-5}}) == (1e-5, 2.0)
    assert checks["C12"].declared({"C12": 1e-3}) == (1e-3, 1e-3)  # one unit, two readings of it


@pytest.mark.parametrize(
    ("bounds", "says"),
    [
        ({"C29": 1e-5}, r'C29 bounds difference and compilations.*write \{"C29": \{"difference": 1e-06\} or \{"compil'),
        ({"C29": {"compiles": 3.0}}, "C29 has no part 'compiles'; it has difference, compilations"),
        ({"N01": {"angle": 3.0}}, r'N01 has no part \'angle\'; write \{"N01": NUMBER\}'),
        ({"N1": 3.0}, "bounds: no requirement 'N1'"),
    ],
)
def test_an_unclear_bound_is_an_error(bounds: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        verify(with_bounds(Kept(), **bounds), only="N7")


def test_what_raises_everywhere_is_told_once() -> None:
    def build(dtype: torch.dtype = torch.float32, device: str = "cpu") -> None:
        raise NotImplementedError("fill in (2): build")

    report = verify(Twisted(Kept(), build=build))
    assert len(report.failed) > 10
    text = str(report)
    assert text.count("fill in (2): build") == 1
    assert len(text.splitlines()) < 12
    assert all(result.id in text for result in report.failed)


@pytest.mark.parametrize(
    "id", ["N01", "N03", "N05", "N06", "N07", "N09", "C01", "C08", "C09", "C11", "C23", "C25", "C26", "C27", "C33"]
)
def test_a_reproduction_is_two_lines_that_run(id: str) -> None:
    target = broken(id)
    first, second = verify(target, only=id)[id].reproduction.splitlines()
    names = {"target": target}
    exec(first, names)  # noqa: S102  our own two lines
    exec(second, names)  # noqa: S102


def test_a_reproduction_imports_what_has_a_place() -> None:
    target = Target(broken("N01"), "tests.conformance.targets:Kept")
    first, _ = verify(target, only="N1")["N01"].reproduction.splitlines()
    assert first == "import torch; from tests.conformance.targets import Kept as target; built = target.build()"
    ours = verify(small("rope", "longest=100"), only="N7")
    assert not ours.failed


def test_two_runs_are_the_same_and_another_seed_is_another() -> None:
    one, two, other = (verify(small(), only="N3", seed=seed)["N03"].measured for seed in (0, 0, 1))
    assert one == two != other


def test_torch_is_left_as_it_was() -> None:
    def build(dtype=torch.float32, device="cpu"):
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(99)
        return Kept().build(dtype, device)

    torch.manual_seed(5)
    state, dtype = torch.get_rng_state(), torch.get_default_dtype()
    verify(Twisted(Kept(), build=build), only="N1,N6")
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_default_dtype() == dtype
    assert torch.is_grad_enabled()


def test_where_a_bound_is_first_left() -> None:
    found = Findings("N01", (1.0,))
    got = torch.tensor([[0.0, 3.0, 0.0, 9.0]])
    result = found.compare("x", got, torch.zeros(1, 4), 1.0, [4, 30, 2, 20])
    assert (result.measured, result.first_position, result.at) == (9.0, 20, 20)
    assert found.compare("same infinities", torch.tensor([torch.inf]), torch.tensor([torch.inf]), 0.0).holds
    assert not found.compare("not a number", torch.tensor([torch.nan]), torch.tensor([0.0]), 1.0).holds


def test_a_target_is_found_by_its_place() -> None:
    assert find("tests.conformance.targets:Shared").spec.head_width == 16
    with pytest.raises(ValueError, match="no module 'nowhere_at_all'"):
        find("nowhere_at_all:x")
    with pytest.raises(ValueError, match=r"it has .*Kept"):
        find("tests.conformance.targets:Kepd")
