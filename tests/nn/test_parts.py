"""Norms, activations, feed-forward, placements and attention against their formulas in plain float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from ropewalk import encodings, positions
from ropewalk.attention import Rule
from ropewalk.encodings import NoPE, RoPE
from ropewalk.nn import MLP, Attention, Block, Core, Dropout, Residual, deepnorm, norm
from ropewalk.nn.embedding import Embedding
from ropewalk.nn.mlp import matched_hidden
from tests.closeness import assert_close


def randomised(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_norms(kind: str) -> None:
    """The standard deviation and the mean square of one token, epsilon inside the root."""
    module = randomised(norm(kind, 6, eps=1e-2))
    x = torch.randn(2, 3, 6)
    token = x[1, 2].double().numpy()
    weight = module.weight.detach().double().numpy()
    if kind == "layer":
        want = (token - token.mean()) / np.sqrt(token.var() + 1e-2) * weight + module.bias.detach().double().numpy()
    else:
        want = token / np.sqrt((token**2).mean() + 1e-2) * weight
    assert_close(kind, want.tolist(), module(x)[1, 2], 1e-6)


def off(found: torch.Tensor, want: torch.Tensor) -> float:
    return float((found.double() - want.double()).norm() / want.double().norm())


def test_a_layer_norm_of_bfloat16_learns_from_every_token() -> None:
    """torch's backward pass of LayerNorm on a CPU sums over tokens in bfloat16: off by a fifth or more."""
    x, weigh = torch.randn(20_000, 32).bfloat16(), torch.randn(20_000, 32)
    module, exact = randomised(norm("layer", 32)), norm("layer", 32).double()
    exact.load_state_dict(module.state_dict())
    (module(x).float() * weigh).sum().backward()
    (exact(x.double()) * weigh).sum().backward()
    assert module(x).dtype == torch.bfloat16
    for found, want in zip(module.parameters(), exact.parameters(), strict=True):
        assert off(found.grad, want.grad) < 0.01


@pytest.mark.parametrize("kind", ["tokens", "positions"])
def test_a_table_in_bfloat16_learns_from_every_row_it_is_read_for(kind: str) -> None:
    """As FSDP makes it; torch's CPU kernel adds one by one in that, and rounds most of the last ones away."""
    weigh = torch.rand(1, 4000, 16) + 0.5
    index = torch.randint(0, 2, (1, 4000))
    table: nn.Module = (
        Embedding(2, 16) if kind == "tokens" else encodings.build({"kind": "learned", "longest": 2}, width=16)
    )
    module, exact = table.bfloat16(), torch.zeros(2, 16, dtype=torch.float64)
    exact.index_add_(0, index[0], weigh[0].bfloat16().double())
    read = module(index if kind == "tokens" else positions.explicit(index, limit=2))
    assert read.dtype == torch.bfloat16
    read.backward(weigh.bfloat16())
    assert off(module.weight.grad, exact) < 0.01


def test_shifted_norm_of_float64_is_exact() -> None:
    shifted = norm("rms", 16, eps=1e-6, shifted=True).double()
    torch.nn.init.normal_(shifted.weight)
    x = torch.randn(3, 16, dtype=torch.float64)
    want = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * (1 + shifted.weight)
    assert (shifted(x) - want).abs().max() < 1e-14


def test_shifted_norm_keeps_small_weights_in_bfloat16() -> None:
    """1 + w of a bfloat16 weight of 0.001 is 1 in bfloat16; the product must have been formed in float32."""
    shifted = norm("rms", 512, shifted=True).to(torch.bfloat16)
    torch.manual_seed(0)
    torch.nn.init.uniform_(shifted.weight, -0.02, 0.02)
    x = torch.randn(64, 512).to(torch.bfloat16)
    wide, weight = x.double(), shifted.weight.double()
    want = wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * (1 + weight)
    error = (shifted(x).double() - want).abs() / want.abs().clamp(min=1e-6)
    assert error.max().item() < 2**-8, "one rounding to bfloat16 at the end"


def test_shifted_norm_starts_as_the_identity_weight() -> None:
    shifted, plain = norm("rms", 8, shifted=True), norm("rms", 8)
    x = torch.randn(4, 8)
    assert not shifted.weight.any()
    assert_close("shifted", plain(x), shifted(x), 1e-6)


@pytest.mark.parametrize(
    ("side", "counts", "want"),
    [
        ("encoder", {"encoder_layers": 12}, (24**0.25, 96**-0.25)),
        ("decoder", {"decoder_layers": 48}, (96**0.25, 384**-0.25)),
        (
            "encoder",
            {"encoder_layers": 6, "decoder_layers": 18},
            (0.81 * (6**4 * 18) ** 0.0625, 0.87 * (6**4 * 18) ** -0.0625),
        ),
        ("decoder", {"encoder_layers": 6, "decoder_layers": 18}, (54**0.25, 216**-0.25)),
    ],
)
def test_deepnorm_constants(side: str, counts: dict, want: tuple[float, float]) -> None:
    assert deepnorm(side, **counts) == pytest.approx(want, rel=1e-12)


def test_deepnorm_starts_values_outputs_and_ffn_smaller() -> None:
    """Beta is on FFN, value and output weights only: queries and keys start as ever."""
    torch.manual_seed(0)
    attention = Attention(256, 4, std=None, gain=0.1)
    q, k, v = attention.qkv.weight.detach().split(256)
    glorot = math.sqrt(2 / 512)
    assert q.std().item() == pytest.approx(glorot, rel=0.02)
    assert k.std().item() == pytest.approx(glorot, rel=0.02)
    assert v.std().item() == pytest.approx(0.1 * glorot, rel=0.02)
    assert attention.out.weight.std().item() == pytest.approx(0.1 * glorot, rel=0.02)
    mlp = MLP(256, 512, "relu", std=None, gain=0.1)
    assert mlp.up.weight.std().item() == pytest.approx(0.1 * math.sqrt(2 / 768), rel=0.02)


GATES = {
    "glu": lambda x: 1 / (1 + math.exp(-x)),
    "reglu": lambda x: max(0.0, x),
    "swiglu": lambda x: x / (1 + math.exp(-x)),
    "geglu": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "geglu-tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}
PLAIN = {"relu": GATES["reglu"], "swish": GATES["swiglu"], "gelu": GATES["geglu"], "gelu-tanh": GATES["geglu-tanh"]}


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", [*PLAIN, *GATES])
def test_feed_forward(name: str, fused: bool) -> None:
    mlp = randomised(MLP(5, 7, name, fused=fused))
    x = torch.randn(5)
    with torch.no_grad():
        if name in PLAIN:
            inner = [PLAIN[name](value) for value in mlp.up(x).tolist()]
        else:
            gate, values = mlp.up(x).chunk(2) if fused else (mlp.gate(x), mlp.up(x))
            inner = [GATES[name](g) * v for g, v in zip(gate.tolist(), values.tolist(), strict=True)]
        want = mlp.down(torch.tensor(inner))
        assert_close(name, want, mlp(x), 2e-6)


def test_a_gate_costs_what_no_gate_does() -> None:
    plain, gated = MLP(512, matched_hidden(512, "relu"), "relu"), MLP(512, matched_hidden(512, "swiglu"), "swiglu")
    sizes = [sum(p.numel() for p in m.parameters()) for m in (plain, gated)]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.04)


@pytest.mark.parametrize(
    ("placement", "formula"),
    [
        ("post", lambda x, f, r: r.after(x + f(x))),
        ("deep", lambda x, f, r: r.after(3.0 * x + f(x))),
        ("pre", lambda x, f, r: x + f(r.before(x))),
        ("sandwich", lambda x, f, r: x + r.branch(f(r.before(x)))),
        ("output", lambda x, f, r: x + r.branch(f(x))),
    ],
)
def test_placements(placement: str, formula) -> None:
    torch.manual_seed(0)
    residual = Residual(
        placement, lambda: randomised(nn.LayerNorm(6)), Dropout(0.0), 3.0 if placement == "deep" else 1.0
    )
    x, f = torch.randn(1, 4, 6), nn.Linear(6, 6)
    assert_close(placement, formula(x, f, residual), residual(x, f, positions.plain(4), None), 1e-6)


@pytest.mark.parametrize("shared", [True, False])
def test_parallel_block(shared: bool) -> None:
    torch.manual_seed(0)
    block = Block(
        Attention(8, 2),
        MLP(8, 16),
        lambda number: Residual("parallel", lambda: randomised(nn.LayerNorm(8)), Dropout(0.0)),
        shared_norm=shared,
    )
    signal = NoPE().at(torch.arange(5))
    x = torch.randn(1, 5, 8)
    first, second = block.residual_attention.before, block.residual_mlp.before
    assert (first is second) == shared
    want = x + block.attention(first(x), signal, Rule()) + block.mlp(second(x))
    assert_close("parallel", want, block(x, signal, Rule()), 1e-6)


@pytest.mark.parametrize("fused", [True, False])
def test_attention_is_its_heads_computed_apart(fused: bool) -> None:
    """Multi-head attention against one softmax at a time in float64, grouped keys and a value width of its own."""
    torch.manual_seed(0)
    attention = randomised(
        Attention(12, 4, key_heads=2, head_width=6, value_width=5, fused=fused, bias=True, core=Core(4, scale=0.3))
    )
    x = torch.randn(1, 7, 12)
    signal = RoPE(head_width=6).at(torch.arange(100, 107))
    with torch.no_grad():
        q, k, v = attention.project(x, x)
        q, k = signal.rotate(q, "query")[0].double(), signal.rotate(k, "key")[0].double()
        v = v[0].double()
        heads = []
        for h in range(4):
            scores = (q[h] @ k[h // 2].T * 0.3).masked_fill(torch.ones(7, 7).triu(1).bool(), -torch.inf)
            heads.append(torch.softmax(scores, -1) @ v[h // 2])
        joined = torch.cat(heads, dim=-1)
        want = joined @ attention.out.weight.double().T
        assert_close("attention", want[None], attention(x, signal, Rule()), 1e-5)


def test_fused_and_separate_weights_are_the_same_model() -> None:
    torch.manual_seed(0)
    fused, apart = Attention(16, 4, key_heads=2), Attention(16, 4, key_heads=2, fused=False)
    q, k, v = fused.qkv.weight.detach().split(fused.sizes)
    apart.load_state_dict({"q.weight": q, "k.weight": k, "v.weight": v, "out.weight": fused.out.weight})
    x, signal = torch.randn(2, 5, 16), NoPE().at(torch.arange(5))
    assert_close("fused", apart(x, signal, Rule()), fused(x, signal, Rule()), 1e-6)


def test_queries_turn_by_their_own_positions_whether_weights_are_fused_or_not() -> None:
    rope = RoPE(head_width=8)
    fused = randomised(Attention(16, 2, fused=True))
    apart = Attention(16, 2, fused=False)
    for letter, part in zip("qkv", fused.qkv.weight.split(fused.sizes), strict=True):
        getattr(apart, letter).weight.data.copy_(part)
    apart.out.weight.data.copy_(fused.out.weight)
    x = torch.randn(1, 6, 16)
    signal = rope.at(torch.arange(100, 106), torch.arange(90, 96))
    assert_close("fused", apart(x, signal, Rule(causal=False)), fused(x, signal, Rule(causal=False)), 1e-5)
