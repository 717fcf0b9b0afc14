"""The table of architectures against transformers' own code: defaults, layer types, windows, widths, layout."""

from __future__ import annotations

import pytest
import torch
from transformers import CONFIG_MAPPING

from ropewalk.checkpoints.architectures.table import PARTS, TABLE, find, names, nearest
from ropewalk.checkpoints.resolve.hf import resolve
from tests.checkpoints.transformers_oracle import Theirs, compare, rotated, small

# What the smallest config of an architecture needs besides sizes.
NEEDED = {
    "deepseek_v2": {"qk_nope_head_dim": 32, "qk_rope_head_dim": 16},
    "deepseek_v3": {"qk_nope_head_dim": 32, "qk_rope_head_dim": 16},
    "glm4_moe_lite": {"qk_nope_head_dim": 32, "qk_rope_head_dim": 16},
    "mistral4": {
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 16,
        "rope_parameters": {
            "type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 1024,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.1,
        },
    },
    "ministral3": {"rope_parameters": {"rope_type": "default", "llama_4_scaling_beta": None}},
    "granitemoehybrid": {
        "layer_types": ["linear_attention", "full_attention"] * 6,
        "position_embedding_type": "rope",
    },
    "hunyuan_v1_dense": {"head_dim": 64, "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}},
    "hunyuan_v1_moe": {"head_dim": 64, "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}},
    "cohere2_moe": {"first_k_dense_replace": 3},
    "deepseek_v4": {"rope_theta": 54_321.0, "compress_ratios": [0, 128, 128, 4, 128, 4, 128, 4, 128, 4, 128, 4]},
    "glm5_next_text": {"num_key_value_heads": 4},
    "gpt_oss": {"rope_theta": 150_000.0},
    "granite_swa": {"rope_parameters": {"rope_type": "default", "rope_theta": 12_345.0}},
    "granitemoe_swa": {"rope_parameters": {"rope_type": "default", "rope_theta": 12_345.0}},
    "hy_v4": {"qk_nope_head_dim": 32, "qk_rope_head_dim": 16},
    "kimi_linear": {
        "linear_attn_config": {"full_attn_layers": [4, 8, 12], "kda_layers": [1, 2, 3, 5, 6, 7, 9, 10, 11]}
    },
    "mimo_v2_flash": {"sliding_window": 128, "sliding_window_size": 128},
    "mamba2": {"num_heads": 8, "head_dim": 64},
    # Without the part, transformers 5 rotates the whole head, whatever rotary_dim says.
    "minimax_m3_vl_text": {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
    "muse_glimmer_text": {"rope_parameters": {"rope_type": "default", "rope_theta": 12_345.0}},
    "nemotron_h": {"hybrid_override_pattern": "M-M*MEM-M*ME"},
    "step3p5": {
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention"] * 4,
        "sliding_window": 512,
        "rope_theta": [5e6, 10_000.0, 10_000.0] * 4,
        "partial_rotary_factors": [0.5, 1.0, 1.0] * 4,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 2.0,
            "original_max_position_embeddings": 1024,
            "low_freq_factor": 1.0,
            "high_freq_factor": 32.0,
        },
    },
    # transformers 5 takes this base for sliding layers whatever the config says.
    "olmo3": {"rope_theta": 500_000.0},
    "gptj": {"rotary_dim": 32},
    "codegen": {"rotary_dim": 32},
    "glm4v_moe_text": {"rope_parameters": {"rope_type": "default", "mrope_section": [4, 6, 6]}},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 6},
    "minimax": {"layer_types": ["linear_attention", "full_attention"] * 6},
    "lfm2": {"full_attn_idxs": [2, 5, 8]},
    "mllama_text_model": {"cross_attention_layers": [1, 5, 9]},
    "qwen2_5_omni_text": {"rope_scaling": {"type": "default", "mrope_section": [8, 12, 12]}},
    "qwen2_vl_text": {"rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]}},
    "qwen2_5_vl_text": {"rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]}},
    "qwen3_vl_text": {
        "rope_scaling": {"rope_type": "default", "mrope_section": [24, 20, 20], "mrope_interleaved": True}
    },
    "qwen3_vl_moe_text": {
        "rope_scaling": {"rope_type": "default", "mrope_section": [12, 10, 10], "mrope_interleaved": True}
    },
    "qwen3_5_text": {
        "rope_parameters": {"rope_type": "default", "mrope_section": [11, 11, 10], "mrope_interleaved": True}
    },
    "qwen3_5_moe_text": {
        "rope_parameters": {"rope_type": "default", "mrope_section": [11, 11, 10], "mrope_interleaved": True}
    },
}
ROPE = sorted(name for name, known in TABLE.items() if known.kind == "rope" and name in CONFIG_MAPPING)
STILL = {name for name in ROPE if TABLE[name].rotates == "none"}
"""Without positions."""
ELSEWHERE = {
    *("exaone", "internlm2", "internlm3", "kimi_k2", "minimax_text_01", "nemotron-nas", "neobert", "stablelm_epoch"),
}
"""Architectures whose code is not transformers'."""
WITHOUT_MODULE = {"gptj", "codegen"}
"""Their rotation is a function within attention."""


def config_of(name: str) -> dict:
    return small({"model_type": name, **NEEDED.get(name, {})}, TABLE[name])


def test_the_table_knows_what_transformers_knows() -> None:
    assert set(TABLE) - set(CONFIG_MAPPING) == ELSEWHERE
    assert set(PARTS) <= set(CONFIG_MAPPING)
    assert set(PARTS.values()) <= set(TABLE)


@pytest.mark.parametrize("name", [name for name in ROPE if name not in WITHOUT_MODULE])
def test_defaults_are_those_of_transformers(name: str) -> None:
    config = config_of(name)
    compare(resolve(config, arithmetic="float32").plan, Theirs(config))


@pytest.mark.parametrize("name", [name for name in ROPE if name not in WITHOUT_MODULE | STILL])
def test_layout_is_that_of_transformers(name: str) -> None:
    config = config_of(name)
    plan, theirs = resolve(config, arithmetic="float32").plan, Theirs(config)
    layer = next(layer for layer in plan.layers if layer.kind == "rope")
    kind = theirs.types(len(plan.layers))[plan.layers.index(layer)]
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 1, 7, layer.rotary_width or 0)
    at = torch.tensor([0, 1, 2, 5, 11, 100, 1000])
    ours = rotated(q, layer, at)[0, 0] @ rotated(k, layer, at)[0, 0].T
    score = theirs.scores(q, k, at, kind, 3 if TABLE[name].sections else 1).double()
    assert (score - ours).abs().max() < 2e-3 * ours.abs().max()


@pytest.mark.parametrize("name", ["deepseek_v2", "deepseek_v3", "mistral4"])
def test_gain_on_scores_is_that_of_transformers(name: str) -> None:
    scaling = {
        "type": "yarn",
        "factor": 40.0,
        "original_max_position_embeddings": 1024,
        "mscale": 1.0,
        "mscale_all_dim": 0.707,
    }
    config = {**config_of(name), "rope_parameters": scaling, "kv_lora_rank": 16, "q_lora_rank": 16, "v_head_dim": 32}
    layer = resolve(config).plan.layers[0]
    theirs = Theirs(config)
    attention = next(
        found for label, found in vars(theirs.modeling).items() if label.endswith("Attention") and label[0].isupper()
    )(theirs.config, 0)
    assert layer.head_width is not None
    assert attention.scaling == pytest.approx(layer.head_width**-0.5 * layer.logit_gain, rel=1e-12)


@pytest.mark.parametrize("name", sorted(WITHOUT_MODULE))
def test_a_rotation_without_a_module(name: str) -> None:
    """GPT-J's table of sines and cosines, position by position."""
    theirs = Theirs(config_of(name))
    layer = resolve(config_of(name)).plan.layers[0]
    assert (layer.layout, layer.rotary_width, layer.head_width) == ("pairs", 32, 64)
    table = theirs.modeling.create_sinusoidal_positions(100, 32)
    sin, cos = table[:, :16].double(), table[:, 16:].double()
    angles = torch.arange(100)[:, None].double() * torch.tensor(layer.frequencies, dtype=torch.float64)
    assert (angles.sin() - sin).abs().max() < 1e-5
    assert (angles.cos() - cos).abs().max() < 1e-5
    x = torch.randn(1, 100, 1, 32)
    turned = theirs.modeling.apply_rotary_pos_emb(x, sin.float()[None], cos.float()[None])
    assert (turned[0, :, 0].double() - rotated(x.transpose(1, 2), layer, torch.arange(100))[0, 0]).abs().max() < 1e-4


def test_names_and_nearest() -> None:
    assert "llama" in names()
    assert "gemma3" in names()
    assert find("llama") is TABLE["llama"]
    assert find("lama") is None
    assert nearest("lama") == " (did you mean 'llama'?)"
    assert nearest("zzzzzzzz") == ""
