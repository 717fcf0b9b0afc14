"""Where the article `blocks` is misprinted or wrong; test_errata.py says how the places are counted."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from ropewalk.attention import Score, attend
from ropewalk.encodings import T5, build
from ropewalk.models import Transformer, TransformerConfig
from ropewalk.nn import MLP, deepnorm, norm
from ropewalk.nn.activation import PLAIN
from tests.articles import formulas
from tests.articles.ours import BOTH_WAYS, Deep, score, table
from tests.closeness import assert_close
from tests.encodings import oracles

D = 16


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_blocks_section_1_2_factor_two() -> None:
    """blocks, 1.2: 2 sin and 2 cos; right: no factor, or the values leave the [-1, 1] it promises."""
    ours = table(torch.arange(50), 8)
    right = torch.tensor([[oracles.sinusoid(t, f, 8, 1e4) for f in range(8)] for t in range(50)], dtype=torch.float64)
    assert_close("right", right, ours, 2e-7)
    assert ours.abs().max() <= 1 < (2 * right).abs().max()


def test_blocks_section_1_4_layer_norm() -> None:
    """blocks, 1.4: sigma is the variance, of the layer, without epsilon; right: sqrt(var + eps), token by token."""
    x = random(3, D) * torch.tensor([[1.0], [5.0], [50.0]], dtype=torch.float64)
    ours = norm("layer", D).double()
    rows = []
    for row in x.tolist():
        mean = sum(row) / D
        spread = math.sqrt(sum((v - mean) ** 2 for v in row) / D + 1e-5)
        rows.append([(v - mean) / spread for v in row])
    assert_close("right", rows, ours(x), 1e-12)
    by_variance = (x - x.mean(-1, keepdim=True)) / x.var(-1, correction=0, keepdim=True)
    by_layer = (x - x.mean()) / x.std(correction=0)
    for printed in (by_variance, by_layer):
        assert float((printed.var(-1, correction=0) - 1).abs().max()) > 0.5
    flat = torch.full((1, D), 3.0, dtype=torch.float64)
    assert bool(((flat - flat.mean()) / flat.std(correction=0)).isnan().all())
    for kind in ("layer", "rms"):
        assert bool(norm(kind, D).double()(0 * flat).isfinite().all())


@pytest.mark.parametrize("layers", [6, 18])
def test_blocks_section_1_4_deepnorm_values(layers: int) -> None:
    """blocks, 1.4: DeepNorm is LayerNorm(alpha x + f(x)); right: alpha = (2N)^(1/4), and beta = (8N)^(-1/4).

    At the start beta scales the weights of the feed-forward network, values and output, not of queries and keys.
    """
    assert deepnorm("decoder", decoder_layers=layers) == pytest.approx(((2 * layers) ** 0.25, (8 * layers) ** -0.25))
    encoder, decoder = (deepnorm(side, encoder_layers=layers, decoder_layers=6) for side in ("encoder", "decoder"))
    assert encoder == pytest.approx((0.81 * (layers**4 * 6) ** (1 / 16), 0.87 * (layers**4 * 6) ** (-1 / 16)))
    assert decoder == pytest.approx((18**0.25, 72**-0.25))
    built = TransformerConfig(width=64, heads=4, vocabulary=30, layers=layers, norm={"placement": "deep"}, std=0.1)
    first = Transformer(built).decoder.blocks[0]
    assert first.residual_attention.alpha == pytest.approx((2 * layers) ** 0.25)
    q, k, v = first.attention.qkv.weight.split(64)
    for weight, share in ((q, 1), (k, 1), *((w, (8 * layers) ** -0.25) for w in (v, first.attention.out.weight))):
        assert float(weight.detach().std()) == pytest.approx(0.1 * share, rel=0.1)
    for weight in (first.mlp.up.weight, first.mlp.down.weight):
        assert float(weight.detach().std()) == pytest.approx(0.1 * (8 * layers) ** -0.25, rel=0.1)


def test_blocks_section_1_4_deepnorm_update() -> None:
    """blocks, 1.4: DeepNorm with alpha alone; right: with beta, or one step of training moves the output too far."""

    def moved(alpha: float, beta: float) -> float:
        torch.manual_seed(1)
        stack = Deep("deep", 16, gain=beta, alpha=alpha)
        x, target = stack.data()
        before = stack.hidden(x)
        stack.loss(x, target).backward()
        torch.optim.SGD(stack.parameters(), lr=0.05).step()
        return float((stack.hidden(x) - before).detach().norm())

    alpha, beta = deepnorm("decoder", decoder_layers=8)  # a layer has two sublayers
    assert moved(alpha, 1.0) > 2 * moved(alpha, beta)
    assert moved(1.0, 1.0) > 4 * moved(alpha, beta)


@pytest.mark.parametrize("seed", [0, 1])
def test_blocks_section_1_4_post_norm(seed: int) -> None:
    """blocks, 1.4: post-norm converges faster and minds its settings less; right: that is pre-norm.

    With a small rate both learn; at ten times that, without warm-up, pre-norm learns and post-norm does not.
    """

    def trained(placement: str, rate: float) -> float:
        torch.manual_seed(seed)
        stack = Deep(placement, 12, last=placement == "pre")
        x, target = stack.data()
        optimizer = torch.optim.Adam(stack.parameters(), lr=rate)
        for _ in range(15):
            optimizer.zero_grad()
            stack.loss(x, target).backward()
            optimizer.step()
        return float(stack.loss(x, target).detach())

    post, pre = ([trained(placement, rate) for rate in (0.003, 0.03)] for placement in ("post", "pre"))
    assert post[0] == pytest.approx(pre[0], rel=0.15)  # no faster
    assert pre[1] < 0.5 * pre[0]
    assert post[1] > 2 * post[0]


def test_blocks_section_1_4_last_norm() -> None:
    """blocks, 1.4: a pre-norm stack is its blocks; right: and one more norm, since their sum grows with the depth."""
    x = torch.randn(4, 8, D)
    sizes = {
        last: [float(Deep("pre", n, last=last).hidden(x).detach().std()) for n in (4, 64)] for last in (False, True)
    }
    assert sizes[False][1] > 2 * sizes[False][0]
    assert sizes[True] == pytest.approx([1, 1], rel=0.01)
    for placement in ("pre", "sandwich", "post"):
        built = TransformerConfig(width=D, heads=2, vocabulary=30, layers=2, norm={"placement": placement})
        assert (Transformer(built).decoder.final_norm is None) == (placement == "post")


def integral(low: float, high: float, steps: int = 2000) -> float:
    """2 / sqrt(pi) times the integral of exp(-t^2), by Simpson's rule."""
    h = (high - low) / steps
    values = [math.exp(-((low + i * h) ** 2)) for i in range(steps + 1)]
    odd, even = sum(values[1:-1:2]), sum(values[2:-1:2])
    return 2 / math.sqrt(math.pi) * h / 3 * (values[0] + values[-1] + 4 * odd + 2 * even)


AT_X = [-3.0, -1.0, -0.2, 0.0, 0.5, 2.0]


def test_blocks_section_1_4_gelu() -> None:
    """blocks, 1.4: GELU(x) = 0.5 [1 + erf(x / sqrt 2)]; right: x times that."""
    ours = PLAIN["gelu"](torch.tensor(AT_X, dtype=torch.float64))
    share = [0.5 * (1 + integral(0, x / math.sqrt(2))) for x in AT_X]
    assert_close("right", [x * s for x, s in zip(AT_X, share, strict=True)], ours, 1e-9)
    assert ours[3] == 0 != share[3]  # as printed, 0 would give one half


def test_blocks_section_1_4_erf() -> None:
    """blocks, 1.4: erf(x) integrates from 1; right: from 0, or GELU is off by the integral from 0 to 1."""
    ours = PLAIN["gelu"](torch.tensor(AT_X, dtype=torch.float64))
    right, printed = ([x * 0.5 * (1 + integral(low, x / math.sqrt(2))) for x in AT_X] for low in (0, 1))
    assert_close("right", right, ours, 1e-9)
    assert abs(printed[-1] - float(ours[-1])) == pytest.approx(2.0 * 0.5 * math.erf(1), abs=1e-9)


def test_blocks_section_1_4_glu() -> None:
    """blocks, 1.4: a gated unit ends at the product; right: a down projection brings it back to the width."""
    mlp, x = MLP(D, 40, "swiglu", bias=False, std=0.5).double(), random(3, D)
    gate, up = (x @ part.T for part in mlp.up.weight.detach().chunk(2))
    printed = gate * torch.sigmoid(gate) * up
    assert_close("right", printed @ mlp.down.weight.detach().T, mlp(x), 1e-12)
    assert mlp(x).shape == x.shape
    with pytest.raises(RuntimeError, match="must match"):
        _ = x + printed


def test_blocks_section_1_4_t5() -> None:
    """blocks, 1.4: x_i W^Q W^K x_j^T + r_(i-j); right: W^K transposed, r of the bucket of j - i, and no 1/sqrt(d)."""
    x, wq, wk, L = random(40, 6), random(6, 4), random(6, 4), 40
    t5 = T5(heads=1, bidirectional=True).double().requires_grad_(False)
    r = t5.weight[:, 0].tolist()

    def weights(ahead: int, scale: float) -> Tensor:
        products = (x @ wq @ wk.T @ x.T * scale).tolist()
        buckets = [[oracles.t5_bucket(ahead * (j - i), 32, 128, True) for j in range(L)] for i in range(L)]
        return torch.tensor(
            [
                formulas.softmax([s + r[b] for s, b in zip(*row, strict=True)])
                for row in zip(products, buckets, strict=True)
            ],
            dtype=torch.float64,
        )

    unit = torch.eye(L, dtype=torch.float64)[None, None]
    q, k = (x @ wq)[None, None], (x @ wk)[None, None]
    ours = attend(q, k, unit, Score(t5.at(torch.arange(L)), BOTH_WAYS, scale=1.0))[0, 0]
    assert_close("right", weights(1, 1.0), ours, 1e-6)
    assert float((weights(-1, 1.0) - ours).abs().max()) > 0.1
    assert float((weights(1, 4**-0.5) - ours).abs().max()) > 0.1
    assert len({oracles.t5_bucket(-d, 32, 128, True) for d in range(1000)}) == 16  # not one number a distance
    # Where W^K is square the printed product exists, and ours is the other one.
    wq, wk = random(6, 6), random(6, 6)
    q, k = (x @ wq)[None, None], (x @ wk)[None, None]
    ours = attend(q, k, unit, Score(t5.at(torch.arange(L)), BOTH_WAYS, scale=1.0))[0, 0]
    bias = torch.tensor([[r[oracles.t5_bucket(j - i, 32, 128, True)] for j in range(L)] for i in range(L)])
    right, printed = ((x @ wq @ w @ x.T + bias).softmax(-1) for w in (wk.T, wk))
    assert_close("right, square", right, ours, 1e-6)
    assert float((printed - ours).abs().max()) > 0.1


def test_blocks_section_1_4_two_widths() -> None:
    """blocks, 1.4: H is the width of the model and of a head; right: rotations have the head's, K = width / heads."""
    rope = build("rope", width=64, heads=4, head_width=16)
    right, printed = ([1e4 ** (-2 * i / H) for i in range(H // 2)] for H in (16, 64))
    assert list(rope.layer_plan().frequencies) == pytest.approx(right, rel=1e-13)
    assert len(printed) != len(rope.layer_plan().frequencies)
    assert printed[1] != pytest.approx(right[1], rel=0.1)


def test_blocks_section_1_4_decay() -> None:
    """blocks, 1.4: RoPE decays with distance; right: a bound on its scores does, scores rise and fall.

    With h_i = q_i* k_i of a pair, h past the end being 0, and S_j the sum of the first j of e^(i distance theta), the
    score is at most max |h_(i+1) - h_i| times the sum of |S_j| (arXiv:2104.09864, 3.4.3).
    """
    q, k, omega = random(64), random(64), formulas.frequencies(64)
    h = torch.cat([torch.view_as_complex(q.view(-1, 2)).conj() * torch.view_as_complex(k.view(-1, 2)), torch.zeros(1)])
    scores, bounds = [], []
    for apart in range(200):
        partial = torch.polar(torch.ones_like(omega), apart * omega).cumsum(0)
        scores.append(score(q, k, 0, apart))
        bounds.append(float(h.diff().abs().max() * partial.abs().sum()))
    assert all(abs(s) <= b for s, b in zip(scores, bounds, strict=True))
    assert bounds[0] > 2 * max(bounds[50:])
    assert sum(abs(b) > abs(a) for a, b in itertools.pairwise(scores)) > 60
    assert max(abs(s) for s in scores[100:]) > abs(scores[0])
