"""Whole configs: where each is from, and that saving one again with every default of transformers changes no plan."""

from __future__ import annotations

import re

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModel

from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.resolve.hf import resolve
from tests.checkpoints import published

PLANS = published.plans()
SOURCES = published.sources()
# transformers 5 reads neither Phi-3's first name of longrope nor LLaVA's first spelling, and refuses the heads of
# Falcon-H1's state-space branch; Gemma's window has a test.
SAVED_AGAIN = [
    name
    for name in published.names()
    if not PLANS[name].startswith("error")
    and published.config(name)["model_type"] in CONFIG_MAPPING
    and name not in ("phi-3-mini-128k-su", "llava-v1.5-7b", "embeddinggemma-300m", "falcon-h1-0.5b")
]


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_a_whole_config_says_where_it_is_from(name: str) -> None:
    source = SOURCES[name]
    assert set(source) <= {"repository", "path", "commit", "note"}
    assert re.fullmatch(r"[\w.-]+/[\w.-]+", source["repository"])
    assert re.fullmatch(r"[0-9a-f]{40}", source["commit"])
    config = published.config(name)
    written_by_transformers = {"architectures", "transformers_version", "torch_dtype", "dtype", "use_cache"}
    assert len(written_by_transformers & config.keys()) >= 2
    assert sum(len(value) if isinstance(value, dict) else 1 for value in config.values()) >= 19


def test_saving_again_covers_the_corpus() -> None:
    assert len(SAVED_AGAIN) >= 90


@pytest.mark.parametrize("name", SAVED_AGAIN)
def test_a_config_saved_again_by_transformers_has_the_same_plan(name: str) -> None:
    config = published.config(name)
    again = published.resaved(config)
    assert len(again) > len(config) or name in SOURCES  # blocks become whole
    assert published.said(resolve(again, name=name)) == PLANS[name]


def test_a_window_that_was_halved_when_it_was_saved() -> None:
    """transformers 4.57 wrote 257 for the published 512 of the embedding Gemma; loading that makes it 129."""
    config = published.config("embeddinggemma-300m")
    assert config["sliding_window"] == 512 // 2 + 1
    found = resolve(config)
    made = CONFIG_MAPPING["gemma3_text"].from_dict(published.config("embeddinggemma-300m"))
    assert found.plan.layers[0].window == made.sliding_window == 129
    assert any("257 is odd" in note and "was it 512?" in note for note in found.notes)
    assert not any("is odd" in note for note in resolve({**config, "sliding_window": 512}).notes)


def test_the_gain_of_phimoe_is_the_one_it_states() -> None:
    """transformers multiplies cos and sin by short_mscale and long_mscale, and never leaves the short list."""
    from transformers.models.phimoe.modeling_phimoe import PhimoeRotaryEmbedding

    config = published.config("phi-3.5-moe")
    layer = resolve(config, arithmetic="float32").plan.for_length(4096).layers[0]
    made = CONFIG_MAPPING["phimoe"].from_dict(published.config("phi-3.5-moe"))
    cos, sin = PhimoeRotaryEmbedding(made)(torch.zeros(1), torch.tensor([[3000]]))
    angles = 3000 * torch.tensor(layer.frequencies)
    assert torch.equal(cos[0, 0, :64], angles.cos() * layer.rotary_gain)
    assert torch.equal(sin[0, 0, :64], angles.sin() * layer.rotary_gain)
    for broken in ({"long_mscale": 1.5}, {"short_mscale": None}):
        with pytest.raises(BadInput, match="mscale"):
            resolve({**config, "rope_scaling": {**config["rope_scaling"], **broken}})


def test_keys_that_say_again_what_the_code_does() -> None:
    """GPT-NeoX saved by transformers 4.45 has its fraction and base twice; Granite says that it rotates."""
    pythia = published.config("pythia-6.9b")
    for key, value in (("partial_rotary_factor", 0.5), ("rope_theta", 20_000)):
        with pytest.raises(BadInput, match=key):
            resolve({**pythia, key: value})
    with pytest.raises(BadInput, match="the base is missing"):
        resolve({key: value for key, value in pythia.items() if key != "rotary_emb_base"})
    with pytest.raises(BadInput, match="position_embedding_type"):
        resolve({**published.config("granite-5.0-230b"), "position_embedding_type": "nope"})
    liquid = published.config("lfm2.5-vl-1.6b")
    assert "use_pos_enc" not in resolve(liquid).not_looked_at
    with pytest.raises(BadInput, match="use_pos_enc"):
        resolve({**liquid, "text_config": {**liquid["text_config"], "use_pos_enc": False}})


def test_a_decoder_that_sees_later_tokens() -> None:
    """transformers 5 reads is_causal on any decoder, here its Qwen2: the first token's output depends on the last."""
    config = published.config("gte-qwen2-7b")
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    made = CONFIG_MAPPING["qwen2"].from_dict({**config, **sizes, "num_key_value_heads": 1, "vocab_size": 8})
    torch.manual_seed(0)
    model = AutoModel.from_config(made).eval().float()
    one, other = (model(torch.tensor([[1, 2, last]])).last_hidden_state[0, 0] for last in (3, 4))
    assert not torch.equal(one, other)
    found = resolve(config)
    assert found.stack == "encoder"
    assert set(found.plans) == {"encoder"}
    assert "is_causal false" in str(found.refusal)
    assert resolve({**config, "is_causal": True}).stack == "decoder"
    with pytest.raises(BadInput, match="is_causal"):
        resolve({**config, "use_sliding_window": True})
    with pytest.raises(BadInput, match="is_causal"):
        resolve({**published.config("gpt2"), "is_causal": False})
    assert resolve({**published.config("gpt2"), "is_causal": True}).not_looked_at == ()


def test_a_deepseek_without_latent_attention() -> None:
    """DeepSeek-VL2-tiny's text part says use_mla false and widths of 0: neither is an error of the config."""
    part = published.config("deepseek-vl2-tiny")["language_config"]
    assert part["qk_rope_head_dim"] == 0
    with pytest.raises(BadInput, match="use_mla: is false: heads without latent attention"):
        resolve(part)
    lite = published.config("deepseek-v2-lite")
    assert published.said(resolve({**lite, "use_mla": True})) == PLANS["deepseek-v2-lite"]
