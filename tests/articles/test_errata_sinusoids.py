"""Where the article `sinusoids` is misprinted or wrong; test_errata.py says how the places are counted."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from ropewalk.encodings import Sinusoidal
from tests.articles import formulas
from tests.articles.ours import score, table, wavelengths
from tests.closeness import assert_close
from tests.encodings import oracles


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_sinusoids_relative_positions_shapes() -> None:
    """sinusoids, relative positions: (X_i+P_i) W_Q (X_j+P_j)^T W_K^T; right: (X_i+P_i) W_Q W_K^T (X_j+P_j)^T."""
    x, p, wq, wk = random(2, 8), table(torch.tensor([4, 9]), 8), random(8, 6), random(8, 6)
    signal = Sinusoidal(width=8).at(torch.tensor([4, 9]))
    i, j = (row[None] for row in signal.embed(x[None])[0])
    want = formulas.dot(*(v.flatten().tolist() for v in (i @ wq, j @ wk)))
    four = [a @ wq @ wk.T @ b.T for a in (x[:1], p[:1]) for b in (x[1:], p[1:])]
    assert_close("right", [[want]], sum(four), 1e-6)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        i @ wq @ j.T @ wk.T


def test_sinusoids_relative_positions_weights() -> None:
    """sinusoids, relative positions: the W may be dropped, P_i P_j^T = g(i-j); right: only where W_Q W_K^T is c I."""
    p = table(torch.arange(64), 32)
    wq, wk = random(2, 32, 32) / 32**0.5
    turn, _ = torch.linalg.qr(random(32, 32))
    for inner, relative in ((3 * turn @ turn.T, True), (wq @ wk.T, False)):
        products = p @ inner @ p.T
        spread = max(float(products.diagonal(apart).std()) for apart in range(8))
        assert (spread < 1e-5) is relative
        assert relative or spread > 1


def test_sinusoids_order_of_sine_and_cosine() -> None:
    """sinusoids, sinusoidal: first (cos, sin), then (sin, cos); right: one of them, since the vectors differ.

    Ours is the paper's, sine first. Dot products agree either way; a table trained in one order is wrong in the other.
    """
    at = torch.tensor([0, 3, 50])
    ours = table(at, 8)
    angles = at[:, None] * formulas.frequencies(8)
    sine_first, cosine_first = (
        torch.stack(pair, -1).flatten(-2) for pair in ((angles.sin(), angles.cos()), (angles.cos(), angles.sin()))
    )
    assert_close("right", sine_first, ours, 2e-7)
    assert_close("products", cosine_first @ cosine_first.T, ours @ ours.T, 1e-6)
    assert float((cosine_first - ours).abs().max()) > 0.9


def test_sinusoids_theta_two_pi() -> None:
    """sinusoids, sinusoidal: theta = 2 pi / 10000^(2i/d); right: 1 / 10000^(2i/d).

    With 2 pi the first pair makes a full turn at every position, so that it tells none apart.
    """
    ours = table(torch.arange(50), 8)
    right, printed = ([math.sin(t * theta) for t in range(50)] for theta in (1.0, 2 * math.pi))
    assert_close("right", right, ours[:, 0], 2e-7)
    assert max(abs(value) for value in printed) < 1e-12
    assert ours[:, 0].std() > 0.5


def test_sinusoids_range_of_i() -> None:
    """sinusoids, sinusoidal: i from 0 to d-1; right: to d/2-1, or columns 2i and 2i+1 lie past the width."""
    d = 16
    ours = table(torch.tensor([0, 1]), d).double()
    steps = [math.atan2(*ours[1, 2 * i : 2 * i + 2].tolist()) for i in range(ours.shape[-1] // 2)]
    # As far as the table goes, pair i turns by the formula; with i to d-1 it would have twice the columns.
    assert steps == pytest.approx([1e4 ** (-2 * i / d) for i in range(d // 2)], rel=1e-4)
    assert [2 * math.pi / step for step in steps] == pytest.approx(wavelengths(d), rel=1e-4)
    # The slowest pair printed would turn a thousand times slower than the slowest there is.
    assert 1000 * 1e4 ** (-2 * (d - 1) / d) < min(steps)


def test_sinusoids_symmetry_and_decay() -> None:
    """sinusoids, sinusoidal: g is symmetric and decays; right: symmetric, so blind to direction, and it oscillates."""
    rows = table(torch.arange(401), 64)
    g = rows @ rows[200]
    assert float(g[200 - 7]) == pytest.approx(float(g[200 + 7]), abs=1e-5)
    ahead = g[200:]
    assert sum(b > a for a, b in itertools.pairwise(ahead.tolist())) > 50
    want = [sum(math.cos(k * w) for w in formulas.frequencies(64).tolist()) for k in range(201)]
    assert_close("g", want, ahead, 1e-5)
    q, k = random(2, 64)
    assert abs(score(q, k, 207, 200) - score(q, k, 193, 200)) > 0.1  # a rotation tells before from after


def test_sinusoids_program_odd_width() -> None:
    """sinusoids, program: fails for an odd width; right: the last sine stays without its cosine."""
    with pytest.raises(RuntimeError, match="must match"):
        formulas.printed_sinusoids(10, 7)
    want = [[oracles.sinusoid(t, f, 7, 1e4) for f in range(7)] for t in range(10)]
    assert_close("right", want, table(torch.arange(10), 7), 2e-7)
