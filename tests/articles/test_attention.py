"""The article `attention`, and what `blocks` says of it: variance of a dot product, gradient of the softmax, heads."""

from __future__ import annotations

import itertools
import math
import statistics

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ropewalk.attention import Score, attend
from tests.articles import formulas
from tests.articles.ours import BOTH_WAYS, nowhere
from tests.closeness import assert_close


def probabilities(scores: Tensor) -> Tensor:
    """Our attention as a bare softmax of (S,) scores: keys and values are unit vectors, so that q.k_j is score j."""
    S = len(scores)
    unit = torch.eye(S, dtype=scores.dtype)[None, None]
    return attend(scores[None, None, None], unit, unit, Score(nowhere(1, S), BOTH_WAYS, scale=1.0))[0, 0, 0]


def softmax_jacobian(scores: Tensor) -> Tensor:
    return torch.autograd.functional.jacobian(probabilities, scores)


def test_attention_is_a_mean_of_the_values_weighted_by_a_softmax_of_scaled_dot_products() -> None:
    """attention, section 2: softmax(Q K^T / sqrt(d)) V, where d is the width of the queries and keys."""
    q, k, v = (torch.randn(1, 1, length, width, dtype=torch.float64) for length, width in [(4, 6), (5, 6), (5, 3)])
    got = attend(q, k, v, Score(nowhere(4, 5), BOTH_WAYS))
    assert_close("attention", formulas.attention(q[0, 0], k[0, 0], v[0, 0], 6**-0.5)[None, None], got, 1e-14)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_attention_multi_head_is_the_heads_computed_apart_and_joined(heads: int) -> None:
    """attention, section 2; blocks, 1.2: each head has its own W^Q, W^K, W^V; outputs are joined and projected."""
    D, L = 8, 5
    K = D // heads
    x = torch.randn(L, D, dtype=torch.float64)
    wq, wk, wv, wo = torch.randn(4, D, D, dtype=torch.float64)
    apart = [formulas.attention(*(x @ w[:, h * K : (h + 1) * K] for w in (wq, wk, wv)), K**-0.5) for h in range(heads)]
    q, k, v = ((x @ w).view(1, L, heads, K).transpose(1, 2) for w in (wq, wk, wv))
    got = attend(q, k, v, Score(nowhere(L), BOTH_WAYS)).transpose(1, 2).reshape(L, D) @ wo
    assert_close("heads", torch.cat(apart, dim=-1) @ wo, got, 1e-12)


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_attention_variance_of_a_dot_product_is_its_width_exactly(width: int) -> None:
    """attention, section 3: entries independent, of mean 0 and variance 1, give E[q.k] = 0 and Var[q.k] = d.

    Signs are such entries, and few enough for every pair of vectors. Scores are read off the weights: beside a key of
    zeros, whose score is 0, ln(w_j / w_0) is the score of key j.
    """
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=width)), dtype=torch.float64)
    keys = torch.cat([torch.zeros(1, width, dtype=torch.float64), signs])[None, None]
    unit = torch.eye(len(signs) + 1, dtype=torch.float64)[None, None]
    for scale, variance in ((1.0, width), (None, 1)):
        weights = attend(
            signs[None, None], keys, unit, Score(nowhere(len(signs), len(signs) + 1), BOTH_WAYS, scale=scale)
        )
        scores = (weights[..., 1:] / weights[..., :1]).log().flatten().tolist()
        assert statistics.fmean(scores) == pytest.approx(0, abs=1e-12)
        assert statistics.pvariance(scores) == pytest.approx(variance, rel=1e-12)


@pytest.mark.parametrize("width", [64, 256])
def test_attention_division_by_sqrt_d_brings_the_scores_to_variance_one(width: int) -> None:
    """attention, section 3: the scores attention takes have variance d undivided and 1 divided by sqrt(d).

    With normal entries; ln(w_1 / w_2) is the difference of two scores, of twice their variance.
    """
    q = torch.randn(4000, 1, 1, width, dtype=torch.float64)
    k = torch.randn(4000, 1, 2, width, dtype=torch.float64)
    unit = torch.eye(2, dtype=torch.float64).expand(4000, 1, 2, 2)
    for scale, variance in ((None, 1.0), (1.0, float(width))):
        weights = attend(q, k, unit, Score(nowhere(1, 2), BOTH_WAYS, scale=scale), backend="eager")
        apart = (weights[..., 0] / weights[..., 1]).log()
        assert float(apart.var()) / 2 == pytest.approx(variance, rel=0.1)
        assert abs(float(apart.mean())) < 4 * math.sqrt(2 * variance / 4000)


def test_attention_gradient_of_the_softmax_is_p_minus_p_squared_and_minus_the_products() -> None:
    """attention, section 3: dp_i/dx_j is p_i - p_i^2 where i = j, and -p_i p_j elsewhere."""
    scores = torch.tensor([0.3, -1.2, 2.0, 0.0, 0.7], dtype=torch.float64)
    p = formulas.softmax(scores.tolist())
    want = [[p[i] - p[i] ** 2 if i == j else -p[i] * p[j] for j in range(5)] for i in range(5)]
    assert_close("jacobian", want, softmax_jacobian(scores), 1e-14)


def test_attention_gradient_vanishes_where_the_softmax_is_nearly_one_hot() -> None:
    """attention, section 3: one large score makes every dp_i/dx_j nearly 0, and a small disturbance changes no p_i."""
    even, peaked = (torch.tensor([top, 0.1, -0.2, 0.0], dtype=torch.float64) for top in (0.3, 25.0))
    assert softmax_jacobian(even).abs().max() > 0.1
    assert 0 < softmax_jacobian(peaked).abs().max() < 1e-9
    for j in range(4):
        moved = peaked + 0.1 * torch.eye(4, dtype=torch.float64)[j]
        assert_close("disturbed", torch.tensor(formulas.softmax(peaked.tolist())), probabilities(moved), 1e-9)


def test_attention_without_the_division_wide_heads_saturate_and_with_it_they_do_not() -> None:
    """attention, section 3: undivided, the softmax's gradient shrinks as d grows; divided by sqrt(d), it stays."""
    sizes = {}
    for width in (16, 256, 4096):
        q, k = torch.randn(12, width, dtype=torch.float64), torch.randn(16, width, dtype=torch.float64)
        for name, scale in (("undivided", 1.0), ("divided", width**-0.5)):
            slopes = [float(softmax_jacobian(scores).norm()) for scores in q @ k.T * scale]
            sizes[name, width] = statistics.median(slopes)
    assert sizes["undivided", 16] > 3 * sizes["undivided", 256] > 9 * sizes["undivided", 4096]
    assert sizes["undivided", 4096] < 1e-3
    assert all(0.5 < sizes["divided", width] / sizes["divided", 16] < 2 for width in (256, 4096))


def test_attention_costs_the_square_of_the_length() -> None:
    """attention, section 6: the work is O(n^2); two products of 2 n^2 d operations each for every head."""
    for length in (32, 64, 128):
        q = torch.randn(1, 2, length, 8)
        with FlopCounterMode(display=False) as counter:
            attend(q, q, q, Score(nowhere(length), BOTH_WAYS), backend="eager")
        assert counter.get_total_flops() == 2 * (2 * 2 * length**2 * 8)
