"""What the model types of 2025 and 2026 do with positions that earlier ones do not."""

from __future__ import annotations

import importlib
import inspect
import json
from typing import Any

import pytest
from transformers import CONFIG_MAPPING

from ropewalk.checkpoints.architectures.table import TABLE
from ropewalk.checkpoints.engines import readings
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.resolve.hf import resolve
from ropewalk.checkpoints.resolve.keys import Keys
from ropewalk.checkpoints.resolve.layers import read_layers
from ropewalk.checkpoints.resolve.part import find_part
from tests.checkpoints.transformers_oracle import Theirs


def saved(name: str, **settings: Any) -> dict[str, Any]:
    """As transformers writes it."""
    return json.loads(CONFIG_MAPPING[name](**settings).to_json_string(use_diff=False))


@pytest.mark.parametrize(
    ("name", "indexer"), [("deepseek_v32", "DeepseekV32Indexer"), ("glm_moe_dsa", "GlmMoeDsaIndexer")]
)
def test_the_rotation_of_an_indexer_is_told(name: str, indexer: str) -> None:
    code = inspect.getsource(getattr(importlib.import_module(f"transformers.models.{name}.modeling_{name}"), indexer))
    pairs = "apply_rotary_pos_emb_interleave(" in code
    assert TABLE[name].indexer == ("pairs" if pairs else "half")
    found = resolve(saved(name))
    (said,) = [note for note in found.notes if note.startswith("indexed_attention")]
    assert f"the first 64 of its 128 features in {'pairs' if pairs else 'half'} layout" in said
    assert {(layer.kind, layer.layout, layer.rotary_width) for layer in found.plan.layers} == {("rope", "pairs", 64)}


@pytest.mark.parametrize("stated", ["nope", None])
def test_granite_4_hybrids_rotate_only_where_they_say_so(stated: str | None) -> None:
    types = ["mamba", "mamba", "attention", "mamba"]
    config = {
        **saved("granitemoehybrid", num_hidden_layers=4),
        "layer_types": types,
        "position_embedding_type": "rope",
    }
    assert [layer.kind for layer in resolve(config).plan.layers] == ["none", "none", "rope", "none"]
    found = resolve({**config, "position_embedding_type": stated})
    assert [layer.kind for layer in found.plan.layers] == ["none"] * 4
    assert any("no layer rotates" in note for note in found.notes)
    code = inspect.getsource(importlib.import_module("transformers.models.granitemoehybrid.modeling_granitemoehybrid"))
    assert 'config.position_embedding_type == "rope"' in code


@pytest.mark.parametrize("alpha", [1000.0, 50])
def test_alpha_of_hunyuan_is_a_fixed_base(alpha: float) -> None:
    config = saved("hunyuan_v1_dense", head_dim=128)
    config["rope_parameters"] = {"rope_type": "dynamic", "alpha": alpha, "rope_theta": 10_000.0, "factor": 1.0}
    layer = resolve(config, arithmetic="float32").plan.layers[0]
    assert str(layer.scaling) == f"ntk x{alpha:g}"
    assert layer.resolved  # one list of frequencies for all lengths
    assert list(layer.frequencies) == Theirs(config).frequencies("full_attention")[0]
    with pytest.raises(BadInput, match=r"alpha: 0.5 is not a factor of at least 1"):
        resolve({**config, "rope_parameters": {**config["rope_parameters"], "alpha": 0.5}})


def test_dynamic_without_alpha_stays_dynamic() -> None:
    config = saved("hunyuan_v1_dense", head_dim=128)
    config["rope_parameters"] = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10_000.0}
    assert not resolve(config).plan.layers[0].resolved


def test_layers_that_rotate_by_their_windows_need_a_width() -> None:
    with pytest.raises(BadInput, match="sliding_window: is null, and which layers of afmoe rotate goes by windows"):
        resolve({**saved("afmoe"), "sliding_window": None, "layer_types": None})


def test_laguna_has_a_rotation_for_each_type_of_layer() -> None:
    types = ["full_attention", "sliding_attention"] * 20
    layers = resolve(saved("laguna", layer_types=types)).plan.layers
    assert [(layer.base, layer.rotary_width, layer.window) for layer in layers[:2]] == [
        (500_000.0, 64, None),
        (10_000.0, 128, 512),
    ]


def test_an_indexer_may_rotate_its_last_features() -> None:
    found = resolve(saved("hy_v4"))
    (said,) = [note for note in found.notes if note.startswith("indexed_attention")]
    assert "it rotates the last 64 of its 128 features in half layout" in said
    code = inspect.getsource(importlib.import_module("transformers.models.hy_v4.modeling_hy_v4").HYV4Indexer)
    assert "q_pass, q_rot = torch.split(q, [self.head_dim - self.qk_rope_head_dim, self.qk_rope_head_dim]" in code
    assert "apply_rotary_pos_emb(q_rot, k_rot, cos, sin" in code


def test_an_indexer_beside_linear_layers() -> None:
    sizes = {"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 128, "indexer_budget": 256}
    rope = {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25}
    found = resolve(saved("qwen4_exp_text", **sizes, indexer_compress_ratio=16, rope_parameters=rope))
    (said,) = [note for note in found.notes if note.startswith("indexed_attention")]
    assert "each of its keys is the mean of 16 tokens, rotated at the position of the first" in said
    assert [layer.kind for layer in found.plan.layers[:4]] == ["none", "none", "none", "rope"]
    assert not any("indexed" in note for note in resolve(saved("qwen4_exp_text")).notes)  # no indexer by default


def test_minimax_m3_says_which_layers_have_an_indexer() -> None:
    config = saved("minimax_m3_vl_text", num_hidden_layers=4)
    del config["layer_types"]
    config["sparse_attention_config"] = {"sparse_attention_freq": [0, 0, 1, 1]}
    theirs = CONFIG_MAPPING["minimax_m3_vl_text"].from_dict(config)
    assert theirs.layer_types == ["full_attention", "full_attention", "minimax_m3_sparse", "minimax_m3_sparse"]
    assert any("indexed_attention" in note for note in resolve(config).notes)
    config["sparse_attention_config"]["sparse_attention_freq"] = [0, 0, 1, 2]
    with pytest.raises(BadInput, match=r"sparse_attention_config.sparse_attention_freq\[3\]: 2 is not known"):
        resolve(config)


def test_letters_name_the_layers_of_a_hybrid() -> None:
    config = {**saved("nemotron_h"), "hybrid_override_pattern": "M-*E"}
    del config["layers_block_type"]
    theirs = CONFIG_MAPPING["nemotron_h"](hybrid_override_pattern="M-*E")
    assert theirs.layer_types == ["linear_attention", "mlp", "full_attention", "moe"]
    assert [layer.kind for layer in resolve(config).plan.layers] == ["none"] * 4
    with pytest.raises(BadInput, match=r"hybrid_override_pattern\[1\]: 'X' is not known; there are 'M' linear"):
        resolve({**config, "hybrid_override_pattern": "MX*E"})
    with pytest.raises(BadInput, match="is not one mark for each of 52 layers"):
        resolve({**config, "num_hidden_layers": 52})
    with pytest.raises(BadInput, match="makes layer 0 linear_attention, and layers_block_type says full_attention"):
        resolve({**config, "layers_block_type": ["full_attention", "mlp", "full_attention", "moe"]})


def test_a_period_has_an_offset() -> None:
    config = saved("jamba")
    with pytest.raises(BadInput, match="attn_layer_offset: is 8, and attn_layer_period is 8"):
        resolve({**config, "attn_layer_offset": 8})
    keys = part_keys(config)
    assert list(read_layers(keys, TABLE["jamba"], 32, []).types) == CONFIG_MAPPING["jamba"]().layer_types


def part_keys(config: dict[str, Any]) -> Keys:
    return find_part(config, "config.json").keys


def test_kimi_counts_layers_from_one() -> None:
    config = saved("kimi_linear", num_hidden_layers=4)
    del config["layer_types"]
    config["linear_attn_config"] = {"full_attn_layers": [4], "kda_layers": [1, 2, 3]}
    theirs = CONFIG_MAPPING["kimi_linear"].from_dict(dict(config)).layer_types
    assert list(read_layers(part_keys(config), TABLE["kimi_linear"], 4, []).types) == theirs
    assert theirs == ["linear_attention"] * 3 + ["full_attention"]
    config["linear_attn_config"]["kda_layers"] = [1, 2]
    with pytest.raises(BadInput, match="do not name each of 4 layers once"):
        resolve(config)


def test_a_base_for_each_layer_and_none_for_zero() -> None:
    bases = [0, 10_000.0, 10_000.0, 500_000.0]
    config = saved("granite_swa", num_hidden_layers=4, layer_rope_theta=bases)
    layers = resolve(config, arithmetic="float32").plan.layers
    assert [layer.base for layer in layers] == [None, 10_000.0, 10_000.0, 500_000.0]
    modeling = importlib.import_module("transformers.models.granite_swa.modeling_granite_swa")
    made = CONFIG_MAPPING["granite_swa"](hidden_size=64, num_attention_heads=2, num_key_value_heads=1, vocab_size=8)
    tiny = CONFIG_MAPPING["granite_swa"].from_dict(
        {
            **made.to_dict(),
            "num_hidden_layers": 4,
            "layer_types": None,
            "layer_rope_theta": bases,
            "intermediate_size": 8,
        }
    )
    theirs = {one.config.rope_parameters["rope_theta"]: one for one in modeling.GraniteSWAModel(tiny).rotary_embs}
    ours = resolve(json.loads(tiny.to_json_string(use_diff=False)), arithmetic="float32").plan.layers
    for layer in ours[1:]:
        assert list(layer.frequencies) == theirs[layer.base].inv_freq.tolist()
    with pytest.raises(BadInput, match=r"layer_rope_theta\[1\]: 0.5 is neither 0 nor a base"):
        resolve({**config, "layer_rope_theta": [0, 0.5, 0, 0]})
    with pytest.raises(BadInput, match="is not one base for each of 4 layers"):
        resolve({**config, "layer_rope_theta": [0.0]})


def test_bases_that_only_mark_layers_must_be_the_common_one() -> None:
    config = saved("muse_glimmer_text", num_hidden_layers=4)
    assert [layer.kind for layer in resolve(config).plan.layers] == ["rope", "rope", "rope", "none"]
    with pytest.raises(
        BadInput, match=r"has 500000.0, and transformers' muse_glimmer_text rotates by rope_theta 10,000"
    ):
        resolve({**config, "layer_rope_theta": [500_000.0, 0, 0, 0]})


def test_a_window_that_does_not_count_the_query() -> None:
    config = {**saved("mimo_v2_flash"), "sliding_window": 128, "sliding_window_size": 128}
    windows = {layer.window for layer in resolve(config).plan.layers}
    assert windows == {None, CONFIG_MAPPING["mimo_v2_flash"].from_dict(dict(config)).sliding_window} == {None, 129}
    with pytest.raises(BadInput, match="sliding_window_size: is 128, the tokens before the query, and sliding_window"):
        resolve({**config, "sliding_window": 512})
    del config["layer_types"]
    pattern = [0, 1, 1, 1, 1] + [0, 1, 1, 1, 1, 1] * 7 + [0]
    assert resolve({**config, "hybrid_layer_pattern": pattern}).plan == resolve(config).plan
    with pytest.raises(BadInput, match="hybrid_layer_pattern: is not the pattern that transformers' mimo_v2_flash has"):
        resolve({**config, "hybrid_layer_pattern": [1] * 48})


@pytest.mark.parametrize("every", [1, 2])
def test_dense_layers_before_the_experts_may_rotate_whatever_their_type(every: int) -> None:
    config = saved("cohere2_moe", prefix_dense_sliding_window_pattern=every, first_k_dense_replace=4)
    kinds = [layer.kind for layer in resolve(config).plan.layers[:8]]
    rest = ["rope", "rope", "rope", "none"]
    assert kinds == (["rope"] * 4 + rest if every == 1 else ["rope", "none"] * 2 + rest)


def test_step_has_lists_of_bases_and_parts() -> None:
    config = saved(
        "step3p5", num_hidden_layers=2, layer_types=["full_attention", "sliding_attention"], sliding_window=64
    )
    del config["rope_parameters"]
    config |= {"rope_theta": [5e6, 1e4, 1e4], "partial_rotary_factors": [0.5, 1.0, 1.0], "num_nextn_predict_layers": 1}
    layers = resolve(config).plan.layers
    assert [(layer.base, layer.rotary_width) for layer in layers] == [(5e6, 64), (1e4, 128)]
    config |= {"layer_types": ["full_attention"] * 2, "rope_theta": [5e6, 1e4]}
    with pytest.raises(BadInput, match=r"rope_theta: has 5000000.0 for layer 0 and 10000.0 for layer 1, both full"):
        resolve(config)


def test_deepseek_v4_has_two_rotations_and_no_gain() -> None:
    scaling = {
        "type": "yarn",
        "factor": 16,
        "original_max_position_embeddings": 65_536,
        "beta_fast": 32,
        "beta_slow": 1,
    }
    config = {"model_type": "deepseek_v4", "num_hidden_layers": 3, "num_attention_heads": 4, "hidden_size": 64}
    config |= {"compress_ratios": [0, 4, 128, 0], "num_nextn_predict_layers": 1, "rope_scaling": scaling}
    config |= {"max_position_embeddings": 1_048_576, "qk_rope_head_dim": 64}
    found, theirs = resolve(config, arithmetic="float32"), Theirs(config)
    sliding, sparse, heavy = found.plan.layers
    assert sparse == heavy
    assert (sliding.base, sliding.window, sparse.base, sparse.window) == (10_000.0, 128, 160_000.0, None)
    for layer, kind in ((sliding, "sliding_attention"), (sparse, "compressed_sparse_attention")):
        assert (list(layer.frequencies), layer.rotary_gain) == theirs.frequencies(kind)
        assert layer.rotary_gain == 1
    assert any("outputs are rotated back by the position of the query" in note for note in found.notes)
    again = json.loads(theirs.config.to_json_string(use_diff=False))
    assert resolve(again, arithmetic="float32").plan.layers[1].frequencies == sparse.frequencies


def test_engines_whose_code_was_not_read_are_not_compared() -> None:
    read = readings(resolve(saved("deepseek_v4")))
    assert read["transformers5"].unknown == ()
    assert all(read[name].unknown for name in ("vllm", "llama.cpp", "sglang"))


def test_transformers_5_does_not_read_the_base_of_dbrx() -> None:
    published = {"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500_000}
    config = {**saved("dbrx"), "attn_config": published, "rope_parameters": None}
    assert resolve(config).plan.layers[0].base == 500_000
    (note,) = readings(resolve(config))["transformers5"].notes
    assert note.what == "rotates with theta 10,000 instead of 500,000"
    assert Theirs(config).config.rope_parameters["rope_theta"] == 10_000
    with pytest.raises(BadInput, match=r"rope_theta: is 500000 here and 10000.0 at"):
        resolve({**saved("dbrx"), "attn_config": published})


def test_transformers_5_does_not_read_rotary_dim_of_minimax_m3() -> None:
    config = saved("minimax_m3_vl_text")
    assert resolve(config).plan.layers[0].rotary_width == 64
    (note,) = readings(resolve(config))["transformers5"].notes
    assert note.what == "rotates all 128 features of a head instead of 64"
    assert len(Theirs(config).frequencies("full_attention")[0]) == 64
    stated = {**config, "rope_parameters": {**config["rope_parameters"], "partial_rotary_factor": 0.5}}
    assert readings(resolve(stated))["transformers5"].notes == ()
    assert len(Theirs(stated).frequencies("full_attention")[0]) == 32
