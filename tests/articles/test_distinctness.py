"""Whether rotations repeat and whether positions can be told apart: `rope` (distinctness), `why_positions` (theta)."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from torch import Tensor

from ropewalk.encodings import RoPE
from ropewalk.phase import phase
from ropewalk.scaling import Linear
from tests.articles import formulas


@pytest.mark.parametrize("width", [2, 64, 128])
@pytest.mark.parametrize("base", [1e4, 5e5, 1e6])
def test_rope_no_pair_repeats_below_two_to_the_forty(width: int, base: float) -> None:
    """rope, distinctness: theta / 2 pi is irrational, so no pair repeats; ours, in integers, not for 2^40 positions.

    Positions i < j share a phase where (j - i) * turns is a multiple of 2^64. Let 2^z be the largest power of two that
    divides turns: then j - i is a multiple of 2^(64 - z), which is past 2^40 while z < 24.
    """
    for turns in RoPE(head_width=width, base=base).layer_plan().turns:
        assert turns != 0
        assert (turns & -turns).bit_length() - 1 < 24


def test_rope_phases_of_many_positions_are_all_different() -> None:
    """rope, distinctness: counted, near the start and at 10^12, in the slowest pair and in the fastest."""
    turns = RoPE(head_width=64).layer_plan().turns
    at = torch.cat([torch.arange(100_000), 10**12 + torch.arange(100_000)])
    for pair in (0, 31):
        assert len(phase(at, turns[pair : pair + 1]).unique()) == 200_000


def naive_rows(at: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """cos and sin of position times frequency, all in one dtype."""
    angles = at.to(dtype)[:, None] * formulas.frequencies(width).to(dtype)
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


@pytest.mark.parametrize("width", [64, 128])
def test_rope_in_bfloat16_position_257_is_position_256(width: int) -> None:
    """rope, distinctness: holds for real numbers; rows computed in bfloat16 first repeat at 257."""
    rows = [tuple(row) for row in naive_rows(torch.arange(258), width, torch.bfloat16).tolist()]
    first = next(p for p, row in enumerate(rows) if row in rows[:p])
    assert (rows.index(rows[first]), first) == (256, 257)


def test_rope_in_float32_position_16777217_is_position_16777216() -> None:
    """rope, distinctness: rows computed in float32 first repeat at 2^24 + 1.

    Below, positions are exact in float32, and so is the fastest pair's angle, p itself. Two rows can be equal only
    where the difference of their positions is a multiple of 2 pi to float32's precision: 4 differences below 2^24 are.
    At those a slow pair, whose rounded angle is still good to 0.01 rad, lies more than a radian apart.
    """
    with localcontext(prec=40):
        turn = int(Decimal(2**64) / (2 * Decimal("3.14159265358979323846264338327950288419717")))
    wraps = torch.arange(1, 2**24) * turn  # modulo 2^64, a full turn
    near = 1 + (wraps.abs_() < 1e-6 / (2 * math.pi) * 2**64).nonzero().flatten()
    assert near.tolist() == [4272943, 6565759, 10838702, 15111645]
    for width in (64, 128):
        rows = naive_rows(2**24 + torch.arange(-1, 2), width, torch.float32)
        assert torch.equal(rows[1], rows[2])
        assert not torch.equal(rows[0], rows[1])
        slow = formulas.frequencies(width)[-8:]
        assert float(slow.max()) * 2**24 * 2**-24 < 0.01
        apart = (near[:, None] * slow + math.pi) % (2 * math.pi) - math.pi
        assert apart.abs().max(dim=1).values.min() > 1


def agreement(at: Tensor, width: int, factor: float = 1.0) -> Tensor:
    """The score between one vector at 0 and itself at these positions, as a share of the score at no distance."""
    scaling = None if factor == 1 else Linear(factor=factor)
    x = torch.ones(1, 1, len(at), width, dtype=torch.float64)
    rope = RoPE(head_width=width, scaling=scaling, precision="float64")
    return (rope.at(at).rotate(x, "key") * x).sum(-1)[0, 0] / width


def test_why_positions_one_large_theta_tells_near_positions_apart_and_not_far_ones() -> None:
    """why_positions, from exponentials to sines: theta = 1 tells 0 from 1, and takes 710 for 0."""
    got = agreement(torch.tensor([1, 44, 710]), 2)
    assert got.tolist() == pytest.approx([math.cos(1), math.cos(44), math.cos(710)], abs=1e-12)
    assert 1 - got[0] > 0.4
    assert 1 - got[2] < 1e-8


def test_why_positions_one_small_theta_tells_far_positions_apart_and_not_near_ones() -> None:
    """why_positions, from exponentials to sines: theta = 1/4096 tells 0 from 4096, and takes 1 for 0."""
    got = agreement(torch.tensor([1, 44, 4096]), 2, factor=4096)
    assert got.tolist() == pytest.approx([math.cos(1 / 4096), math.cos(44 / 4096), math.cos(1)], abs=1e-12)
    assert 1 - got[0] < 1e-7
    assert 1 - got[2] > 0.4


def test_why_positions_many_thetas_tell_near_and_far_positions_apart() -> None:
    """why_positions, from exponentials to sines: with a theta for each pair no position looks like 0."""
    at = torch.arange(1, 8000)
    ladder = agreement(at, 64)
    want = np.cos(at.numpy()[:, None] * formulas.frequencies(64).numpy()).mean(1)
    assert np.abs(ladder.numpy() - want).max() < 1e-10
    assert 1 - ladder.max() > 0.02
    assert 1 - agreement(at, 2).max() < 1e-8
    assert 1 - agreement(at, 2, factor=4096).max() < 1e-7


def test_rope_one_pair_is_unique_and_yet_hard_to_tell_apart() -> None:
    """rope, open question: in one plane every position has its own angle, but float32 scores do not see them all."""
    at = torch.arange(100_000)
    assert len(phase(at, RoPE(head_width=2).layer_plan().turns).unique()) == len(at)
    plane = agreement(at, 2).to(torch.float32)
    assert [p for p in range(1, 2000) if plane[p] == plane[0]] == [710, 1420]
    assert len(plane.unique()) < len(at)
    assert 1 - float(agreement(at[1:8000], 64).to(torch.float32).max()) > 0.02
