"""Options that real checkpoints need and the articles do not name, each against its formula."""

from __future__ import annotations

import pytest
import torch

from ropewalk.models import Transformer, TransformerConfig
from ropewalk.nn import AcrossHeads

SMALL = {"vocabulary": 31, "width": 24, "heads": 4, "layers": 2, "hidden": 40}
TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


def test_a_norm_across_heads_sees_all_heads_of_a_token() -> None:
    x = torch.randn(2, 4, 5, 6)
    got = AcrossHeads(torch.nn.RMSNorm(24, eps=1e-6))(x)
    for b in range(2):
        for place in range(5):
            token = x[b, :, place].flatten().double()
            want = token / (token.pow(2).mean() + 1e-6).sqrt()
            torch.testing.assert_close(got[b, :, place].flatten().double(), want, atol=1e-6, rtol=1e-6)


def test_biases_are_where_they_are_asked_for() -> None:
    model = Transformer(TransformerConfig(**SMALL, qkv_bias=True))
    biases = {name.split("blocks.")[1].split(".", 1)[1] for name in model.state_dict() if name.endswith("bias")}
    assert biases == {"attention.qkv.bias"}
    every = Transformer(TransformerConfig(**SMALL, bias=True, out_bias=False))
    biases = {name.split("blocks.")[1].split(".", 1)[1] for name in every.state_dict() if name.endswith("bias")}
    assert biases == {"attention.qkv.bias", "mlp.up.bias", "mlp.down.bias"}


def test_types_are_added_to_the_tokens() -> None:
    model = Transformer(TransformerConfig(**SMALL, stack="encoder", types=3))
    types = torch.tensor([[0, 0, 1, 1, 2, 2, 0, 1]])
    weight = model.tokens.weight[TOKENS] + model.get_submodule("types").weight[types]
    torch.testing.assert_close(model.embed(TOKENS, types), weight)
    torch.testing.assert_close(model(TOKENS), model(TOKENS, types=torch.zeros_like(TOKENS)))
    assert not torch.equal(model(TOKENS), model(TOKENS, types=types))
    with pytest.raises(ValueError, match="knows no types of text"):
        Transformer(TransformerConfig(**SMALL))(TOKENS, types=types)


@pytest.mark.parametrize("activation", ["gelu", "geglu"])
def test_output_is_transformed_biased_and_capped(activation: str) -> None:
    config = TransformerConfig(
        **SMALL, stack="encoder", activation=activation, output_transform=True, output_bias=True, output_cap=2.0
    )
    model = Transformer(config)
    with torch.no_grad():
        model.get_parameter("output_bias").normal_()
    x = model.hidden(TOKENS)
    linear, norm = model.get_submodule("transform.linear"), model.get_submodule("transform.norm")
    vectors = norm(torch.nn.functional.gelu(linear(x)))
    want = 2.0 * torch.tanh((vectors @ model.tokens.weight.T + model.get_parameter("output_bias")) / 2.0)
    torch.testing.assert_close(model(TOKENS), want)


def test_without_an_output_map_the_answer_is_the_last_vectors() -> None:
    model = Transformer(TransformerConfig(**SMALL, stack="encoder", output=False))
    assert model.head is None
    torch.testing.assert_close(model(TOKENS), model.hidden(TOKENS))
