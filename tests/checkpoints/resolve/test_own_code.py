"""Architectures whose first configs are read by code of their own, against transformers' class of the same model where
it has one, or against the formula of that code."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import BartConfig, BartModel, WhisperConfig, WhisperModel

from ropewalk.checkpoints.engines import readings
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.resolve.hf import resolve
from tests.checkpoints import published
from tests.checkpoints.transformers_oracle import Theirs, compare

SIZES = {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 1024,
}


def test_nomic_bert_in_its_first_spelling() -> None:
    first = {
        "model_type": "nomic_bert",
        "n_layer": 3,
        "n_head": 4,
        "n_embd": 256,
        "n_positions": 2048,
        "rotary_emb_base": 1000,
        "rotary_emb_fraction": 1.0,
        "rotary_emb_interleaved": False,
        "max_trained_positions": 2048,
    }
    now = {"model_type": "nomic_bert", "num_hidden_layers": 3, **SIZES}
    compare(resolve(first, arithmetic="float32").plan, Theirs(now))
    assert resolve(first).plan.stated == 2048
    with pytest.raises(BadInput, match="rotary_scaling_factor"):
        resolve({**first, "rotary_scaling_factor": 2})
    with pytest.raises(BadInput, match="rotary_emb_interleaved"):
        resolve({**first, "rotary_emb_interleaved": True})


def test_minimax_text_01_is_transformers_minimax() -> None:
    common = {**SIZES, "head_dim": 64, "num_hidden_layers": 4, "rope_theta": 10_000_000, "rotary_dim": 32}
    first = {"model_type": "minimax_text_01", **common, "attn_type_list": [0, 0, 0, 1]}
    now = {**common, "model_type": "minimax", "layer_types": ["linear_attention"] * 3 + ["full_attention"]}
    plan = resolve(first, arithmetic="float32").plan
    assert [layer.kind for layer in plan.layers] == ["none", "none", "none", "rope"]
    assert plan.layers[3].frequencies == resolve(now, arithmetic="float32").plan.layers[3].frequencies
    assert plan.layers[3].rotary_width == 32


def blocks(*attentions: dict[str, Any]) -> dict[str, Any]:
    listed = [{"attention": {"n_heads_in_group": 2, **attention}, "ffn": {}} for attention in attentions]
    base = {"model_type": "nemotron-nas", **SIZES, "num_key_value_heads": None, "num_hidden_layers": len(listed)}
    return {**base, "rope_theta": 500_000.0, "rope_scaling": LLAMA3, "block_configs": listed}


def test_nemotron_nas_has_layers_without_attention() -> None:
    config = blocks({}, {"no_op": True}, {"replace_with_linear": True}, {"no_op": False})
    found = resolve(config)
    assert [layer.kind for layer in found.plan.layers] == ["rope", "none", "none", "rope"]
    assert found.refusal == "nemotron-nas has layers without attention"
    plain = {"model_type": "llama", **SIZES, "num_hidden_layers": 1, "rope_theta": 500_000.0, "rope_scaling": LLAMA3}
    assert found.plan.layers[0].frequencies == resolve(plain).plan.layers[0].frequencies
    with pytest.raises(BadInput, match="window_length: 1024 changes what a layer sees"):
        resolve(blocks({}, {"window_length": 1024}))
    with pytest.raises(BadInput, match="is not one object for each of 1 layers"):
        resolve({**blocks({}), "block_configs": []})


def test_neobert_turns_neighbours_by_base_10_000() -> None:
    config = {"model_type": "neobert", "hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 2}
    (layer, _), longest = (plan := resolve({**config, "max_length": 4096}).plan).layers, plan.stated
    assert (layer.layout, longest) == ("pairs", 4096)
    assert layer.frequencies == pytest.approx([10_000 ** (-2 * i / 64) for i in range(32)], rel=1e-15)


def test_tables_of_bart_and_whisper_are_those_of_transformers() -> None:
    small = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "vocab_size": 32, "pad_token_id": 0}
    small |= {f"{side}_attention_heads": 2 for side in ("encoder", "decoder")}
    small |= {f"{side}_ffn_dim": 16 for side in ("encoder", "decoder")}
    bart = BartModel(BartConfig(**small, max_position_embeddings=40))
    whisper = WhisperModel(WhisperConfig(**small, max_source_positions=30, max_target_positions=20, num_mel_bins=8))
    for model in (bart, whisper):
        plans = resolve(model.config.to_dict()).plans
        for side, rows in (("encoder", model.encoder), ("decoder", model.decoder)):
            table = rows.embed_positions
            assert plans[side].table == table.num_embeddings - getattr(table, "offset", 0)
            assert len(plans[side].layers) == len(rows.layers)


def test_cross_attention_has_no_positions_and_is_no_attention_without_them() -> None:
    found = resolve(published.config("llama-3.2-90b-vision"))
    assert [number for number, layer in enumerate(found.plan.layers) if layer.kind == "none"][:3] == [3, 8, 13]
    read = readings(found)
    assert read["transformers4"].refusal is None
    assert not any(read["transformers5"].besides.still)
    with pytest.raises(BadInput, match="is not a list of layers from 0 to 11"):
        resolve({"model_type": "mllama_text_model", **SIZES, "num_hidden_layers": 12, "cross_attention_layers": [12]})


@pytest.mark.parametrize("name", ["deberta", "deberta-v2"])
def test_what_no_plan_can_say_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(BadInput, match="no plan can say it: its scores add products"):
        resolve({"model_type": name})
