"""Rotary positions, from `rope`, `attention` (sections 4 and 5), `why_positions` and `blocks` (1.4)."""

from __future__ import annotations

import cmath
import math

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ropewalk.attention import Rule, Score, attend
from ropewalk.encodings import RoPE, Sinusoidal, build
from tests.articles import formulas
from tests.articles.ours import score, turned
from tests.closeness import assert_close

FAR = 10**9


def matrix(position: int, width: int) -> Tensor:
    """Our rotation as the matrix R that row vectors are multiplied by: what it makes of the unit vectors."""
    return turned(torch.eye(width, dtype=torch.float64), torch.full((width,), position))


def test_rope_the_program_rotates_as_ours_does() -> None:
    """rope, code: the program's rotation, of x in halves, is our layout `half`."""
    x = torch.randn(3, 2, 5, 8)
    at = torch.tensor([0, 1, 2, 30, 400])
    assert_close("program", formulas.printed_rotator(x, at), RoPE(head_width=8).at(at).rotate(x, "query"), 1e-4)


def test_rope_the_program_attends_as_ours_does() -> None:
    """rope, code: the attention layer of 2 heads and width 16 on 3 texts of 5 tokens, rotation and all."""
    x, joint, out, at = torch.rand(3, 5, 16), torch.randn(16, 48), torch.randn(16, 16), torch.arange(5)
    signal = RoPE(head_width=8).at(at)
    q, k, v = ((x @ w).unflatten(-1, (2, 8)).transpose(1, 2) for w in joint.split(16, dim=-1))
    q, k = signal.rotate(q, "query"), signal.rotate(k, "key")
    ours = attend(q, k, v, Score(signal, Rule(causal=False))).transpose(1, 2).flatten(-2) @ out
    assert_close("layer", formulas.printed_attention(x, at, joint, out, heads=2), ours, 1e-4)


@pytest.mark.parametrize("form", ["matrix", "elementwise", "complex"])
def test_attention_matrix_elementwise_and_complex_forms_are_one_rotation(form: str) -> None:
    """attention, section 5; why_positions; rope, without matrices; blocks, 1.4: three ways to write R_m x."""
    at = torch.tensor([0, 1, 7, 1000])
    x = torch.randn(4, 16, dtype=torch.float64)
    angles = at[:, None] * formulas.frequencies(16)
    want = {
        "matrix": lambda: torch.stack([formulas.rotation(a) @ v for a, v in zip(angles, x, strict=True)]),
        "elementwise": lambda: formulas.elementwise(x, angles),
        "complex": lambda: formulas.complex_product(x, angles),
    }[form]()
    assert_close(form, want, turned(x, at), 1e-12)


def test_rope_elementwise_takes_no_matrix_product() -> None:
    """rope, why without matrices: R is sparse, two entries in a row; ours multiplies no matrices."""
    assert int((formulas.rotation(3 * formulas.frequencies(64)) != 0).sum(1).max()) == 2
    with FlopCounterMode(display=False) as counter:  # counts matrix products only
        turned(torch.randn(8, 64), torch.arange(8))
    assert counter.get_total_flops() == 0


def test_rope_the_transpose_turns_back_and_angles_add() -> None:
    """rope, rotation matrices; blocks, 1.4: R(a)^T = R(-a), R(a) R(b) = R(a+b), R(i) R(j)^T = R(i-j)."""
    a, b = 37, 5000
    assert_close("a", formulas.rotation(a * formulas.frequencies(8)).T, matrix(a, 8), 1e-13)
    assert_close("transpose", matrix(a, 8).T, matrix(-a, 8), 1e-13)
    assert_close("sum", matrix(a, 8) @ matrix(b, 8), matrix(a + b, 8), 1e-13)
    assert_close("difference", matrix(a, 8) @ matrix(b, 8).T, matrix(a - b, 8), 1e-13)


def test_rope_a_rotation_is_the_product_of_rotations_of_single_subspaces() -> None:
    """rope, rotating in high dimensions: R = R^(1) R^(2) ..., each turning one pair and leaving the rest."""
    product = torch.eye(8, dtype=torch.float64)
    for pair, omega in enumerate(formulas.frequencies(8).tolist()):
        angles = torch.zeros(4, dtype=torch.float64)
        angles[pair] = 11 * omega
        product = product @ formulas.rotation(angles).T
    assert_close("product", product, matrix(11, 8), 1e-13)


def test_rope_lengths_stay_and_the_angle_between_two_vectors_grows_by_their_distance() -> None:
    """rope, motivation; why_positions, exponentials: |q| |k| cos(eta_k - eta_q + (j - i)) in the plane."""
    q, k = torch.randn(2, 2, dtype=torch.float64)
    eta_q, eta_k = (math.atan2(y, x) for x, y in (q.tolist(), k.tolist()))
    lengths = math.hypot(*q.tolist()) * math.hypot(*k.tolist())
    x, y = complex(*q.tolist()), complex(*k.tolist())
    for i, j in ((0, 0), (3, 1), (1, 3), (1000, 17)):
        assert score(q, k, i, j) == pytest.approx(lengths * math.cos(eta_k - eta_q + (j - i)), abs=1e-12)
        assert score(q, k, i, j) == pytest.approx((x * y.conjugate() * cmath.exp(1j * (i - j))).real, abs=1e-12)


@pytest.mark.parametrize("shift", [0, 1000, FAR, 2**39])
def test_rope_a_score_depends_on_the_difference_alone_also_far_out(shift: int) -> None:
    """rope, in high dimensions; attention, sections 4 and 5: q.k is a sum of cos and sin of theta (n - m)."""
    q, k = torch.randn(2, 64, dtype=torch.float64)
    for m, n in ((0, 0), (9, 4), (4, 9), (3000, 1)):
        a, b = torch.view_as_complex(q.view(-1, 2)), torch.view_as_complex(k.view(-1, 2))
        inner, cross = (a.conj() * b).real, (a.conj() * b).imag
        angles = (n - m) * formulas.frequencies(64)
        want = float((inner * angles.cos() - cross * angles.sin()).sum())
        assert score(q, k, m + shift, n + shift) == pytest.approx(want, abs=1e-10)


def test_rope_the_programs_float32_angles_lose_the_relative_law_far_out() -> None:
    """rope, code: the printed program keeps the law near the start only; at 10^9 its float32 angles are noise."""
    x = torch.randn(2, 64)

    def by_program(shift: int) -> float:
        q, k = formulas.printed_rotator(x, torch.tensor([9 + shift, 4 + shift]))
        return float(q @ k)

    assert by_program(100) == pytest.approx(by_program(0), abs=1e-3)
    assert abs(by_program(FAR) - by_program(0)) > 1


def test_rope_rotating_before_the_projection_breaks_the_relative_law() -> None:
    """rope, why not before the projection: X_i R(i) W_Q W_K^T R(j)^T X_j^T is no function of i - j."""
    x, y = torch.randn(2, 16, dtype=torch.float64)
    wq, wk = torch.randn(2, 16, 16, dtype=torch.float64) / 4

    def before(i: int, j: int) -> float:
        q, k = (turned(v[None], torch.tensor([p]))[0] for v, p in ((x, i), (y, j)))
        return float(q @ wq @ wk.T @ k)

    after = [score(x @ wq, y @ wk, 9 + shift, 4 + shift) for shift in (0, 1, 50)]
    assert after == pytest.approx([after[0]] * 3, abs=1e-10)
    assert min(abs(before(9 + shift, 4 + shift) - before(9, 4)) for shift in (1, 50)) > 0.1


def second_layer(kind: str) -> tuple[Tensor, Tensor, Tensor]:
    """The second of two layers, when the first has averaged all tokens into one vector: its weights, one q, one k."""
    settings = {"layout": "pairs", "precision": "float64"} if kind == "rope" else {}
    signal = build({"kind": kind, **settings}, width=16, heads=1, head_width=16).at(torch.arange(6))
    x = signal.embed(torch.randn(1, 6, 16, dtype=torch.float64))[None]
    x = attend(torch.zeros_like(x), torch.zeros_like(x), x, Score(signal, Rule(causal=False)))
    q, k = x @ torch.randn(16, 16, dtype=torch.float64), x @ torch.randn(16, 16, dtype=torch.float64)
    unit = torch.eye(6, dtype=torch.float64)[None, None]
    turned = signal.rotate(q, "query"), signal.rotate(k, "key")
    return attend(*turned, unit, Score(signal, Rule(causal=False)))[0, 0], q[0, 0, 0], k[0, 0, 0]


def test_rope_enters_every_layer_where_x_plus_p_enters_once() -> None:
    """rope, another advantage: each layer rotates after its projections, so no layer can lose the positions.

    X + P averaged away is gone: the next layer looks everywhere alike. Rotated anew, it still looks by distance.
    """
    weights, _, _ = second_layer("sinusoidal")
    assert_close("sinusoidal", [[1 / 6] * 6] * 6, weights, 1e-12)
    weights, q, k = second_layer("rope")
    by_distance = {d: float(q @ formulas.rotation(d * formulas.frequencies(16)) @ k) / 4 for d in range(-5, 6)}
    assert_close("rope", [formulas.softmax([by_distance[j - i] for j in range(6)]) for i in range(6)], weights, 1e-12)
    assert weights.std() > 0.01


@pytest.mark.parametrize("base", [1e4, 5e5])
def test_blocks_wavelengths_are_two_pi_times_powers_of_the_base(base: float) -> None:
    """blocks, 1.4; rope, made concrete: theta_i = b^(-2(i-1)/H), lambda_i = 2 pi / theta_i, ratio B = b^(2/H) > 1."""
    plan = RoPE(head_width=64, base=base).layer_plan()
    thetas = [base ** (-2 * (i - 1) / 64) for i in range(1, 33)]
    assert list(plan.frequencies) == pytest.approx(thetas, rel=1e-13)
    wavelengths = [2**64 / turn for turn in plan.turns]  # a turn is 2^64, so this many positions make one
    assert wavelengths == pytest.approx([2 * math.pi * base ** (2 * (i - 1) / 64) for i in range(1, 33)], rel=1e-10)


def test_rope_absolute_and_rotary_positions_use_the_same_angles() -> None:
    """rope, absolute positions again; blocks, 1.4: both are sines and cosines of i theta_k, added or turned by."""
    at = torch.tensor([0, 5, 777])
    angles = at[:, None] * formulas.frequencies(16)
    added = Sinusoidal(width=16).at(at).q_table[0]
    cos, sin = RoPE(head_width=16).at(at).q_table
    assert_close("added", torch.stack([angles.sin(), angles.cos()], -1).flatten(-2), added, 2e-7)
    assert_close("cos", angles.cos(), cos[0, 0], 2e-7)
    assert_close("sin", angles.sin(), sin[0, 0], 2e-7)
