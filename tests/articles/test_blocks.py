"""The article `blocks`: feed-forward, residuals, norms and where they stand, activations, encoder and decoder."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ropewalk import positions
from ropewalk.attention import Rule
from ropewalk.encodings import RoPE, build
from ropewalk.models import Transformer, TransformerConfig, preset
from ropewalk.nn import MLP, Attention, Dropout, Residual, norm
from ropewalk.nn.activation import PLAIN
from tests.articles import formulas
from tests.articles.ours import Deep
from tests.closeness import assert_close

D = 16
AT = positions.plain(8)

SCALAR: dict[str, Callable[[float], float]] = {
    "relu": lambda x: max(x, 0.0),
    "swish": lambda x: x / (1 + math.exp(-x)),
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
}


def linear(x: list[float], layer: nn.Linear) -> list[float]:
    offsets = [0.0] * layer.out_features if layer.bias is None else layer.bias.tolist()
    return [formulas.dot(row, x) + offset for row, offset in zip(layer.weight.tolist(), offsets, strict=True)]


def test_blocks_feed_forward_treats_each_token_alone_and_keeps_its_width() -> None:
    """blocks, 1.2: sigma(X W_U + b_1) W_D + b_2, token by token; rope: it sees no positions."""
    mlp, x = MLP(6, 20, "relu", std=0.5).double(), torch.randn(1, 4, 6, dtype=torch.float64)
    nn.init.normal_(mlp.up.bias)
    nn.init.normal_(mlp.down.bias)
    want = [linear([SCALAR["relu"](h) for h in linear(token, mlp.up)], mlp.down) for token in x[0].tolist()]
    assert_close("feed-forward", [want], mlp(x), 1e-12)
    assert_close("reordered", mlp(x)[:, [2, 0, 3, 1]], mlp(x[:, [2, 0, 3, 1]]), 1e-12)


@pytest.mark.parametrize("name", ["relu", "swish", "gelu"])
def test_blocks_activations(name: str) -> None:
    """blocks, 1.4: ReLU max(x, 0); Swish x sigmoid(x); GELU x times the normal distribution function."""
    at = torch.linspace(-6, 6, 49, dtype=torch.float64)
    assert_close(name, [SCALAR[name](x) for x in at.tolist()], PLAIN[name](at), 1e-12)


@pytest.mark.parametrize(
    ("kind", "gate"), [("glu", "sigmoid"), ("reglu", "relu"), ("swiglu", "swish"), ("geglu", "gelu")]
)
@pytest.mark.parametrize("fused", [True, False])
def test_blocks_gated_units_multiply_two_linear_maps_one_of_them_activated(kind: str, gate: str, fused: bool) -> None:
    """blocks, 1.4: g(x W_G) * (x W_U), and back to the width; g is sigmoid, ReLU, Swish or GELU."""
    mlp, x = MLP(6, 10, kind, bias=False, fused=fused, std=0.5).double(), torch.randn(3, 6, dtype=torch.float64)
    if fused:
        gates, values = mlp.up.weight.tolist()[:10], mlp.up.weight.tolist()[10:]
    else:
        gates, values = mlp.gate.weight.tolist(), mlp.up.weight.tolist()
    want = []
    for token in x.tolist():
        hidden = [
            SCALAR[gate](formulas.dot(g, token)) * formulas.dot(v, token) for g, v in zip(gates, values, strict=True)
        ]
        want.append(linear(hidden, mlp.down))
    assert_close(kind, want, mlp(x), 1e-12)


def test_blocks_relu_units_that_are_negative_everywhere_never_learn() -> None:
    """blocks, 1.4: a unit set to 0 gets no gradient; Swish and GELU still give it one."""
    sizes = {}
    for name in ("relu", "swish", "gelu"):
        mlp = MLP(6, 20, name, std=0.1)
        nn.init.constant_(mlp.up.bias, -3.0)
        mlp(torch.randn(50, 6)).square().sum().backward()
        sizes[name] = float(mlp.up.weight.grad.abs().max())
    assert sizes["relu"] == 0
    assert min(sizes["swish"], sizes["gelu"]) > 1e-6


class Counted(float):
    """A number that counts the operations made with it."""

    operations = 0

    @classmethod
    def _operate(cls, value: float) -> Counted:
        cls.operations += 1
        return cls(value)

    def __add__(self, other: float) -> Counted:
        return self._operate(float(self) + float(other))

    def __sub__(self, other: float) -> Counted:
        return self._operate(float(self) - float(other))

    def __mul__(self, other: float) -> Counted:
        return self._operate(float(self) * float(other))

    def __truediv__(self, other: float) -> Counted:
        return self._operate(float(self) / float(other))


def total(values: list[Counted]) -> Counted:
    result = values[0]
    for value in values[1:]:
        result = result + value
    return result


def layer_norm(x: list[Counted], weight: list[float], bias: list[float]) -> list[Counted]:
    mean = total(x) / len(x)
    centred = [value - mean for value in x]
    spread = math.sqrt(total([c * c for c in centred]) / len(x) + 1e-5)
    return [c / spread * w + b for c, w, b in zip(centred, weight, bias, strict=True)]


def rms_norm(x: list[Counted], weight: list[float]) -> list[Counted]:
    size = math.sqrt(total([value * value for value in x]) / len(x) + 1e-5)
    return [value / size * w for value, w in zip(x, weight, strict=True)]


def test_blocks_norms_and_what_they_cost() -> None:
    """blocks, 1.4: RMSNorm rescales by the root mean square alone: fewer operations, half the weights."""
    x, counts = torch.randn(D, dtype=torch.float64), {}
    for kind in ("layer", "rms"):
        module = norm(kind, D).double()
        for parameter in module.parameters():
            nn.init.normal_(parameter)
        weights = [parameter.tolist() for parameter in module.parameters()]
        Counted.operations = 0
        want = (layer_norm if kind == "layer" else rms_norm)([Counted(value) for value in x.tolist()], *weights)
        counts[kind] = Counted.operations
        assert_close(kind, [float(value) for value in want], module(x), 1e-12)
        assert sum(p.numel() for p in module.parameters()) == (2 * D if kind == "layer" else D)
    assert counts == {"layer": 7 * D + 1, "rms": 4 * D + 1}


def test_blocks_layer_norm_brings_each_token_to_mean_0_and_variance_1() -> None:
    """blocks, 1.2: each layer's values are moved and scaled to mean 0 and variance 1, token by token."""
    y = norm("layer", 64)(3 + 5 * torch.randn(4, 7, 64, dtype=torch.float64).float())
    assert_close("mean", torch.zeros(4, 7), y.mean(-1), 1e-6)
    assert_close("variance", torch.ones(4, 7), y.var(-1, correction=0), 1e-4)


@pytest.mark.parametrize("placement", ["post", "pre", "sandwich", "deep"])
def test_blocks_where_the_norm_stands(placement: str) -> None:
    """blocks, 1.4: Norm(x + f(x)); x + f(Norm(x)); x + Norm(f(Norm(x))); LayerNorm(alpha x + f(x))."""
    x, weight, alpha = torch.randn(1, 8, D), torch.randn(D, D), 1.7 if placement == "deep" else 1.0
    residual = Residual(placement, lambda: norm("layer", D), Dropout(0.0), alpha)

    def normal(x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()

    want = {
        "post": lambda: normal(x + x @ weight),
        "pre": lambda: x + normal(x) @ weight,
        "sandwich": lambda: x + normal(normal(x) @ weight),
        "deep": lambda: normal(1.7 * x + x @ weight),
    }[placement]()
    assert_close(placement, want, residual(x, lambda given: given @ weight, AT, None), 1e-5)


def test_blocks_residuals_keep_gradients_alive_at_depth() -> None:
    """blocks, 1.2: without the direct path from input to output the first of many layers gets no gradient."""
    shrunk = {p: Deep(p, 32).gradients()[0] / Deep(p, 2).gradients()[0] for p in (None, "pre", "post")}
    assert shrunk[None] < 1e-6
    assert 0.1 < shrunk["pre"] < 10
    assert 0.1 < shrunk["post"] < 10


def test_blocks_a_deep_post_norm_stack_keeps_its_last_gradient_and_a_pre_norm_stack_shrinks_it() -> None:
    """blocks, 1.4: before training, post-norm gives the last of 32 layers what it gives the last of 2; pre-norm less.

    Pre-norm divides by the size of a sum that grows with the depth (arXiv:2002.04745, theorem 1).
    """
    gain = 0.32**-0.25  # what keeps a ReLU sublayer's output as large as its input

    def last(placement: str, depth: int) -> float:
        stacks = (Deep(placement, depth, last=placement == "pre", gain=gain) for _ in range(8))
        return sum(stack.gradients()[-1] for stack in stacks) / 8

    assert 0.8 < last("post", 32) / last("post", 2) < 1.7
    assert last("pre", 32) / last("pre", 2) == pytest.approx(((1 + 2) / (1 + 32)) ** 0.5, rel=0.3)


def model(stack: str, **changes: object) -> Transformer:
    sizes = {"vocabulary": 30, "width": D, "heads": 2, "layers": 2, "std": None}
    return Transformer(TransformerConfig.model_validate({"stack": stack, **sizes, **changes})).double().eval()


@pytest.mark.parametrize("placement", ["post", "pre"])
def test_blocks_post_norm_gradients_are_large_near_the_output_and_pre_norm_gradients_are_not(placement: str) -> None:
    """blocks, 1.4: in the 2017 model before training, a post-norm decoder's last layer gets many times the gradient of
    its first; a pre-norm decoder's last layer gets less than its first."""
    built = preset(
        "vaswani2017", vocabulary=30, width=32, heads=4, hidden=128, norm={"kind": "layer", "placement": placement}
    )
    tokens, source, target = torch.randint(30, (3, 4, 16))
    whole = Transformer(built).eval()
    F.cross_entropy(whole(tokens, source=source).flatten(0, 1), target.flatten()).backward()
    first, *_, last = (float(block.mlp.down.weight.grad.norm()) for block in whole.decoder.blocks)
    assert last > 3 * first if placement == "post" else last < first


def test_blocks_encoder_sees_both_ways_and_decoder_only_back() -> None:
    """blocks, 1.3: a later token changes an encoder's earlier outputs and never a decoder's."""
    tokens = torch.randint(30, (1, 6))
    later = tokens.clone()
    later[0, -1] = (later[0, -1] + 1) % 30
    encoder, decoder = model("encoder"), model("decoder")
    assert (encoder(tokens) - encoder(later)).abs()[0, :-1].amax(-1).min() > 1e-6
    assert_close("decoder", decoder(tokens)[:, :-1], decoder(later)[:, :-1], 1e-13)


def test_blocks_one_pass_predicts_after_every_token_what_step_by_step_does() -> None:
    """blocks, 1.3: training takes one pass for all next tokens; generation gets the same numbers token by token."""
    decoder, tokens = model("decoder"), torch.randint(30, (1, 7))
    whole = decoder(tokens)
    cache = decoder.cache(1, 7, limit=7)
    for t in range(7):
        assert_close("prefix", whole[:, t], decoder(tokens[:, : t + 1])[:, -1], 1e-12)
        step = decoder(tokens[:, t : t + 1], positions.plain(1, start=t, limit=7), cache=cache)
        assert_close("cached", whole[:, t], step[:, 0], 1e-12)


def test_blocks_cross_attention_asks_the_decoder_and_reads_the_encoder() -> None:
    """blocks, 1.3: queries are projected from the decoder, keys and values from the encoder's output, all of it."""
    cross = Attention(D, 1, cross=True, fused=False, std=0.5).double()
    x, memory = torch.randn(1, 3, D, dtype=torch.float64), torch.randn(1, 5, D, dtype=torch.float64)
    q, k, v = x[0] @ cross.q.weight.T, memory[0] @ cross.k.weight.T, memory[0] @ cross.v.weight.T
    signal = build("none").at(torch.arange(3), torch.arange(5))
    want = formulas.attention(*(t.detach() for t in (q, k, v)), D**-0.5) @ cross.out.weight.detach().T
    assert_close("cross", want[None], cross(x, signal, Rule(causal=False), memory=memory), 1e-12)


def test_blocks_an_encoder_decoder_reads_its_whole_source_at_every_step() -> None:
    """blocks, 1.3: the last token of the source changes the decoder's first prediction."""
    both, source, target = model("encoder-decoder"), torch.randint(30, (1, 5)), torch.randint(30, (1, 4))
    other = source.clone()
    other[0, -1] = (other[0, -1] + 1) % 30
    assert (both(target, source=source) - both(target, source=other)).abs().amax(-1).min() > 1e-6


def test_blocks_absolute_positions_are_added_and_relative_ones_are_not() -> None:
    """blocks, 1.4: x_t = v_t + p_t for absolute positions; relative ones act on the scores, never on the vectors."""
    v = torch.randn(1, 4, D)
    learned = build({"kind": "learned", "longest": 4}, width=D)
    assert_close("learned", v[0] + learned.weight, learned.at(torch.arange(4), limit=4).embed(v)[0], 1e-6)
    for relative in (build("t5", heads=2), RoPE(head_width=8)):
        assert torch.equal(relative.at(torch.arange(4)).embed(v), v)
