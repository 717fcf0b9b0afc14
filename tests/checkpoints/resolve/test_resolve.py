"""A config.json to its plan: published checkpoints, every spelling of one plan, sources, lengths, and who refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.resolve.hf import resolve
from ropewalk.checkpoints.resolve.read import read
from ropewalk.encodings import build
from ropewalk.scaling import Llama3, YaRN
from tests.checkpoints import published
from tests.checkpoints.transformers_oracle import Theirs, compare

PLANS = published.plans()
RESOLVED = [name for name, plan in PLANS.items() if not plan.startswith("error")]
LLAMA = published.config("llama-3.1-8b")


def test_the_corpus_is_whole() -> None:
    assert len(published.names()) >= 60
    assert published.names() == sorted(PLANS)


@pytest.mark.parametrize("name", published.names())
def test_a_published_config_has_its_known_plan(name: str) -> None:
    expected = PLANS[name]
    if expected.startswith("error: "):
        with pytest.raises(BadInput) as error:
            resolve(published.config(name), name=name)
        assert expected.removeprefix("error: ") in str(error.value)
    else:
        assert published.said(resolve(published.config(name), name=name)) == expected


NOT_THEIRS = {
    "falcon-h1-0.5b",  # transformers 5.22.2 refuses the heads of its state-space branch
    "exaone-3.5-7.8b",  # code of their own
    "internlm2-7b",
    "internlm2.5-7b-chat",
    "internlm3-8b",
    "kimi-k2",
    "gpt-j-6b",  # no rotation module: test_architectures has it
    "llava-v1.5-7b",  # in its authors' spelling, of which transformers reads nothing
    "phi-3-mini-128k-su",  # Phi-3's first name of longrope, which transformers 5 no longer reads
    "phi-3.5-moe",  # its gain is not the module's: test_published has it
}


@pytest.mark.parametrize("name", [name for name in RESOLVED if "rope" in PLANS[name] and name not in NOT_THEIRS])
def test_transformers_computes_the_same_bits(name: str) -> None:
    config = published.config(name)
    plan = resolve(config, arithmetic="float32").plan
    compare(plan.for_length(2), Theirs(config))


@pytest.mark.parametrize("name", ["phi-3-mini-128k", "phi-4-mini"])
def test_transformers_switches_to_the_same_long_list(name: str) -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = published.config(name)
    layer = resolve(config, arithmetic="float32").plan.for_length(4097).layers[0]
    theirs, gain = ROPE_INIT_FUNCTIONS["longrope"](Theirs(config).config, "cpu", seq_len=4097)
    assert list(layer.frequencies) == theirs.tolist()
    assert layer.rotary_gain == gain


@pytest.mark.parametrize("name", RESOLVED)
def test_every_layer_is_a_valid_encoding_and_every_number_has_a_source(name: str) -> None:
    resolved = resolve(published.config(name))
    for side, plan in resolved.plans.items():
        assert side in ("encoder", "decoder")
        for layer in plan.groups():
            settings = {k: v for k, v in json.loads(layer.settings).items() if k != "temperature"}
            if layer.kind not in ("rope", "none"):
                build({"kind": layer.kind, **settings}, width=64, heads=4, head_width=16)
            sources = dict(layer.sources)
            if layer.kind == "rope":
                assert {"base", "rotary_width", "layout", "head_width"} <= set(sources)
                assert ("scaling" in sources) == (layer.scaling is not None)
            assert ("window" in sources) == (layer.window is not None)
        lengths = dict(plan.sources)
        for field in ("trained", "extended", "table"):
            assert (field in lengths) == (getattr(plan, field) is not None)


def test_sources_name_the_place() -> None:
    layer = resolve(LLAMA).plan.layers[0]
    sources = dict(layer.sources)
    assert sources["base"] == "config.json:rope_theta"
    assert sources["scaling"] == "config.json:rope_scaling"
    assert sources["factor"] == "config.json:rope_scaling.factor"
    assert sources["trained"] == "config.json:rope_scaling.original_max_position_embeddings"
    assert sources["layout"] == "transformers' code for llama"
    assert sources["rotary_width"] == "the whole head"
    gemma = resolve(published.config("gemma-3-4b")).plan.layers[0]
    assert dict(gemma.sources)["base"] == "transformers default for gemma3_text"
    assert dict(gemma.sources)["window"] == "config.json:text_config.sliding_window"


def without(config: dict, *keys: str) -> dict:
    return {key: value for key, value in config.items() if key not in keys}


V5 = {**without(LLAMA, "rope_theta", "rope_scaling"), "rope_parameters": {**LLAMA["rope_scaling"], "rope_theta": 5e5}}
SPELLINGS = {
    "v4, type": {**LLAMA, "rope_scaling": {**without(LLAMA["rope_scaling"], "rope_type"), "type": "llama3"}},
    "v4, both types": {**LLAMA, "rope_scaling": {**LLAMA["rope_scaling"], "type": "llama3"}},
    "v5": V5,
    "v5, theta outside": {**without(LLAMA, "rope_scaling"), "rope_parameters": LLAMA["rope_scaling"]},
    "v5 and its v4 mirror": {**LLAMA, **V5},
    "whole numbers as floats": {**LLAMA, "max_position_embeddings": 131072.0, "num_hidden_layers": 32.0},
    "nulls": {**LLAMA, "rope_parameters": None, "partial_rotary_factor": None, "layer_types": None},
    "full layers listed": {**LLAMA, "layer_types": ["full_attention"] * 32},
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_one_plan_in_many_spellings(spelling: str) -> None:
    plan, known = resolve(SPELLINGS[spelling]).plan, resolve(LLAMA).plan
    assert plan.fingerprint == known.fingerprint
    assert (plan.trained, plan.extended) == (8192, 131072)


def test_null_for_a_layer_type_is_no_rotation() -> None:
    config = published.config("gemma-4-31b")
    config["text_config"]["rope_parameters"]["full_attention"] = None
    plan = resolve(config).plan
    assert [layer.kind for layer in plan.layers[:6]] == ["rope"] * 5 + ["none"]


def test_null_for_a_layer_type_of_a_class_that_fills_it_in() -> None:
    """OLMo 3 would rotate by the default base there."""
    config = published.config("olmo-3-7b-v5")
    config["rope_parameters"]["full_attention"] = None
    with pytest.raises(BadInput, match="takes its defaults for that"):
        resolve(config)


def test_layers_that_transformers_marks_with_1_rotate() -> None:
    config = {**published.config("smollm3-3b"), "no_rope_layers": [0] * 35 + [1], "no_rope_layer_interval": 36}
    resolved = resolve(config)
    assert [layer.kind for layer in resolved.plan.layers] == ["none"] * 35 + ["rope"]
    assert any("no_rope_layer_interval" in note for note in resolved.notes)
    assert "(1: rotates)" in dict(resolved.plan.layers[-1].sources)["kind"]


def test_windows_in_use() -> None:
    config = {**published.config("qwen2.5-0.5b"), "use_sliding_window": True, "max_window_layers": 20}
    assert [layer.window for layer in resolve(config).plan.layers] == [None] * 20 + [32768] * 4
    listed = {**config, "layer_types": ["sliding_attention"] + ["full_attention"] * 23}
    assert [layer.window for layer in resolve(listed).plan.layers] == [32768] + [None] * 23


def test_a_gemma_that_sees_both_ways() -> None:
    config = {**published.config("gemma-3-270m"), "use_bidirectional_attention": True}
    resolved = resolve(config)
    assert resolved.stack == "encoder"
    assert resolved.plan.layers[0].window == 512 // 2 + 1


def test_layers_the_model_does_not_have() -> None:
    """A Gemma 3 of five layers has no full one, a ModernBERT of one layer no sliding one; another may rotate none."""
    small = resolve({**published.config("gemma-3-1b"), "num_hidden_layers": 5})
    assert {layer.base for layer in small.plan.layers} == {10_000.0}
    assert "rope_theta is ignored here: no layer rotates by it" in small.notes
    one = resolve({**published.config("modernbert-base"), "num_hidden_layers": 1})
    assert "local_rope_theta is ignored here: no layer rotates by it" in one.notes
    still = resolve({**published.config("smollm3-3b"), "no_rope_layers": [0] * 36, "no_rope_layer_interval": 1})
    assert {layer.kind for layer in still.plan.layers} == {"none"}
    assert "rope_theta is ignored here: no layer rotates by it" in still.notes


def test_defaults_of_transformers_are_called_that() -> None:
    layer = resolve({"model_type": "gemma4_text"}).plan.layers[5]
    assert dict(layer.sources)["scaling"] == "transformers default for gemma4_text"


def test_lengths_are_kept_apart() -> None:
    def of(**changes: object) -> tuple[int | None, ...]:
        plan = resolve({**without(LLAMA, "rope_scaling"), **changes}).plan
        return plan.trained, plan.extended, *([plan.stated] if plan.stated else [])

    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
    assert of() == (None, None, 131072)
    assert of(max_position_embeddings=8192, rope_scaling=yarn) == (8192, 32768)
    assert of(max_position_embeddings=32768, rope_scaling=yarn) == (8192, 32768)
    assert of(max_position_embeddings=40960, rope_scaling=yarn) == (8192, 32768)
    assert of(max_position_embeddings=8192, rope_scaling=LLAMA["rope_scaling"]) == (8192, None)
    assert of(max_position_embeddings=8192, rope_scaling={"type": "dynamic", "factor": 2.0}) == (8192, None)
    assert of(max_position_embeddings=8192, rope_scaling={"type": "linear", "factor": 2.0}) == (None, None, 8192)
    assert of(rope_scaling=without(yarn, "original_max_position_embeddings")) == (131072, 524288)


def test_older_llamas_fixed_their_base() -> None:
    old = published.config("llama-2-7b")
    layer = resolve(old).plan.layers[0]
    assert (layer.base, dict(layer.sources)["base"]) == (10_000.0, "transformers default for llama")
    for version in ("4.33.0", "5.1.0", None, 4, "new"):
        with pytest.raises(BadInput, match="the base is missing; looked at"):
            resolve({**old, "transformers_version": version})


def test_who_is_refused_and_why() -> None:
    refusals = {name: resolve(published.config(name)).refusal for name in RESOLVED}
    assert "multi-head latent attention (MLA) and a mixture of experts" in str(refusals["deepseek-v3"])
    assert "mixture of experts" in str(refusals["gpt-oss-20b"])
    assert "M-RoPE" in str(refusals["qwen2.5-vl-7b"])
    for name in (
        "llama-3.1-8b",
        "gemma-3-1b",
        "smollm3-3b",
        "phi-3-mini-4k",
        "t5-small",
        "bloom-560m",
        "opus-mt-en-de",
    ):
        assert refusals[name] is None


def test_notes_are_said_once_and_name_the_key() -> None:
    notes = resolve(published.config("qwen2.5-7b-instruct")).notes
    assert notes == ("sliding_window 131,072 is ignored here: use_sliding_window is not true",)
    outside = resolve({**published.config("gemma-3-4b"), "rope_theta": 1e4}).notes
    assert outside == ("rope_theta 10000.0 is outside text_config, where nothing reads it",)
    assert "su is the first name of longrope" in " ".join(resolve(published.config("phi-3-mini-128k-su")).notes)


def test_exact_and_float32() -> None:
    exact, single = resolve(LLAMA).plan, resolve(LLAMA, arithmetic="float32").plan
    assert exact.layers[0].arithmetic == "exact"
    assert exact.fingerprint != single.fingerprint
    assert exact.layers[0].scaling == single.layers[0].scaling == Llama3(factor=8, trained=8192)


def test_dialects() -> None:
    scaling = resolve(published.config("deepseek-v3")).plan.layers[0].scaling
    assert isinstance(scaling, YaRN)
    assert scaling.dialect == "deepseek"
    half = {**published.config("deepseek-v3"), "rope_interleave": False}
    assert resolve(half).plan.layers[0].layout == "half"


def test_read_from_disk(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    for path in (folder, folder / "config.json"):
        resolved = read(path)
        assert (resolved.name, resolved.where, resolved.model_type) == ("my-model", "config.json", "llama")
        assert resolved.plan == resolve(LLAMA).plan
        assert resolved.config == LLAMA
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match=r"config\.json"):
        read(tmp_path / "empty")


def test_the_name_a_config_gives_itself() -> None:
    assert resolve({**LLAMA, "_name_or_path": "meta-llama/Llama-3.1-8B"}).name == "meta-llama/Llama-3.1-8B"
    assert resolve({**LLAMA, "_name_or_path": 7}).name == "llama"
    assert resolve(LLAMA, name="mine").name == "mine"


def test_a_default_pattern_beside_a_list_is_noted() -> None:
    """transformers 5 writes `_sliding_window_pattern: 6` whatever `layer_types` it writes, and reads the list."""
    config = published.config("gemma-3-270m") | {"_sliding_window_pattern": 3}
    found = resolve(config)
    assert [layer.window is None for layer in found.plan.layers] == [(i + 1) % 6 == 0 for i in range(18)]
    assert any("_sliding_window_pattern 3 is not what layer_types lists" in note for note in found.notes)


def test_a_window_of_zero_means_nothing_where_windows_are_off() -> None:
    config = published.config("qwen2.5-7b-instruct")
    found = resolve(config | {"use_sliding_window": False, "sliding_window": 0})
    assert {layer.window for layer in found.plan.layers} == {None}
