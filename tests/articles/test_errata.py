"""Where the articles are misprinted or wrong: the right form holds, the printed one fails.

37 places are known, and 33 can be computed: 15 in `attention`, `why_positions` and `rope`, here; 11 in `blocks`, in
test_errata_blocks.py; 7 in `sinusoids`, in test_errata_sinusoids.py. Four are wording and cannot be computed: in `rope`
the softmax's sum reuses the index of its numerator, and the k-th subspace is once called the d-th; in `blocks` FFN is
spelled FNN, with a bias b_i for b_1; in `sinusoids` NTK is spelled NKT.
"""

from __future__ import annotations

import cmath
import itertools
import math

import pytest
import torch
from torch import Tensor

from ropewalk.attention import Rule, Score, attend
from ropewalk.encodings import RoPE
from ropewalk.phase import phase
from ropewalk.scaling import Linear
from ropewalk.scaling.exact import turns
from tests.articles import formulas
from tests.articles.ours import mixed, score, table, turned, wavelengths
from tests.closeness import assert_close
from tests.encodings import oracles


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def far(a: Tensor, b: Tensor) -> float:
    """The largest difference: for what must not agree."""
    return float((a - b).abs().max())


def test_attention_section_4_radix() -> None:
    """attention, sections 4 and 5: d digits of radix 10000^(2/d) 2 pi; right: d/2 digits of radix 10000^(2/d)."""
    found = wavelengths(64)
    right, printed = 1e4 ** (2 / 64), 1e4 ** (2 / 64) * 2 * math.pi
    assert len(found) == 64 // 2 != 64
    for shorter, longer in itertools.pairwise(found):
        assert longer / shorter == pytest.approx(right, rel=1e-6)
        assert longer / shorter != pytest.approx(printed, rel=0.5)


def test_attention_section_5_last_pair() -> None:
    """attention, section 5: the last pair of the second vector is (-x_(d-1), x_d); right: (-x_d, x_(d-1))."""
    x, angles = random(8), 3 * formulas.frequencies(8)
    swapped = torch.stack([-x[1::2], x[0::2]], -1).flatten()
    misprint = torch.cat([swapped[:6], torch.stack([-x[6], x[7]])])
    cos, sin = (f.repeat_interleave(2) for f in (angles.cos(), angles.sin()))
    ours = turned(x[None], torch.tensor([3]))[0]
    assert_close("right", x * cos + swapped * sin, ours, 1e-13)
    assert float(ours.norm()) == pytest.approx(float(x.norm()), rel=1e-12)
    printed = x * cos + misprint * sin
    assert abs(float(printed.norm() / x.norm()) - 1) > 1e-4
    assert far(printed, ours) > 1e-4


def test_attention_section_2_divisor() -> None:
    """attention, section 2; blocks, 1.2: the divisor is sqrt of the hidden size; right: of the head's width d_k."""
    heads, K = 8, 8
    q, k, v = random(3, 6, K)
    ours = mixed(q, k, v)
    assert_close("right", formulas.attention(q, k, v, K**-0.5), ours, 1e-13)
    assert far(formulas.attention(q, k, v, (heads * K) ** -0.5), ours) > 0.1


def test_attention_section_6_extrapolation() -> None:
    """attention, section 6: RoPE extrapolates; right: past the trained length slow pairs meet angles never seen.

    The wavelengths past the trained length are those pairs. Scaled positions stay among the angles seen.
    """
    trained, omega = 2048, formulas.frequencies(64)

    def unseen_pairs(**settings: object) -> int:
        cos, sin = RoPE(head_width=64, precision="float64", **settings).at(torch.arange(trained, 2 * trained)).q_table
        angles = torch.atan2(sin, cos)[0, 0] % (2 * math.pi)
        return int((angles > trained * omega).any(dim=0).sum())

    assert unseen_pairs() == sum(2 * math.pi / w > trained for w in omega.tolist()) == 11
    assert unseen_pairs(scaling=Linear(factor=2)) == 0


def test_why_positions_self_attention_softmax() -> None:
    """why_positions, self-attention: x_out = sum (q.k_i) v_i; right: the products pass through a softmax first."""
    q, k, v = random(3, 4, 6)
    ours = mixed(q, k, v)
    assert_close("right", formulas.attention(q, k, v, 6**-0.5), ours, 1e-13)
    assert bool((ours <= v.max(0).values + 1e-12).all() and (ours >= v.min(0).values - 1e-12).all())
    printed = q @ k.T @ v
    assert bool((printed > v.max(0).values).any())


def test_why_positions_exponentials_conjugate() -> None:
    """why_positions, exponentials: e^m e^n = e^(m+n) as the model of m - n; right: one factor is conjugated."""
    q, k = random(2, 2)
    a, b = complex(*q.tolist()), complex(*k.tolist())
    for m, n in ((9, 4), (12, 7)):  # both 5 apart
        right = (a * cmath.exp(1j * m) * (b * cmath.exp(1j * n)).conjugate()).real
        assert score(q, k, m, n) == pytest.approx(right, abs=1e-12)
    printed = [(a * cmath.exp(1j * m) * b * cmath.exp(1j * n)).real for m, n in ((9, 4), (12, 7))]
    assert abs(printed[0] - printed[1]) > 0.1


def test_why_positions_last_formula_row_vectors() -> None:
    """why_positions, last formula; blocks, 1.4: a row vector times the matrix for columns; right: times its transpose.

    The printed form is relative too, and turns the other way: its scores are not those of a trained RoPE.
    """
    q, k, omega = random(8), random(8), formulas.frequencies(8)

    def printed(m: int, n: int) -> float:
        return float((q @ formulas.rotation(m * omega)) @ (k @ formulas.rotation(n * omega)))

    def right(m: int, n: int) -> float:
        return float((q @ formulas.rotation(m * omega).T) @ (k @ formulas.rotation(n * omega).T))

    assert score(q, k, 9, 4) == pytest.approx(right(9, 4), abs=1e-12)
    assert printed(9, 4) == pytest.approx(printed(109, 104), abs=1e-9)
    assert printed(9, 4) == pytest.approx(score(q, k, 4, 9), abs=1e-12)
    assert abs(printed(9, 4) - score(q, k, 9, 4)) > 0.1


def test_rope_why_positions_are_needed_causal() -> None:
    """rope, why positions are needed: a Transformer sees no positions; right: unless its mask is causal."""
    q, k, v = random(3, 6, 8)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    moved = [x[order] for x in (q, k, v)]
    assert_close("both ways", mixed(q, k, v)[order], mixed(*moved), 1e-13)
    causal = Rule(causal=True)
    assert_close("causal", formulas.attention(*moved, 8**-0.5, causal=True), mixed(*moved, rule=causal), 1e-13)
    assert far(mixed(q, k, v, rule=causal)[order], mixed(*moved, rule=causal)) > 0.1


def test_rope_absolute_positions_index() -> None:
    """rope, absolute positions: P_(i,2t) = sin(k / ...), where k is no position; right: sin(i / ...)."""
    ours = table(torch.arange(6), 8)
    right = [[oracles.sinusoid(i, f, 8, 1e4) for f in range(8)] for i in range(6)]
    assert_close("right", right, ours, 2e-7)
    # One k for all tokens tells attention nothing: tokens in another order give the same vectors in that order.
    x, order = random(6, 8), torch.tensor([3, 0, 5, 1, 4, 2])
    for places, blind in ((torch.full((6,), 3), True), (torch.arange(6), False)):
        before, after = (x[rows] + table(places, 8).double() for rows in (torch.arange(6), order))
        moved = far(mixed(before, before, before)[order], mixed(after, after, after))
        assert moved < 1e-12 if blind else moved > 0.1


def test_rope_before_the_projection_transpose() -> None:
    """rope, why not before the projection: X_i R W_Q W_K R^T X_j^T; right: W_Q W_K^T, or the shapes do not multiply."""
    x, y, wq, wk = random(1, 8), random(1, 8), random(8, 6), random(8, 6)
    turned_x, turned_y = turned(x, torch.tensor([5])), turned(y, torch.tensor([2]))
    want = formulas.dot(*(a.flatten().tolist() for a in (turned_x @ wq, turned_y @ wk)))
    omega = formulas.frequencies(8)
    before, after = formulas.rotation(5 * omega).T, formulas.rotation(2 * omega)
    assert_close("right", [[want]], x @ before @ wq @ wk.T @ after @ y.T, 1e-12)
    # Where W_K is square the printed product exists, and is another number than the score of ours.
    wq, wk = random(2, 8, 8)
    want = formulas.dot(*(a.flatten().tolist() for a in (turned_x @ wq, turned_y @ wk)))
    assert_close("right, square", [[want]], x @ before @ wq @ wk.T @ after @ y.T, 1e-11)
    assert abs(float(x @ before @ wq @ wk @ after @ y.T) - want) > 0.1


def test_rope_made_concrete_first_theta() -> None:
    """rope, made concrete, both tables: the first theta is 0; right: 1, as its period 2 pi says."""
    first = RoPE(head_width=64).layer_plan().frequencies[0]
    assert first == 1
    assert 2 * math.pi / first == pytest.approx(wavelengths(64)[0], rel=1e-6)
    assert phase(torch.arange(100), turns([first])).unique().numel() == 100
    assert phase(torch.arange(100), turns([0.0])).unique().numel() == 1  # the printed pair never turns


def test_rope_distinctness_theta() -> None:
    """rope, distinctness: theta_k = 10000^(-k/D); right: 10000^(-2(k-1)/D), k from 1."""
    ours = list(RoPE(head_width=64).layer_plan().frequencies)
    assert ours == pytest.approx([1e4 ** (-2 * (k - 1) / 64) for k in range(1, 33)], rel=1e-13)
    printed = [1e4 ** (-k / 64) for k in range(1, 33)]
    assert (printed[0], printed[-1]) != pytest.approx((ours[0], ours[-1]), rel=0.1)
    assert printed[-1] / ours[-1] > 50


def test_rope_distinctness_pi() -> None:
    """rope, distinctness: no pi in the formula means no repetition; right: theta / 2 pi must be irrational.

    arccos(-1/2) is written without pi and repeats every third position. And distinct is not distinguishable: by 710
    positions the fastest pair of the usual ladder moves 6e-5 rad.
    """
    third, usual = turns([math.acos(-0.5)]), turns([1.0])
    at = torch.tensor([3, 6, 300])
    full = 2.0**64 / (2 * math.pi)
    assert (phase(at, third)[:, 0].abs() / full).tolist() == pytest.approx([0, 0, 0], abs=1e-12)
    assert abs(math.remainder(300 * math.acos(-0.5), 2 * math.pi)) < 1e-12
    near = abs(int(phase(torch.tensor([710]), usual))) / full
    assert near == pytest.approx(abs(math.remainder(710, 2 * math.pi)), rel=1e-6)
    assert 0 < near < 1e-4


def test_rope_absolute_positions_again_columns() -> None:
    """rope, formula rewritten: columns 2k and 2k+1 for k = 1 .. D/2; right: 2(k-1) and 2(k-1)+1."""
    D = 8
    ours = table(torch.tensor([5]), D)[0]
    for k in range(1, D // 2 + 1):
        pair = ours[2 * (k - 1) : 2 * (k - 1) + 2]
        angle = 5 / 1e4 ** (2 * (k - 1) / D)
        assert_close("right", [math.sin(angle), math.cos(angle)], pair, 2e-7)
        if k < D // 2:
            # In the printed columns lies the next pair, which turns ten times slower at this width.
            sine, cosine = ours[2 * k : 2 * k + 2].tolist()
            assert math.atan2(sine, cosine) == pytest.approx((angle / 10 + math.pi) % (2 * math.pi) - math.pi, abs=1e-6)
    # As a program, it leaves the first pair empty and loses the slowest, which tells position 0 from 4,000.
    near, apart = (table(torch.tensor([0, distance]), D).double() for distance in (1, 4000))
    lost = [float((rows[0] - rows[1])[-2:].norm()) for rows in (near, apart)]
    assert lost[0] < 0.01 < 1 < lost[1]


def test_rope_absolute_positions_again_fourier() -> None:
    """rope, seen as a function of x: k = 1 .. D and a Fourier series; right: D/2 pairs, geometric, not harmonic."""
    D = 64
    ours = [2 * math.pi / length for length in wavelengths(D)]
    assert len(ours) == D // 2
    assert 2 * len(ours) == table(torch.tensor([0]), D).shape[-1] == D  # k up to D would need 2 D columns
    ratios = [a / b for a, b in itertools.pairwise(ours)]
    assert ratios == pytest.approx([ratios[0]] * 31, rel=1e-6)
    steps = [a - b for a, b in itertools.pairwise(ours)]  # all equal, were it a Fourier series
    assert max(steps) > 5000 * min(steps)


def test_rope_code_mask() -> None:
    """rope, code: the attention layer hides nothing; right for a decoder: no output depends on later tokens."""
    x, joint, out, at = torch.randn(1, 5, 16), torch.randn(16, 48), torch.eye(16), torch.arange(5)
    later = x.clone()
    later[:, -1] += 1
    printed = [formulas.printed_attention(given, at, joint, out, heads=2) for given in (x, later)]
    assert far(printed[0][:, :-1], printed[1][:, :-1]) > 1e-3

    def causal(x: Tensor) -> Tensor:
        signal = RoPE(head_width=8).at(at)
        q, k, v = ((x @ w).unflatten(-1, (2, 8)).transpose(1, 2) for w in joint.split(16, dim=-1))
        q, k = signal.rotate(q, "query"), signal.rotate(k, "key")
        return attend(q, k, v, Score(signal, Rule())).transpose(1, 2).flatten(-2)

    assert torch.equal(causal(x)[:, :-1], causal(later)[:, :-1])
    q, k, v = (part[0, :, :8].double() for part in (x @ joint).split(16, dim=-1))
    rotated = (formulas.printed_rotator(part, at) for part in (q, k))
    assert_close("right", formulas.attention(*rotated, v, 8**-0.5, causal=True), causal(x)[0, :, :8], 1e-4)


def test_rope_code_layout() -> None:
    """rope, code: halves are rotated where the formulas rotate neighbours; right: say which, and permute to convert."""
    q, k, at = torch.randn(6, 16), torch.randn(6, 16), torch.arange(6)
    formula = turned(q, at).float() @ turned(k, at).float().T
    halves = torch.arange(16).view(8, 2).T.flatten()  # feature 2i to i, feature 2i+1 to i + 8
    printed, permuted = (
        formulas.printed_rotator(q[:, order], at) @ formulas.printed_rotator(k[:, order], at).T
        for order in (torch.arange(16), halves)
    )
    assert far(printed, formula) > 0.1
    assert_close("permuted", formula, permuted, 1e-4)
    assert_close(
        "ours", formula, turned(q[:, halves], at, layout="half") @ turned(k[:, halves], at, layout="half").T, 1e-4
    )
