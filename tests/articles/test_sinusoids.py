"""Sinusoidal positions, from `sinusoids`, `attention` (section 4), `why_positions`, `rope` and `blocks`."""

from __future__ import annotations

import cmath
import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from ropewalk import positions
from ropewalk.attention import Rule, Score, attend
from ropewalk.encodings import Sinusoidal, build
from tests.articles import formulas
from tests.articles.ours import table, wavelengths
from tests.closeness import assert_close
from tests.encodings import oracles


def test_sinusoids_the_program_prints_our_table() -> None:
    """sinusoids, program: 100 positions by 512 features. It rounds angles to float32; ours are the formula's."""
    ours = table(torch.arange(100), 512)
    formula = [[oracles.sinusoid(t, f, 512, 1e4) for f in range(512)] for t in range(100)]
    assert_close("formula", formula, ours, 1.3e-7)
    assert_close("program", formulas.printed_sinusoids(100, 512), ours, 1e-5)


def test_attention_wavelengths_are_geometric_from_two_pi() -> None:
    """attention, section 4: the wavelengths go from 2 pi to 10000^((d-2)/d) 2 pi by one ratio, 10000^(2/d)."""
    found = wavelengths(64)
    assert found[0] == pytest.approx(2 * math.pi, rel=1e-6)
    assert found[-1] == pytest.approx(1e4 ** (62 / 64) * 2 * math.pi, rel=1e-6)
    assert [b / a for a, b in itertools.pairwise(found)] == pytest.approx([1e4 ** (2 / 64)] * 31, rel=1e-6)


def test_attention_the_bits_of_a_number_have_periods_2_4_8_16() -> None:
    """attention, section 4; why_positions: bit b alternates with period 2^(b+1); base 2^(d/2) gives such wavelengths.

    The sine's wavelength is pi times the bit's period: the pairs are the digits of a number of radix base^(2/d).
    """
    periods = []
    for bit in range(4):
        digits = [number >> bit & 1 for number in range(64)]
        periods.append(next(p for p in range(1, 64) if digits[p:] == digits[:-p]))
    assert periods == [2, 4, 8, 16]
    assert wavelengths(8, base=2**4) == pytest.approx([math.pi * period for period in periods], rel=1e-6)


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_attention_a_step_is_one_linear_map_whatever_the_position(step: int) -> None:
    """attention, section 4; blocks, 1.2: PE(t+k) = M_k PE(t); M_k turns each pair clockwise by k w at any t."""
    clockwise = formulas.rotation(-step * formulas.frequencies(32))
    at = torch.tensor([0, 1, 50, 4096, 10**6])
    assert_close("moved", table(at, 32) @ clockwise.T, table(at + step, 32), 3e-7)


def test_sinusoids_a_dot_product_is_the_real_part_of_a_complex_product() -> None:
    """sinusoids, sinusoidal: <p_m, p_n> = Re[p_m p_n*], and cos a cos b + sin a sin b = cos(a - b)."""
    rows = table(torch.tensor([3, 40]), 2)
    m, n = (cmath.exp(1j * position) for position in (3, 40))
    assert float(rows[0] @ rows[1]) == pytest.approx((m * n.conjugate()).real, abs=1e-6)
    assert float(rows[0] @ rows[1]) == pytest.approx(math.cos(3 - 40), abs=1e-6)


def similarity(apart: int, width: int) -> float:
    """g(t - s): the sum of cos((t - s) w) over the pairs, by the formula."""
    return sum(math.cos(apart * omega) for omega in formulas.frequencies(width).tolist())


def test_sinusoids_the_dot_product_depends_on_the_difference_only() -> None:
    """sinusoids, relative positions: P_i P_j^T = g(i - j)."""
    for start in (0, 17, 10**6):
        at = start + torch.arange(40)
        rows = table(at, 64)
        want = [[similarity(i - j, 64) for j in range(40)] for i in range(40)]
        assert_close("g", want, rows @ rows.T, 1e-5)


def test_sinusoids_the_dot_product_is_symmetric_so_it_cannot_tell_before_from_after() -> None:
    """sinusoids, sinusoidal: g(k) = g(-k)."""
    rows = table(torch.arange(201), 64)
    products = rows @ rows[100]
    assert_close("mirrored", products.flip(0), products, 1e-5)


def test_sinusoids_the_dot_product_decays_and_not_monotonically() -> None:
    """sinusoids, sinusoidal: g shrinks as |k| grows, on average over longer stretches; step by step it also rises."""
    rows = table(torch.arange(4096), 128)
    g = rows @ rows[0]
    assert int(g.argmax()) == 0
    means = [float(g[4**power : 4 ** (power + 1)].mean()) for power in range(6)]
    assert all(later < 0.85 * earlier for earlier, later in itertools.pairwise(means))
    rises = (g.diff() > 0.1).nonzero().flatten()
    assert rises[0] < 20
    assert 0.3 < len(rises) / 4095 < 0.6


def sums(length: int, width: int, inner: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x = torch.randn(length, width, dtype=torch.float64)
    wq, wk = torch.randn(2, width, inner, dtype=torch.float64) / width**0.5
    return x, table(torch.arange(length), width), wq, wk


def test_sinusoids_a_score_is_four_terms() -> None:
    """sinusoids, relative positions: (X+P) W_Q W_K^T (X+P)^T is content-content, content-position, and so on."""
    x, p, wq, wk = sums(6, 16, 8)
    terms = [a @ wq @ wk.T @ b.T for a in (x, p) for b in (x, p)]
    want = [formulas.softmax(row) for row in (sum(terms) / 8**0.5).tolist()]
    signal = Sinusoidal(width=16).at(torch.arange(6))
    embedded = signal.embed(x[None])
    q, k = embedded @ wq, embedded @ wk
    unit = torch.eye(6, dtype=torch.float64)[None, None]
    got = attend(
        q[None], k[None], unit, Score(signal, Rule(causal=False))
    )  # values of unit vectors: the weights themselves
    assert_close("weights", [[want]], got, 1e-6)


def test_sinusoids_through_projections_the_positional_term_is_not_relative() -> None:
    """sinusoids, relative positions: P_i P_j^T is a function of i - j; P_i W_Q W_K^T P_j^T in general is not."""
    _, p, wq, wk = sums(64, 32, 32)
    bare, projected = p @ p.T, p @ wq @ wk.T @ p.T
    for apart in (0, 1, 5):
        assert bare.diagonal(apart).std() < 1e-6
        assert projected.diagonal(apart).std() > 0.3 * projected.std()


def test_why_positions_positions_sit_in_the_first_features() -> None:
    """why_positions, sum or join: of 128 features over 50 positions the first half varies, the rest hardly moves."""
    spread = table(torch.arange(50), 128).var(0, correction=0)
    formula = np.array([[oracles.sinusoid(t, f, 128, 1e4) for f in range(128)] for t in range(50)]).var(0)
    assert_close("spread", formula.tolist(), spread, 1e-6)
    assert spread[:64].sum() > 0.99 * spread.sum()
    assert spread[:32].min() > 0.3
    assert spread[96:].max() < 1e-3


def test_why_positions_adding_keeps_the_width_and_joining_takes_from_the_words() -> None:
    """why_positions, sum or join: joined, positions need features of their own."""
    add, join = (build({"kind": "sinusoidal", "combine": c}, width=64) for c in ("add", "concat"))
    assert (add.token_width, join.token_width) == (64, 32)
    for encoding in (add, join):
        assert encoding.at(torch.arange(5)).embed(torch.zeros(1, 5, encoding.token_width)).shape == (1, 5, 64)


@pytest.mark.parametrize("width", [64, 128])
def test_why_positions_every_position_has_a_code_of_its_own(width: int) -> None:
    """why_positions, four conditions, the first; rope, absolute positions again: no two codes are equal.

    Distances depend on the difference alone, so those from position 0 are all there are.
    """
    apart = (table(torch.arange(20_001), width)[1:] - table(torch.tensor([0]), width)).norm(dim=-1)
    assert apart.min() == apart[0] > 0.9  # the nearest code is a neighbour's


def test_why_positions_distances_are_the_same_in_sentences_of_any_length() -> None:
    """why_positions, four conditions, the second: |PE(t+k) - PE(t)| does not depend on t or on the length."""
    for apart in (1, 9, 300):
        want = math.sqrt(2 * (similarity(0, 64) - similarity(apart, 64)))
        for length in (512, 20_000):
            rows = Sinusoidal(width=64).at(positions.plain(length)).q_table[0].double()
            assert_close("distance", torch.full((40,), want), (rows[apart:] - rows[:-apart])[-40:].norm(dim=-1), 1e-6)


def test_why_positions_codes_are_bounded_at_any_length() -> None:
    """why_positions, four conditions, the third; rope; blocks, 1.2: values lie in [-1, 1], rows on a sphere."""
    at = torch.cat([torch.arange(1000), torch.tensor([10**6, 10**9, 2**40 - 1])])
    rows = table(at, 64)
    assert rows.abs().max() <= 1
    assert_close("norms", torch.full((1003,), math.sqrt(32)), rows.norm(dim=-1), 1e-6)


def test_why_positions_a_position_always_has_the_same_code() -> None:
    """why_positions, four conditions, the fourth: whatever stands beside it, and whenever it is asked for."""
    encoding = Sinusoidal(width=64)
    long, alone = encoding.at(torch.arange(5000)).q_table[0, 4321], encoding.at(torch.tensor([4321])).q_table[0, 0]
    packed = encoding.at(positions.packed([[3, 4322]])).q_table[0, -1]
    assert torch.equal(long, alone)
    assert torch.equal(long, packed)
