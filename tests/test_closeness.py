"""The ground of the other tests: a comparison that can fail, poisoned memory, seeds."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.closeness import assert_close


def test_close_returns_the_largest_difference() -> None:
    assert assert_close("same", [1.0, 2.0], torch.tensor([1.0, 2.5]), 0.5) == 0.5
    assert assert_close("none", torch.zeros(0), torch.zeros(0), 0) == 0
    assert assert_close("infinite", [float("-inf"), 1.0], torch.tensor([float("-inf"), 1.0]), 0) == 0
    assert assert_close("one number", 0.1, torch.tensor(0.1), 1e-8) > 0


def test_far_says_how_far_and_where() -> None:
    got = torch.zeros(2, 3)
    got[1, 2] = 0.25
    with pytest.raises(
        AssertionError, match=r"angle: largest difference 0.25 at \(1, 2\), want 0.0, got 0.25; bound 0.1"
    ):
        assert_close("angle", torch.zeros(2, 3), got, 0.1)


@pytest.mark.parametrize(
    ("want", "got"),
    [
        (torch.tensor([1.0]), torch.tensor([float("nan")])),
        (torch.tensor([float("nan")]), torch.tensor([float("nan")])),
        (torch.tensor([float("inf")]), torch.tensor([float("-inf")])),
        (torch.tensor([2**62]), torch.tensor([2**62 + 1])),
        (torch.tensor([True]), torch.tensor([False])),
        (torch.tensor([1j]), torch.tensor([1.0 + 0j])),
        (torch.zeros(2, 1), torch.zeros(2)),
    ],
)
def test_what_must_not_pass(want: Tensor, got: Tensor) -> None:
    with pytest.raises(AssertionError, match="pair: "):
        assert_close("pair", want, got, 0.5)


def test_uninitialised_memory_is_poisoned() -> None:
    like = torch.zeros(3)
    empty = [torch.empty(3), torch.empty_like(like), like.new_empty(3), torch.empty_strided((3,), (1,))]
    assert all(tensor.isnan().all() for tensor in empty)
    assert nn.Linear(2, 3, device="meta").to_empty(device="cpu").weight.isnan().all()
    assert (torch.empty(3, dtype=torch.int64) == torch.iinfo(torch.int64).max).all()


def test_poison_leaves_meta_and_compile_alone() -> None:
    with torch.device("meta"):
        assert torch.empty(3).is_meta

    def fill(x: Tensor) -> Tensor:
        return torch.empty_like(x).copy_(x) + x.new_empty(3).fill_(1.0)

    assert torch.equal(torch.compile(fill, fullgraph=True, backend="aot_eager")(torch.ones(3)), torch.full((3,), 2.0))


@pytest.mark.no_poison
def test_poison_can_be_left_out() -> None:
    assert not torch.are_deterministic_algorithms_enabled()


def first_draw() -> Tensor:
    return torch.rand(3, generator=torch.Generator().manual_seed(0))


def test_a_test_starts_from_the_seed() -> None:
    assert torch.equal(torch.rand(3), first_draw())


@given(st.integers(0, 3))
def test_an_example_starts_from_the_seed(number: int) -> None:
    assert torch.equal(torch.rand(3), first_draw())
