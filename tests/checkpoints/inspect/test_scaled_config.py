"""What `extend` writes into a config, asked of transformers' own modules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig, AutoModel

from ropewalk.checkpoints.engines import transformers5, vllm
from ropewalk.checkpoints.inspect.changes import Wanted
from ropewalk.checkpoints.inspect.scaled_config import scaled_config
from ropewalk.checkpoints.resolve.read import read
from ropewalk.scaling import Linear, Scaling, YaRN

SMALL = {
    "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 4, "vocab_size": 64, "max_position_embeddings": 256,
}  # fmt: skip
COHERE = {
    "model_type": "cohere2_moe", "head_dim": 16, "sliding_window": 64, "num_experts": 2, "num_experts_per_tok": 1,
}  # fmt: skip
PLAIN = {"rope_type": "default", "rope_theta": 50_000.0}
MINIMAX = {
    "model_type": "minimax", "head_dim": 16, "rotary_dim": 8, "rope_theta": 1e6, "num_local_experts": 2,
    "num_experts_per_tok": 1, "layer_types": ["linear_attention", "full_attention"] * 2,
}  # fmt: skip
MISTRAL = {
    "model_type": "mistral4", "num_key_value_heads": 4, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16,
    "v_head_dim": 16, "kv_lora_rank": 16, "q_lora_rank": 16, "n_routed_experts": 2, "num_experts_per_tok": 1,
    "moe_intermediate_size": 16, "n_shared_experts": 1, "rope_parameters": {
        "type": "yarn", "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 64, "max_position_embeddings": 256, "llama_4_scaling_beta": 0.1,
        "partial_rotary_factor": 0.5,
    },
}  # fmt: skip


def built(config: dict[str, Any], place: Path) -> tuple[list[float], float]:
    """Frequencies and gain of the rotation that transformers builds from a written config."""
    place.mkdir()
    (place / "config.json").write_text(json.dumps(config))
    model = AutoModel.from_config(AutoConfig.from_pretrained(place))
    rotary: Any = next(module for module in model.modules() if hasattr(module, "inv_freq"))
    return rotary.inv_freq.double().tolist(), float(rotary.attention_scaling)


@pytest.mark.parametrize(
    ("config", "scaling"),
    [
        (config, scaling)
        for config in (
            {**COHERE, "rope_parameters": PLAIN},
            {**COHERE, "rope_theta": 50_000.0},
            MINIMAX,
            MISTRAL,
        )
        for scaling in (YaRN(factor=4, trained=256), Linear(factor=4))
        if config is not MISTRAL or isinstance(scaling, YaRN)
    ],
    ids=str,
)
def test_transformers_builds_what_was_written(config: dict[str, Any], scaling: Scaling, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "config.json").write_text(json.dumps({**SMALL, **config}))
    if config is MISTRAL:
        scaling = read(source).plan.layers[0].scaling
        scaling = YaRN.model_validate({**dict(scaling), "factor": 16.0})
    wanted = Wanted(read(source), scaling, 1024)
    written, read_by = scaled_config(wanted)
    assert read_by["transformers 5"] is None
    frequencies, gain = built(written, tmp_path / "written")
    layer = next(one for one in wanted.resolved.plan.layers if one.base is not None)
    numbers = wanted.numbers(layer)
    assert frequencies == pytest.approx(numbers.past, rel=1e-5)
    assert gain == pytest.approx(numbers.rotary_gain, rel=1e-6)


def test_a_scaling_in_a_field_that_nothing_reads_is_not_read(tmp_path: Path) -> None:
    """Command A's config class keeps rope_scaling apart, and vLLM builds its model from that class."""
    old = {**SMALL, **COHERE, "rope_theta": 5e4, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}
    (tmp_path / "config.json").write_text(json.dumps(old))
    frequencies, _ = built(old, tmp_path / "as-it-is")
    for engine in (transformers5, vllm):
        reading = engine.read(read(tmp_path))
        turning = next(one for one in reading.layers if one.frequencies)
        assert turning.frequencies == pytest.approx(frequencies, rel=1e-5)
        assert "rope_scaling" in reading.ignored


def test_a_fixed_base_is_said_where_a_scaling_would_be_written(tmp_path: Path) -> None:
    config = {
        "model_type": "gptj", "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 256, "rotary_dim": 8,
        "vocab_size": 64,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    _, read_by = scaled_config(Wanted(read(tmp_path), YaRN(factor=4, trained=256), 1024))
    for engine in ("transformers 5", "transformers 4"):
        assert read_by[engine] == "the code of gptj has a fixed base, and reads no scaling"


@pytest.mark.parametrize("key", ["max_sequence_length", "model_max_length", "seq_length", "max_seq_len"])
def test_every_length_that_vllm_reads_is_raised(key: str, tmp_path: Path) -> None:
    config = {"model_type": "llama", "rope_theta": 1e4, **SMALL, key: 256}
    (tmp_path / "config.json").write_text(json.dumps(config))
    resolved = read(tmp_path)
    written, read_by = scaled_config(Wanted(resolved, YaRN(factor=4, trained=256), 1024))
    assert written[key] == written["max_position_embeddings"] == 1024
    assert read_by["vLLM"] is None
    (tmp_path / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 1024}))
    assert vllm.read(read(tmp_path)).length == 256
