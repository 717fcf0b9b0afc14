"""What is unknown, contradicted or missing is an error that names the file and the field, and nothing else happens."""

from __future__ import annotations

import contextlib
import copy
import json
import math
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.resolve.hf import resolve
from ropewalk.checkpoints.resolve.resolved import Resolved
from tests.checkpoints import published

LLAMA = published.config("llama-3.1-8b")
PLAIN = published.config("llama-3-8b")
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
ABSENT = object()


def changed(name: str, /, **changes: Any) -> dict[str, Any]:
    config = {**published.config(name), **changes}
    return {key: value for key, value in config.items() if value is not ABSENT}


CASES = {
    # typos and strangers
    "typo in a scaling": (
        changed("llama-3.1-8b", rope_scaling={**LLAMA["rope_scaling"], "factr": 2.0}),
        "rope_scaling",
        "no key 'factr' (did you mean 'factor'?)",
    ),
    "typo at the top": (changed("llama-3-8b", rope_tetha=1e4), "rope_tetha", "did you mean 'rope_theta'?"),
    "typo in the length": (
        changed("llama-3-8b", max_positon_embeddings=1),
        "max_positon_embeddings",
        "did you mean 'max_position_embeddings'?",
    ),
    "a rope key of someone else": (changed("llama-3-8b", rotary_dim=64), "rotary_dim", "looks like a position setting"),
    "a window llama does not have": (changed("llama-3-8b", sliding_window=4096), "sliding_window", "reads it"),
    "alibi on llama": (changed("llama-3-8b", alibi=True), "alibi", "looks like a position setting"),
    "a partial factor on rope_type unknown": (
        changed("llama-3-8b", rope_scaling={"rope_type": "ntk", "factor": 2.0}),
        "rope_scaling",
        "no rope_type 'ntk'",
    ),
    "unknown architecture": ({"model_type": "lama", "rope_theta": 1e4}, "model_type", "did you mean 'llama'?"),
    "unknown architecture with code": (
        {"model_type": "foo", "rope_theta": 1e4, "auto_map": {}},
        "model_type",
        "which is never run",
    ),
    "no architecture": ({"rope_theta": 1e4}, "model_type", "is missing"),
    "architecture by code alone": ({"model_type": "qwen"}, "model_type", "is read by Python code"),
    # missing
    "no base": (changed("llama-3-8b", rope_theta=ABSENT), "rope_theta", "looked at rope_parameters.rope_theta"),
    "no base in v5": (
        changed("llama-3-8b", rope_theta=ABSENT, rope_parameters={"rope_type": "default"}),
        "rope_theta",
        "the base is missing",
    ),
    "no base for NeoX": (changed("pythia-70m", rotary_emb_base=ABSENT), "rotary_emb_base", "the base is missing"),
    "no factor": (changed("llama-3-8b", rope_scaling={"type": "linear"}), "rope_scaling", "factor is missing"),
    "no layers": (changed("llama-3-8b", num_hidden_layers=ABSENT), "num_hidden_layers", "is missing"),
    "a layer type without rope": (
        changed("olmo-3-7b-v5", rope_parameters={"full_attention": {"rope_theta": 1e4}}),
        "rope_parameters",
        "has no sliding_attention",
    ),
    "no attn_config": (changed("mpt-7b", attn_config=ABSENT), "attn_config", "is missing"),
    # contradictions show both readings
    "two bases": (
        changed("llama-3-8b", rope_parameters={"rope_type": "default", "rope_theta": 1e4}),
        "rope_theta",
        "is 500000.0 here and 10000.0 at config.json:rope_parameters.rope_theta",
    ),
    "two scalings": (
        changed("llama-3.1-8b", rope_parameters={**YARN, "rope_theta": 5e5}),
        "rope_scaling",
        "in rope_parameters; transformers reads the former where both are given",
    ),
    "two names of the type": (
        changed("llama-3-8b", rope_scaling={**YARN, "type": "linear"}),
        "rope_scaling",
        "rope_type 'yarn' and type 'linear' contradict",
    ),
    "two trained lengths": (
        changed(
            "phi-3-mini-128k",
            rope_scaling={
                **published.config("phi-3-mini-128k")["rope_scaling"],
                "original_max_position_embeddings": 8192,
            },
        ),
        "original_max_position_embeddings",
        "is 4096 here and 8192 at",
    ),
    "vLLM's gain": (
        changed("llama-3-8b", rope_scaling={**YARN, "attn_factor": 1.2}),
        "rope_scaling.attn_factor",
        "older vLLM multiply the gain by it, transformers ignores it",
    ),
    "two patterns": (
        changed("gemma-3-1b", layer_types=["full_attention"] * 26),
        "layer_types",
        "says layer 0 is full_attention, sliding_window_pattern makes it sliding_attention",
    ),
    "a repeated key": (changed("gemma-2-2b", sliding_window_size=512), "sliding_window_size", "sliding_window says"),
    "windows listed on mistral": (
        changed("mistral-7b-v0.1", layer_types=["full_attention"] * 32),
        "layer_types",
        "ignores the list",
    ),
    "windows listed on llama": (
        changed("llama-3-8b", layer_types=["sliding_attention"] * 32),
        "layer_types",
        "has only layers that attend to all tokens",
    ),
    "what the code always does": (changed("command-r7b", rotary_pct=0.5), "rotary_pct", "always uses 1.0"),
    "width twice": (
        changed("minimax-m2", partial_rotary_factor=0.25),
        "rotary_dim",
        "is 64, and partial_rotary_factor 0.25 of a head of 128 is 32",
    ),
    "rows and context": (changed("gpt2", n_ctx=512), "n_ctx", "is 512, and n_positions"),
    "one rope for two": (
        changed("gemma-3-1b", rope_theta=ABSENT, rope_local_base_freq=ABSENT, rope_parameters={"rope_theta": 1e4}),
        "rope_parameters",
        "rotates full and sliding layers differently",
    ),
    "another window outside the text part": (
        changed("gemma-3-4b", sliding_window=512),
        "sliding_window",
        "is 512 at the top and 1024 in text_config",
    ),
    "an odd part of the head": (changed("phi-2", partial_rotary_factor=0.3875), "partial_rotary", "turn in pairs"),
    "dynamic with a trained length": (
        changed(
            "llama-3-8b", rope_scaling={"type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 4096}
        ),
        "rope_scaling",
        "ignores original_max_position_embeddings",
    ),
    # ranges and types
    "base as text": (changed("llama-3-8b", rope_theta="500000"), "rope_theta", "is not a number in (1, 1e12]"),
    "base true": (changed("llama-3-8b", rope_theta=True), "rope_theta", "is not a number"),
    "base of one": (changed("llama-3-8b", rope_theta=1.0), "rope_theta", "is not a number in (1, 1e12]"),
    "base too large": (changed("llama-3-8b", rope_theta=1e13), "rope_theta", "is not a number in (1, 1e12]"),
    "base not a number": (changed("llama-3-8b", rope_theta=math.nan), "rope_theta", "is not a number"),
    "factor too large": (changed("llama-3-8b", rope_scaling={**YARN, "factor": 5000.0}), "rope_scaling", "factor"),
    "factor below one": (changed("llama-3-8b", rope_scaling={**YARN, "factor": 0.5}), "rope_scaling", "factor"),
    "factor as text": (changed("llama-3-8b", rope_scaling={**YARN, "factor": "4"}), "rope_scaling", "factor"),
    "layers without end": (changed("llama-3-8b", num_hidden_layers=10_001), "num_hidden_layers", "outside 1 to 10,000"),
    "layers as text": (changed("llama-3-8b", num_hidden_layers="32"), "num_hidden_layers", "not a whole number"),
    "no layer": (changed("llama-3-8b", num_hidden_layers=0), "num_hidden_layers", "outside"),
    "heads that do not divide": (
        changed("llama-3-8b", num_attention_heads=33),
        "num_attention_heads",
        "does not divide",
    ),
    "a head without end": (changed("llama-3-8b", head_dim=2**40), "head_dim", "outside"),
    "an odd head": (changed("llama-3-8b", head_dim=63), "head_dim", "turn in pairs"),
    "a window of nothing": (changed("mistral-7b-v0.1", sliding_window=0), "sliding_window", "outside"),
    "a negative length": (changed("llama-3-8b", max_position_embeddings=-1), "max_position_embeddings", "outside"),
    "a partial factor of two": (changed("phi-2", partial_rotary_factor=2.0), "rope_scaling", "outside (0, 1]"),
    "rotating more than the head": (changed("gpt-j-6b", rotary_dim=512), "rotary_dim", "a head has 256"),
    "a scaling that is a list": (changed("llama-3-8b", rope_scaling=[1]), "rope_scaling", "is not an object"),
    "a type that is a number": (changed("llama-3-8b", rope_scaling={"type": 7}), "rope_scaling", "is not a name"),
    "too few layer types": (changed("gemma-3-270m", layer_types=["full_attention"]), "layer_types", "has 1 entries"),
    "a layer type unknown": (changed("gemma-3-270m", layer_types=["x"] * 18), "layer_types[0]", "is not known"),
    "marks that are not marks": (changed("smollm3-3b", no_rope_layers=[2] * 36), "no_rope_layers[0]", "is not known"),
    "marks that are truths": (changed("smollm3-3b", no_rope_layers=[True] * 36), "no_rope_layers[0]", "is not known"),
    "sections that do not add up": (
        changed("qwen2-vl-7b", rope_scaling={"type": "mrope", "mrope_section": [1, 2, 3]}),
        "mrope_section",
        "adds up to 6",
    ),
    "longrope lists too short": (
        changed("phi-3-mini-128k", hidden_size=4096),
        "rope_scaling",
        "longrope has 48 divisors",
    ),
    "relative positions in bert": (
        changed("bert-base-uncased", position_embedding_type="relative_key"),
        "position_embedding_type",
        "another encoding",
    ),
    "a table of no rows": (changed("roberta-base", max_position_embeddings=2), "max_position_embeddings", "leave none"),
    "odd buckets": (changed("t5-small", relative_attention_num_buckets=7), "relative_attention", "7 buckets"),
    "mpt without alibi": (changed("mpt-7b", attn_config={"alibi": False}), "attn_config.alibi", "no positions"),
    "mpt with other slopes": (
        changed("mpt-7b", attn_config={"alibi": True, "alibi_bias_max": 16}),
        "attn_config.alibi_bias_max",
        "changes the slopes",
    ),
    "a text part that is text": (changed("gemma-3-4b", text_config="x"), "text_config", "is not an object"),
}


@pytest.mark.parametrize("case", CASES)
def test_an_error_names_file_and_field(case: str) -> None:
    config, field, says = CASES[case]
    with pytest.raises(BadInput) as error:
        resolve(config, where="config.json")
    assert error.value.file == "config.json"
    assert field in error.value.field
    assert says in str(error.value)


def test_longrope_of_the_wrong_length_is_found_without_a_length() -> None:
    """A length-dependent scaling has no frequencies yet, and is checked all the same."""
    with pytest.raises(BadInput, match="48 divisors"):
        resolve(changed("phi-3-mini-128k", num_attention_heads=16))


def test_not_an_object() -> None:
    with pytest.raises(BadInput, match="is not an object"):
        resolve([])  # type: ignore[arg-type]


def test_a_config_is_not_changed() -> None:
    for name in published.names():
        config = published.config(name)
        before = json.dumps(config)
        with contextlib.suppress(BadInput):
            resolve(config)
        assert json.dumps(config) == before


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-2, 200),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["yarn", "default", "full_attention", "10000", "llama3", "longrope", 10**400, -(10**400), 2**64]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
SPOTS = (
    "model_type", "num_hidden_layers", "hidden_size", "num_attention_heads", "head_dim", "max_position_embeddings",
    "rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "layer_types", "sliding_window",
    "sliding_window_pattern", "no_rope_layers", "no_rope_layer_interval", "use_sliding_window", "max_window_layers",
    "rope_local_base_freq", "original_max_position_embeddings", "text_config", "qk_rope_head_dim", "rotary_dim",
    "rotary_pct", "transformers_version", "pad_token_id", "relative_attention_num_buckets", "attn_config", "alibi",
    "n_positions", "n_ctx", "use_bidirectional_attention", "attention_chunk_size", "floor_scale", "attn_scale",
    "rope_interleave", "global_head_dim", "full_attention_interval", "full_attn_idxs", "local_attention",
    "_sliding_window_pattern", "sliding_window_size", "num_decoder_layers", "max_seq_len", "offset_alibi",
)  # fmt: skip
INNER = (
    "type", "rope_type", "rope_theta", "factor", "original_max_position_embeddings", "attention_factor", "beta_fast",
    "beta_slow", "mscale", "mscale_all_dim", "truncate", "short_factor", "long_factor", "low_freq_factor",
    "high_freq_factor", "mrope_section", "partial_rotary_factor", "full_attention", "sliding_attention", "attn_factor",
    "llama_4_scaling_beta", "finetuned",
)  # fmt: skip


def only_bad_input(config: Any) -> None:
    with contextlib.suppress(BadInput):
        resolved = resolve(config)
        assert isinstance(resolved, Resolved)
        assert all(1 <= len(plan.layers) <= 10_000 for plan in resolved.plans.values())


@settings(max_examples=600)
@given(
    st.sampled_from(published.names()),
    st.lists(st.tuples(st.sampled_from(SPOTS), VALUES), max_size=3),
    st.lists(st.tuples(st.sampled_from(INNER), VALUES), max_size=2),
)
def test_garbage_gives_bad_input_or_a_plan(name: str, outer: list, inner: list) -> None:
    config = published.config(name)
    place = config["text_config"] if isinstance(config.get("text_config"), dict) else config
    for key, value in outer:
        place[key] = copy.deepcopy(value)
    for key, value in inner:
        holder = place.get("rope_parameters") or place.get("rope_scaling")
        if isinstance(holder, dict):
            holder[key] = copy.deepcopy(value)
        else:
            place["rope_scaling"] = {key: copy.deepcopy(value)}
    only_bad_input(config)


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(SPOTS) | st.text(max_size=6), VALUES, max_size=8))
def test_any_object_gives_bad_input_or_a_plan(config: dict) -> None:
    only_bad_input(config)
