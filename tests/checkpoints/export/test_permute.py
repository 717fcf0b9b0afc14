"""Weights go from halves to pairs and back: moved, never changed, and every score stays."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.checkpoints.export.permute import half_to_pairs, pairs_to_half, relaid
from ropewalk.encodings import RoPE


def numbered(*shape: int) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)


def test_what_goes_where() -> None:
    # One head of 8, of which 6 turn: a0 a1 a2 b0 b1 b2 and two that stay.
    assert half_to_pairs(numbered(8), heads=1, rotary_width=6).tolist() == [0, 3, 1, 4, 2, 5, 6, 7]
    assert pairs_to_half(numbered(8), heads=1, rotary_width=6).tolist() == [0, 2, 4, 1, 3, 5, 6, 7]


@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 5), st.sampled_from([(), (3,)]))
def test_there_and_back_is_the_identity(heads: int, pairs: int, still: int, rest: tuple[int, ...]) -> None:
    tensor = numbered(heads * (2 * pairs + still), *rest)
    there = half_to_pairs(tensor, heads=heads, rotary_width=2 * pairs)
    assert torch.equal(pairs_to_half(there, heads=heads, rotary_width=2 * pairs), tensor)
    back = pairs_to_half(tensor, heads=heads, rotary_width=2 * pairs)
    assert torch.equal(half_to_pairs(back, heads=heads, rotary_width=2 * pairs), tensor)
    assert sorted(there.flatten().tolist()) == sorted(tensor.flatten().tolist())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int8])
def test_any_dtype_keeps_its_bits(dtype: torch.dtype) -> None:
    tensor = torch.arange(-32, 32).to(dtype).reshape(32, 2)
    there = half_to_pairs(tensor, heads=2, rotary_width=12)
    assert there.dtype == dtype
    assert torch.equal(pairs_to_half(there, heads=2, rotary_width=12), tensor)


def test_the_source_is_left_as_it_is() -> None:
    tensor = numbered(8, 2)
    half_to_pairs(tensor, heads=1, rotary_width=8)
    assert torch.equal(tensor, numbered(8, 2))
    assert relaid(tensor, "half", "half", heads=1, rotary_width=8) is tensor


@pytest.mark.parametrize("width", [16, 8])
def test_scores_of_both_layouts_are_equal(width: int) -> None:
    """Queries of 4 heads, keys of 2, of a whole and a part of the head that turns."""
    x, q, k = torch.randn(5, 24, dtype=torch.float64), torch.randn(64, 24).double(), torch.randn(32, 24).double()

    def scores(q: torch.Tensor, k: torch.Tensor, layout: str) -> torch.Tensor:
        rope = RoPE(head_width=16, rotary_width=width, layout=layout)
        signal = rope.at(torch.arange(5) * 1000)
        queries = signal.rotate((x @ q.T).unflatten(1, (4, 16)).transpose(0, 1)[None], "query")
        keys = signal.rotate((x @ k.T).unflatten(1, (2, 16)).transpose(0, 1)[None], "key")
        return queries @ keys.repeat_interleave(2, dim=1).mT

    half = scores(q, k, "half")
    pairs = scores(*(half_to_pairs(w, heads=n, rotary_width=width) for w, n in ((q, 4), (k, 2))), "pairs")
    torch.testing.assert_close(pairs, half, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize(
    ("heads", "width", "says"),
    [
        (3, 4, "8 rows are not those of 3 heads"),
        (1, 10, "does not fit a head of 8"),
        (1, 0, "does not fit"),
        (0, 2, "0"),
    ],
)
def test_what_does_not_fit_is_refused(heads: int, width: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        half_to_pairs(numbered(8), heads=heads, rotary_width=width)
