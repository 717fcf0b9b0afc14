"""What transformers' config classes make of keys before any rotation is built: beside its own modules, or refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ropewalk.checkpoints.engines.base import LayerReading
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.resolve.hf import resolve
from tests.checkpoints.engine_configs import read
from tests.checkpoints.transformers_oracle import Theirs

SMALL = {
    "num_hidden_layers": 6, "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4,
    "intermediate_size": 64, "vocab_size": 64, "max_position_embeddings": 4096,
}  # fmt: skip
LINEAR, YARN = {"type": "linear", "factor": 8.0}, {"type": "yarn", "factor": 8.0}
LINEAR_NOW, YARN_NOW = ({"rope_type": one["type"], "factor": 8.0} for one in (LINEAR, YARN))
LISTS = {"short_factor": [1.0] * 32, "long_factor": [2.0] * 32}
LONGROPE = {"model_type": "phi3", "pad_token_id": 0, "max_position_embeddings": 131_072}
CASES: dict[str, dict[str, Any]] = {
    "gemma 3, type": {"model_type": "gemma3_text", "head_dim": 64, "rope_scaling": LINEAR},
    "gemma 3, rope_type": {"model_type": "gemma3_text", "head_dim": 64, "rope_scaling": LINEAR_NOW},
    "olmo 3, type": {"model_type": "olmo3", "rope_theta": 5e5, "rope_scaling": YARN},
    "olmo 3, truncate": {"model_type": "olmo3", "rope_theta": 5e5, "rope_scaling": {**YARN_NOW, "truncate": False}},
    "modernbert, type": {"model_type": "modernbert", "rope_scaling": LINEAR, "pad_token_id": 0},
    "phi 3, no trained length": {**LONGROPE, "rope_theta": 1e4, "rope_scaling": {"type": "longrope", **LISTS}},
    "phi 3, null for the trained length": {
        **LONGROPE, "rope_theta": 1e4,
        "rope_scaling": {"type": "longrope", **LISTS, "original_max_position_embeddings": None},
    },
    "gpt-oss, null": {"model_type": "gpt_oss", "head_dim": 64, "rope_parameters": None, "rope_theta": 150_000.0},
    "minimax m3, part of a head by default": {"model_type": "minimax_m3_vl_text", "head_dim": 128, "rope_theta": 1e4},
    "dbrx, theta at the top": {"model_type": "dbrx", "n_layers": 6, "d_model": 256, "n_heads": 4, "rope_theta": 5e5,
                               "max_seq_len": 4096, "max_position_embeddings": None},
}  # fmt: skip
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "phi 3, trained length within": (
        {**LONGROPE, "rope_scaling": {"type": "longrope", **LISTS, "original_max_position_embeddings": 8192}},
        "takes 4096 unless it stands at the top",
    ),
    "layer types of a model that has one rotation": (
        {"model_type": "llama", "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 5e5}}},
        "reads one object",
    ),
    "theta in the newer of two objects": (
        {
            "model_type": "llama",
            "rope_scaling": {"rope_type": "linear", "factor": 2.0},
            "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5},
        },
        "rope_theta is None here and 500000.0 in rope_parameters",
    ),
    "trained length at the top": (
        {
            "model_type": "olmo3",
            "rope_theta": 5e5,
            "rope_scaling": {"rope_type": "yarn", "factor": 8.0},
            "original_max_position_embeddings": 1024,
        },
        "takes max_position_embeddings unless",
    ),
    "no scaling where a class has one": ({"model_type": "ministral3", "rope_theta": 5e5}, "takes YaRN x16 from 16,384"),
    "no scaling and latent attention": ({"model_type": "mistral4", "rope_theta": 5e5}, "takes YaRN x128 from 8,192"),
}


def rotations(theirs: Theirs) -> dict[str, tuple[torch.Tensor, float]]:
    """By layer type; one for all where there is no other."""
    found = {}
    for name, numbers in theirs.rotary.named_buffers() if theirs.rotary else ():
        if name.endswith("inv_freq") and "original" not in name:
            kind = name.removesuffix("inv_freq").rstrip("_")
            gain = getattr(theirs.rotary, f"{kind}_attention_scaling" if kind else "attention_scaling")
            found[kind] = numbers.double(), float(gain)
    return found


def of_layer(layers: tuple[LayerReading, ...], number: int) -> LayerReading:
    return next(one for one in layers if number in one.numbers)


@pytest.mark.parametrize("case", CASES)
def test_a_class_is_read_as_it_reads(case: str) -> None:
    config = {**SMALL, **CASES[case]}
    theirs, reading = Theirs(config), read(config)["transformers5"]
    assert reading.refusal is None
    known = rotations(theirs)
    for number, kind in enumerate(theirs.types(6)):
        want, gain = known.get(kind, known.get("", (None, 0.0)))
        assert want is not None
        ours = of_layer(reading.layers, number)
        torch.testing.assert_close(torch.tensor(ours.frequencies, dtype=torch.float64), want, rtol=3e-7, atol=0)
        assert ours.rotary_gain == pytest.approx(gain, rel=1e-6)


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_two_engines_would_read_alike_is_refused(case: str) -> None:
    config, why = REFUSED[case]
    with pytest.raises(BadInput, match=why):
        resolve({**SMALL, **config})


@pytest.mark.parametrize("key", ["factor", "beta_fast", "beta_slow"])
def test_vllm_cannot_compute_with_null(key: str) -> None:
    block = {"rope_type": "yarn", "factor": 8.0, "rope_theta": 1e4, "original_max_position_embeddings": 512, key: None}
    readings = read({**SMALL, "model_type": "llama", "architectures": ["LlamaForCausalLM"], "rope_parameters": block})
    assert f"computes with {key}, which is null" in str(readings["vllm"].refusal)
    assert readings["transformers5"].refusal is None


@pytest.mark.parametrize("type_", ["gemma3_text", "olmo3"])
def test_vllm_refuses_a_type_beside_the_default_one(type_: str) -> None:
    readings = read({**SMALL, "model_type": type_, "head_dim": 64, "rope_theta": 5e5, "rope_scaling": LINEAR})
    assert "must agree" in str(readings["vllm"].refusal)
