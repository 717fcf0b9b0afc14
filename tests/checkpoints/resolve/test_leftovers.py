"""Keys that nothing reads: harmless by a list, or named in the answer; never dropped, and never the end of it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from transformers import CONFIG_MAPPING

from ropewalk.checkpoints.architectures.table import PARTS, TABLE
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.load.model import load
from ropewalk.checkpoints.resolve.hf import resolve
from ropewalk.checkpoints.resolve.resolved import Resolved
from tests.checkpoints import published

ROOT = Path(__file__).parents[3]
DUAL = {"chunk_size": 262_144, "local_size": 8192, "original_max_position_embeddings": 262_144}
PHI = {"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 128}


def found(name: str, **changes: Any) -> Resolved:
    return resolve({**published.config(name), **changes}, strict=False)


def test_the_list_is_made_of_the_installed_transformers() -> None:
    spec = importlib.util.spec_from_file_location("config_keys", ROOT / "scripts" / "config_keys.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    made = {"keys": script.config_keys(), "defaults": script.defaults(), "gguf": script.gguf_keys()}
    assert json.loads(script.TARGET.read_text(encoding="utf-8")) == made
    assert not script.ABOUT & script.BESIDE


@pytest.mark.parametrize(
    ("name", "key", "value", "says"),
    [
        ("qwen2.5-7b-instruct", "dual_chunk_attention_config", DUAL, "map distances past its chunk_size"),
        ("phi-3-mini-4k", "interpolate_factor", 2, "divides positions"),
        ("minimax-m2", "attn_type_list", [1] * 61 + [0], "linear attention (0)"),
        ("deepseek-v3", "mla_use_nope", True, "latent attention without rotation"),
        ("llama-3-8b", "sliding_window", 4096, "looks like a position setting"),
        ("llama-3-8b", "use_rope", False, "looks like a position setting"),
        ("llama-3-8b", "rope_tetha", 1e4, "did you mean 'rope_theta'?"),
        ("llama-3-8b", "per_layer_config", {"03": {"sliding_window": 5}}, "single layers"),
        ("command-r-v01", "head_dim", 64, "looks like a position setting"),
        ("bert-base-uncased", "is_decoder", True, "earlier tokens alone"),
    ],
)
def test_a_key_about_positions_is_named_beside_the_plan_and_no_model_is_built(
    name: str, key: str, value: Any, says: str
) -> None:
    plain, one = resolve(published.config(name)), found(name, **{key: value})
    assert one.plan == plain.plan
    assert list(one.not_understood) == [key]
    assert says in one.not_understood[key]
    with pytest.raises(BadInput, match=key):
        resolve({**published.config(name), key: value})


def test_load_refuses_a_key_about_positions_before_it_looks_for_weights(tmp_path) -> None:
    config = {**published.config("qwen2.5-0.5b"), "dual_chunk_attention_config": DUAL}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadInput, match="dual_chunk_attention_config"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("llama-3-8b", "max_seq_length", 2048),
        ("llama-3-8b", "use_rope", True),
        ("llama-3-8b", "sliding_window", 8192),
        ("llama-3-8b", "alibi", False),
        ("minimax-m2", "layernorm_full_attention_beta", 1.0),
        ("minimax-m2", "attn_type_list", [1] * 62),
        ("minimax-m2", "per_layer_config", {}),
        ("phi-3-mini-4k", "interpolate_factor", 1),
        ("command-r-v01", "head_dim", 128),
        ("bert-base-uncased", "is_decoder", False),
        ("llama-3-8b", "temperature", 0.6),
    ],
)
def test_what_is_known_to_say_nothing_is_no_matter(name: str, key: str, value: Any) -> None:
    one = found(name, **{key: value})
    assert (dict(one.not_understood), one.not_looked_at) == ({}, ())


def test_a_key_nobody_looked_at_is_named() -> None:
    one = resolve({**published.config("llama-3-8b"), "num_experts": 4, "some_new_gate": 0.5, "hidden_act": "silu"})
    assert one.not_looked_at == ("num_experts", "some_new_gate")


SAVED = sorted({*TABLE, *PARTS} & {*CONFIG_MAPPING})
HEADS, SECTIONS = "96 does not divide hidden_size 4096", "adds up to 32, the head has 64 frequencies"
UNREADABLE = {
    "glm46v": SECTIONS,
    "glm4_moe": HEADS,
    "glm4v": SECTIONS,
    "glm4v_moe": HEADS,
    "glm4v_moe_text": HEADS,
    "glm4v_text": SECTIONS,
    "lfm2_moe": "nothing else says which layers are full attention",
}
"""Architectures whose own default config is no model, and why."""


@pytest.mark.parametrize("name", SAVED)
def test_the_default_config_that_transformers_saves_is_read(name: str) -> None:
    config = json.loads(CONFIG_MAPPING[name]().to_json_string(use_diff=False))
    if name in UNREADABLE:
        with pytest.raises(BadInput, match=UNREADABLE[name]):
            resolve(config)
    else:
        one = resolve(config)
        assert one.not_looked_at == ()


@pytest.mark.parametrize(
    ("name", "sections"),
    [
        ("qwen2_vl_text", [16, 24, 24]),
        ("qwen2_5_vl_text", [16, 24, 24]),
        ("qwen3_vl_text", [24, 20, 20]),
        ("qwen3_5_text", [11, 11, 10]),
    ],
)
def test_axes_that_are_not_stated_are_those_of_transformers_code(name: str, sections: list[int]) -> None:
    config = CONFIG_MAPPING[name]()
    module = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    rotary = next(
        cls for label, cls in vars(module).items() if label.endswith("RotaryEmbedding") and "Vision" not in label
    )
    assert rotary(config=config).mrope_section == sections
    layers = resolve(json.loads(config.to_json_string(use_diff=False))).plan.layers
    rotating = next(layer for layer in layers if layer.base is not None)
    assert json.loads(rotating.settings)["sections"] == sections


@pytest.mark.parametrize("wide", [128, 512])
def test_gemma_4_saved_by_transformers_5_has_its_full_head_by_layer(wide: int) -> None:
    """transformers 5.22.2 writes no global_head_dim; per_layer_config has it."""
    saved = json.loads(CONFIG_MAPPING["gemma4_text"](global_head_dim=wide).to_json_string(use_diff=False))
    assert "global_head_dim" not in saved
    assert resolve(saved).plan.layers[-1].head_width == wide
    assert resolve(saved).plan.layers[0].head_width == 256
    with pytest.raises(BadInput, match="per_layer_config says"):
        resolve({**saved, "global_head_dim": 64})
    for other in ({"00": {"head_dim": 64}}, {**saved["per_layer_config"], "05": {"sliding_window": 3}}):
        with pytest.raises(BadInput, match="is not one head_dim"):
            resolve({**saved, "per_layer_config": other})


@pytest.mark.parametrize("value", [4, 1, True])
def test_llama_4_as_transformers_4_51_wrote_it(value: Any) -> None:
    """Scout's config states the number 4, and the code asks whether it is true."""
    config = published.config("llama-4-scout")
    stated = {**config, "text_config": {**config["text_config"], "attn_temperature_tuning": value}}
    assert resolve(stated).plan == resolve(config).plan
    off = {**config, "text_config": {**config["text_config"], "attn_temperature_tuning": 0}}
    assert "temperature" not in {layer.kind for layer in resolve(off).plan.layers}
