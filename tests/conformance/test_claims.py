"""What a target claims of its angles is what it is judged by; the implementations here are written by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ropewalk.conformance import Spec, verify
from ropewalk.conformance.findings import Findings
from ropewalk.conformance.run import describe

WIDTH, HEADS = 32, 2
JUDGED = "N01,N03,N05,N07,N08,C01,C27"


class Written:
    """RoPE as a tutorial has it: frequencies, a product with positions, cos and sin, all in one dtype."""

    def __init__(self, dtype: torch.dtype, **spec: Any) -> None:
        self.dtype, self.spec = dtype, Spec(head_width=WIDTH, heads=HEADS, **spec)
        self.name = f"written in {dtype}"

    def build(self, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Tensor:
        return 1.0 / 10_000 ** (torch.arange(0, WIDTH, 2).to(self.dtype) / WIDTH)

    def rotate(self, built: Tensor, x: Tensor, positions: Tensor) -> Tensor:
        angle = positions[:, None, :, None].to(self.dtype) * built
        cos, sin = angle.cos().float(), angle.sin().float()
        a, b = x.float().chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


@pytest.mark.parametrize(
    ("dtype", "claim", "longest"),
    [
        (torch.float32, "float32", 8192),
        (torch.float32, "float32", 1_000_000),
        (torch.float32, "float32", None),
        (torch.float64, "float64", 1_000_000),
        (torch.float64, "float64", None),
    ],
)
def test_a_right_implementation_passes_at_its_claim(dtype: torch.dtype, claim: str, longest: int | None) -> None:
    report = verify(Written(dtype, angles=claim, longest=longest), only=JUDGED)
    assert [result.id for result in report.results if result.status not in ("passed", "not applicable")] == []
    assert report.counts["passed"] >= 6


@pytest.mark.parametrize(
    ("dtype", "claim"), [(torch.float32, "float64"), (torch.float32, "exact"), (torch.float64, "exact")]
)
def test_a_claim_that_is_too_high_fails(dtype: torch.dtype, claim: str) -> None:
    report = verify(Written(dtype, angles=claim), only=JUDGED)
    assert "N01" in [result.id for result in report.failed]
    assert not report.of("float32"), "with a claim there are two results"


def test_without_a_claim_there_are_three_results() -> None:
    report = verify(Written(torch.float32), only=JUDGED)
    assert not report.failed
    assert {result.id for result in report.of("float32")} == {"N01", "N03", "N07"} & {
        r.id for r in report.of("float32")
    }
    assert report["N01"].status == report["N03"].status == "float32"
    assert report["N05"].status == report["C01"].status == "passed"
    assert "within float32's error" in report.verdict

    class Coarse(Written):
        def rotate(self, built: Tensor, x: Tensor, positions: Tensor) -> Tensor:
            return super().rotate(built, x, positions.bfloat16().long())

    coarse = verify(Coarse(torch.float32), only="N01,N03")
    assert [result.id for result in coarse.failed] == ["N01", "N03"]
    assert coarse["N01"].first_position == 257


def test_what_happens_within_its_length_stands_first() -> None:
    result = verify(Written(torch.float32), only="N01")["N01"]
    assert 1e-3 < result.within < 2e-2 < result.measured
    line = describe(result)[0]
    assert line.index(f"{result.within:.3g} rad below 131,072") < line.index(f"{result.measured:.3g} at")
    bounded = verify(Written(torch.float32, longest=8192), only="N01")["N01"]
    assert bounded.within is None, "all of it is"
    assert bounded.at < 8192
    assert bounded.measured < 1e-3


def test_how_an_allowance_counts() -> None:
    errors, single, places = torch.tensor([1e-9, 3e-4, 2.0]), torch.tensor([1e-8, 1e-3, 1e-1]), [1, 1000, 100_000]
    results = {}
    for claim in (None, "float32", "float64", "exact"):
        results[claim] = Findings("N01", angles=claim).measure("x", errors, 1e-6, places, dim=0, float32=single)
    assert [results[claim].holds for claim in results] == [False] * 4
    assert results[None].first_position == 100_000, "1,000 is float32's own"
    assert results["float32"].first_position == 100_000
    assert results["exact"].first_position == results["float64"].first_position == 1000
    assert not results[None].float32
    near = Findings("N01").measure("x", errors[:2], 1e-6, places[:2], dim=0, float32=single[:2])
    assert near.float32
    assert not near.holds
    assert Findings("N01", angles="float32").measure("x", errors[:2], 1e-6, places[:2], dim=0, float32=single[:2]).holds
