"""Presets held to their papers: the same model as transformers' at its own defaults, weights and logits; and figures.

A preset's weights are loaded from a small random model of transformers whose config is the class's default but for the
sizes, so an activation, a norm, a scale or an epsilon that differs shows in the logits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from ropewalk.checkpoints.load.model import load
from ropewalk.models import Transformer, preset

SIZES: dict[str, dict[str, Any]] = {
    "bert": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256},
    "gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 4},
    "t5": {"d_model": 64, "num_layers": 2, "num_heads": 4, "d_kv": 16, "d_ff": 256},
    "bloom": {"hidden_size": 64, "n_layer": 2, "n_head": 4},
    "llama": {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 256,
        # Llama 3.2 1B: what its config.json says beyond LlamaConfig's defaults, which are Llama 1's.
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
    },
}
CLASSES = {
    "bert": (transformers.BertConfig, transformers.BertForMaskedLM),
    "gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel),
    "t5": (transformers.T5Config, transformers.T5ForConditionalGeneration),
    "bloom": (transformers.BloomConfig, transformers.BloomForCausalLM),
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
}
SMALL: dict[str, Any] = {"width": 64, "heads": 4, "hidden": 256, "layers": 2, "vocabulary": 97}


def theirs(name: str) -> Any:
    config, model = CLASSES[name]
    torch.manual_seed(0)
    built = model(config(**SIZES[name], vocab_size=97)).eval()
    with torch.no_grad():
        for parameter in built.parameters():
            # Larger than they start, so that an epsilon or an activation matters; norms away from 1.
            parameter.normal_(1.0 if parameter.ndim == 1 else 0.0, 0.15)
    return built


@pytest.mark.parametrize("name", CLASSES)
def test_a_preset_computes_what_the_paper_s_model_does(name: str, tmp_path: Path) -> None:
    model = theirs(name)
    model.save_pretrained(tmp_path)
    weights = load(tmp_path).state_dict()
    more = {"key_heads": 2} if name == "llama" else {"head_width": 16}
    ours = Transformer(preset(name, **SMALL, **more)).eval()
    missing = ours.load_state_dict(weights, strict=False)
    assert not missing.missing_keys
    assert not missing.unexpected_keys
    tokens = torch.randint(97, (2, 40), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        if name == "t5":
            source = tokens.flip(1)
            want = model(input_ids=source, decoder_input_ids=tokens).logits
            got = ours(tokens, source=source)
        else:
            want, got = model(tokens).logits, ours(tokens)
    torch.testing.assert_close(got, want, rtol=0, atol=2e-5 * want.abs().max().item())


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("gpt2", 124_439_808),  # transformers' gpt2; "117M" in the paper's table was corrected to 124M
        ("t5", 60_506_624),  # t5-small, "60 million" in arXiv:1910.10683
        ("bloom", 559_214_592),  # bigscience/bloom-560m
        ("llama", 1_235_814_400),  # Llama 3.2 1B, its card's 1.23B
    ],
)
def test_a_preset_has_the_published_number_of_weights(name: str, published: int) -> None:
    with torch.device("meta"):
        model = Transformer(preset(name))
    assert sum(parameter.numel() for parameter in model.parameters()) == published


def test_the_base_model_of_2017() -> None:
    """Table 3 of arXiv:1706.03762 and sections 3.4, 5.4."""
    config = preset("vaswani2017")
    assert (config.width, config.hidden, config.heads, config.head_width) == (512, 2048, 8, 64)
    assert [len(config.layer_kinds(side)) for side in ("encoder", "decoder")] == [6, 6]
    assert (config.norm.kind, config.norm.placement, config.activation) == ("layer", "post", "relu")
    assert (config.dropout.embedding, config.dropout.residual, config.dropout.attention) == (0.1, 0.1, 0.0)
    assert config.scale_embedding
    assert config.tie
    model = Transformer(preset("vaswani2017", vocabulary=50, layers=1)).eval()
    # Section 3.4: embeddings times sqrt(d_model), then the sinusoids; position 3, features 0 and 1 at frequency 1.
    x = model.embed(torch.tensor([[1]]))
    torch.testing.assert_close(x, model.tokens.weight[1] * 512**0.5 + torch.zeros_like(x))


def test_deepnet_has_200_layers_of_2022() -> None:
    """Figure 2 of arXiv:2203.00555, encoder-decoder: N = M = 100 gives alpha 0.81 (N^4 M)^(1/16) and (3 M)^(1/4)."""
    config = preset("deepnet")
    assert [len(config.layer_kinds(side)) for side in ("encoder", "decoder")] == [100, 100]
    assert (config.norm.placement, config.activation, config.width) == ("deep", "relu", 512)


@pytest.mark.parametrize(
    ("changes", "std"),
    [
        ({"std": 0.02}, 0.02),
        ({"std": None}, 512**-0.5),
        ({"std": 0.02, "scale_embedding": True}, 512**-0.5),
    ],
)
def test_the_token_table_starts_where_the_config_says(changes: dict[str, Any], std: float) -> None:
    torch.manual_seed(0)
    model = Transformer(preset("llama", vocabulary=2000, width=512, heads=8, key_heads=8, layers=1, **changes))
    assert model.tokens.weight.std().item() == pytest.approx(std, rel=0.01)
    assert model.tokens.weight.mean().abs().item() < 0.01 * std
