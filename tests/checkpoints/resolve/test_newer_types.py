"""What the model types of 2025 and 2026 do with positions that earlier ones do not."""

from __future__ import annotations

import importlib
import inspect
import json
from typing import Any

import pytest
from transformers import CONFIG_MAPPING

from ropewalk.checkpoints.architectures.table import TABLE
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.resolve.hf import resolve
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
