"""GGUF metadata to a plan: the same numbers as from config.json, in the layout llama.cpp keeps."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, cast

import gguf
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from ropewalk.checkpoints.architectures.table import GGUF_TYPES
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.files.gguf import GGUF, TensorInfo
from ropewalk.checkpoints.resolve.gguf import resolve_gguf
from ropewalk.checkpoints.resolve.hf import resolve
from ropewalk.checkpoints.resolve.read import read
from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.scaling import Linear, Llama3, LongRoPE, YaRN, ladder
from tests.checkpoints import published


class Said:
    """What a GGUF file says, without the file."""

    def __init__(self, metadata: dict[str, Any], tensors: dict[str, Any] | None = None) -> None:
        self.path = Path("model.gguf")
        self.metadata = self.small = metadata
        self.long = ()
        self._values = {name: np.asarray(values, np.float32) for name, values in (tensors or {}).items()}
        self.tensors = {name: TensorInfo(v.shape, "F32", 0, v.nbytes) for name, v in self._values.items()}

    def floats(self, name: str) -> np.ndarray:
        return self._values[name]


def of(arch: str, tensors: dict[str, Any] | None = None, /, **keys: Any) -> Resolved:
    metadata = {
        "general.architecture": arch,
        f"{arch}.block_count": 12,
        f"{arch}.context_length": 131_072,
        f"{arch}.embedding_length": 4096,
        f"{arch}.attention.head_count": 32,
        f"{arch}.rope.freq_base": 500_000.0,
    }
    for key, value in keys.items():
        name = f"{arch}.{key.replace('__', '.')}"
        metadata.pop(name, None)
        if value is not None:
            metadata[name] = value
    return resolve_gguf(cast(GGUF, Said(metadata, tensors)))


def llama3_divisors(base: float, width: int, factor: float, trained: int) -> np.ndarray:
    """As llama.cpp's converter writes them into rope_freqs.weight."""
    omegas = np.array([float(omega) for omega in ladder(base, width)])
    wavelengths = 2 * np.pi / omegas
    smooth = (trained / wavelengths - 1) / (4 - 1)
    between = 1 / ((1 - smooth) / factor + smooth)
    return np.where(wavelengths < trained / 4, 1, np.where(wavelengths > trained, factor, between)).astype(np.float32)


def test_every_architecture_is_one_of_llama_cpps() -> None:
    assert set(GGUF_TYPES) <= {*gguf.MODEL_ARCH_NAMES.values()}


def test_layout_is_llama_cpps() -> None:
    assert of("llama").plan.layers[0].layout == "pairs"
    assert of("qwen2").plan.layers[0].layout == "half"
    assert dict(of("llama").plan.layers[0].sources)["layout"] == "llama.cpp's code for llama"


@pytest.mark.parametrize(("factor", "trained"), [(8.0, 8192), (32.0, 8192), (16.0, 4096)])
def test_llama3_is_found_in_its_divisors(factor: float, trained: int) -> None:
    resolved = of("llama", {"rope_freqs.weight": llama3_divisors(5e5, 128, factor, trained)})
    layer = resolved.plan.layers[0]
    assert layer.scaling == Llama3(factor=factor, trained=trained)
    assert layer.frequencies == tuple(float(omega) for omega in layer.scaling.frequencies(5e5, 128))
    assert (resolved.plan.trained, resolved.plan.extended) == (trained, 131_072)


def test_the_same_plan_from_both_files() -> None:
    theirs = resolve(published.config("llama-3.1-8b")).plan
    ours = of("llama", {"rope_freqs.weight": llama3_divisors(5e5, 128, 8.0, 8192)}, block_count=32).plan
    assert [layer.turns for layer in ours.layers] == [layer.turns for layer in theirs.layers]
    assert {layer.layout for layer in ours.layers} == {"pairs"}
    assert {layer.layout for layer in theirs.layers} == {"half"}


def test_other_divisors_are_taken_as_they_are() -> None:
    divisors = np.linspace(1, 3, 64)
    resolved = of("llama", {"rope_freqs.weight": divisors})
    layer = resolved.plan.layers[0]
    assert layer.resolved
    plain = [float(omega) for omega in ladder(5e5, 128)]
    assert layer.frequencies == pytest.approx([w / d for w, d in zip(plain, divisors, strict=True)], rel=1e-6)
    assert layer.rotary_gain == 1
    assert any("divisors are taken" in note for note in resolved.notes)
    assert of("llama", {"rope_freqs.weight": np.ones(64)}).plan.layers[0].scaling is None
    assert of("llama", {"rope_freqs.weight": np.ones(64)}, rope__scaling__factor=4.0).plan.layers[0].scaling == Linear(
        factor=4
    )


LISTS = {"rope_factors_long.weight": np.full(64, 2.0), "rope_factors_short.weight": np.ones(64)}


@pytest.mark.parametrize(
    ("tensors", "keys", "field"),
    [
        ({"rope_freqs.weight": np.full(64, 2.0)}, {"factor": 4.0}, "factor"),
        ({"rope_freqs.weight": np.full(64, 2.0)}, {"type": "yarn", "factor": 4.0}, "factor"),
        ({"rope_freqs.weight": np.full(64, 2.0)}, {"attn_factor": 1.5}, "attn_factor"),
        (LISTS, {"type": "longrope", "factor": 4.0}, "factor"),
    ],
    ids=["linear", "yarn", "gain", "longrope"],
)
def test_a_scaling_beside_divisors_is_refused(tensors: dict[str, Any], keys: dict[str, Any], field: str) -> None:
    """llama.cpp applies both."""
    with pytest.raises(BadInput, match=rf"llama\.rope\.scaling\.{field}: .* llama\.cpp applies both"):
        of("llama", tensors, **{f"rope__scaling__{key}": value for key, value in keys.items()})
    off = {**keys, "type": "none"} if field == "factor" else {}
    assert of("llama", tensors, **{f"rope__scaling__{key}": value for key, value in off.items()}).plan


def test_longrope() -> None:
    config = published.config("phi-3-mini-128k")
    lists = config["rope_scaling"]
    tensors = {"rope_factors_long.weight": lists["long_factor"], "rope_factors_short.weight": lists["short_factor"]}
    resolved = of(
        "phi3",
        tensors,
        embedding_length=3072,
        rope__freq_base=10_000.0,
        rope__dimension_count=96,
        rope__scaling__type="longrope",
        rope__scaling__original_context_length=4096,
        rope__scaling__attn_factor=1.1902380714238083,
        attention__sliding_window=262_144,
    )
    plan = resolved.plan
    assert isinstance(plan.layers[0].scaling, LongRoPE)
    assert (plan.trained, plan.extended, plan.layers[0].window) == (4096, 131_072, 262_144)
    theirs = resolve(config).plan.for_length(5000).layers[0]
    assert plan.for_length(5000).layers[0].frequencies == pytest.approx(theirs.frequencies, rel=1e-7)
    assert plan.layers[0].rotary_gain == pytest.approx(theirs.rotary_gain)
    assert any("switched it off" in note for note in resolved.notes)


def test_yarn() -> None:
    keys = {
        "rope__scaling__type": "yarn",
        "rope__scaling__factor": 4.0,
        "rope__scaling__original_context_length": 32_768,
    }
    plan = of("qwen2", **keys).plan
    assert plan.layers[0].scaling == YaRN(factor=4, trained=32_768)
    assert (plan.trained, plan.extended) == (32_768, 131_072)
    stated = of("qwen2", **keys, rope__scaling__yarn_attn_factor=1.0)
    assert stated.plan.layers[0].rotary_gain == 1
    assert any("llama.cpp overwrites it with 1.1386" in note for note in stated.notes)
    swapped = of("qwen2", **keys, rope__scaling__yarn_beta_fast=16.0, rope__scaling__yarn_beta_slow=2.0)
    assert swapped.plan.layers[0].scaling == YaRN(factor=4, trained=32_768, beta_fast=16, beta_slow=2)
    assert of("qwen2", **{**keys, "context_length": 40_960}).plan.extended == 131_072


def test_deepseek() -> None:
    resolved = of(
        "deepseek2",
        attention__key_length=576,
        attention__key_length_mla=192,
        rope__dimension_count=64,
        rope__freq_base=10_000.0,
        rope__scaling__type="yarn",
        rope__scaling__factor=40.0,
        rope__scaling__original_context_length=4096,
        rope__scaling__yarn_log_multiplier=float(np.float32(0.1)),
        context_length=163_840,
        block_count=61,
    )
    theirs = resolve(published.config("deepseek-v3")).plan
    assert [layer.turns for layer in resolved.plan.layers] == [layer.turns for layer in theirs.layers]
    ours, known = resolved.plan.layers[0], theirs.layers[0]
    assert (ours.rotary_gain, ours.logit_gain, ours.head_width) == (known.rotary_gain, known.logit_gain, 192)
    assert "MLA" in str(resolved.refusal)


def test_linear_and_its_older_name() -> None:
    for keys in ({"rope__scaling__type": "linear", "rope__scaling__factor": 8.0}, {"rope__scale_linear": 8.0}):
        assert of("llama", **keys).plan.layers[0].scaling == Linear(factor=8)
    assert of("llama", rope__scaling__type="none", rope__scaling__factor=8.0).plan.layers[0].scaling is None
    assert of("llama", rope__scaling__factor=0.0).plan.layers[0].scaling is None
    with pytest.raises(BadInput, match=r"rope\.scale_linear: .* nothing reads it"):  # llama.cpp does not scale either
        of("llama", rope__scaling__factor=0.0, rope__scale_linear=8.0)


def test_gemma3() -> None:
    resolved = of(
        "gemma3",
        rope__freq_base=1e6,
        attention__sliding_window=1024,
        attention__key_length=256,
        rope__scaling__type="linear",
        rope__scaling__factor=8.0,
    )
    assert resolved.model_type == "gemma3_text"
    local, full = resolved.plan.layers[4], resolved.plan.layers[5]
    assert (local.base, local.scaling, local.window) == (10_000.0, None, 1024)
    assert (full.base, full.scaling, full.window) == (1e6, Linear(factor=8), None)
    assert of("gemma3", attention__sliding_window=512, rope__freq_base_swa=20_000.0).plan.layers[0].base == 20_000.0


def test_patterns() -> None:
    def windows(arch: str, **keys: Any) -> list[int | None]:
        return [layer.window for layer in of(arch, **keys).plan.layers[:5]]

    assert windows("gemma2") == [4096, None, 4096, None, 4096]
    assert windows("gpt-oss", attention__sliding_window=128) == [128, None, 128, None, 128]
    assert windows("cohere2", attention__sliding_window=4096) == [4096, 4096, 4096, None, 4096]
    assert windows("gemma2", attention__sliding_window_pattern=3) == [4096, 4096, None, 4096, 4096]
    assert windows("gemma2", attention__sliding_window_pattern=[True] * 3 + [False] * 9) == [4096] * 3 + [None] * 2
    assert windows("modern-bert", attention__sliding_window=128) == [None, 65, 65, None, 65]
    assert windows("olmo2") == [None] * 5
    assert of("olmo2", attention__sliding_window=4096).model_type == "olmo3"
    kinds = [layer.kind for layer in of("smollm3").plan.layers[:5]]
    assert kinds == ["rope", "rope", "rope", "none", "rope"]
    assert [layer.kind for layer in of("cohere2", attention__sliding_window=4).plan.layers[2:4]] == ["rope", "none"]


def test_olmo3_scales_only_its_full_layers() -> None:
    keys = {"rope__scaling__type": "yarn", "rope__scaling__factor": 8.0, "rope__scaling__original_context_length": 8192}
    layers = of("olmo2", attention__sliding_window=4096, **keys).plan.layers
    assert layers[0].scaling is None
    assert layers[3].scaling == YaRN(factor=8, trained=8192)


def test_a_missing_base_is_llama_cpps_and_is_noted() -> None:
    resolved = of("llama", rope__freq_base=None)
    layer = resolved.plan.layers[0]
    assert (layer.base, dict(layer.sources)["base"]) == (10_000.0, "llama.cpp default for llama")
    assert any("rope.freq_base is absent" in note for note in resolved.notes)


def test_sections_and_temperature() -> None:
    resolved = of("qwen2vl", rope__dimension_sections=[16, 24, 24, 0])
    assert json.loads(resolved.plan.layers[0].settings) == {"sections": [16, 24, 24], "arrangement": "blocks"}
    assert "M-RoPE" in str(resolved.refusal)
    keys = {
        "rope__scaling__type": "yarn",
        "rope__scaling__factor": 16.0,
        "rope__scaling__original_context_length": 16_384,
    }
    warm = of("mistral3", attention__temperature_scale=0.1, **keys).plan.layers[0]
    assert json.loads(warm.settings)["temperature"]["trained"] == 16_384


def test_other_kinds() -> None:
    learned = of("gpt2", {"position_embd.weight": np.zeros((1024, 8))}, context_length=1024, rope__freq_base=None).plan
    assert (learned.table, learned.layers[0].kind) == (1024, "learned")
    assert of("bloom", rope__freq_base=None).plan.layers[0].kind == "alibi"
    t5 = of("t5", attention__relative_buckets_count=32, decoder_block_count=6, rope__freq_base=None)
    assert (len(t5.plans["encoder"].layers), len(t5.plans["decoder"].layers)) == (12, 6)
    assert json.loads(t5.plans["encoder"].layers[0].settings)["bidirectional"] is True


def test_experts_are_refused() -> None:
    assert "mixture of experts" in str(of("llama", expert_count=8).refusal)
    assert of("llama", expert_count=0).refusal is None


ERRORS = {
    "unknown architecture": (lambda: of("lama"), "layout and windows would be guesses"),
    "unread rope key": (lambda: of("llama", rope__freq_bse=1.0), "nothing reads it for llama"),
    "a window without code": (lambda: of("llama", attention__sliding_window=4096), "ignores it"),
    "yarn without a factor": (lambda: of("llama", rope__scaling__type="yarn"), "yarn needs it"),
    "a factor below 1": (lambda: of("llama", rope__scaling__factor=0.5), "greater than or equal to 1, got 0.5"),
    "longrope without lists": (lambda: of("phi3", rope__scaling__type="longrope"), "no rope_factors"),
    "an unknown scaling": (lambda: of("llama", rope__scaling__type="dynamic"), "is not known"),
    "another ramp": (
        lambda: of("llama", rope__scaling__type="yarn", rope__scaling__factor=4.0, rope__scaling__yarn_ext_factor=0.5),
        "changes the ramp",
    ),
    "divisors of another width": (lambda: of("llama", {"rope_freqs.weight": np.ones(3)}), "64 frequencies"),
    "divisors that are not numbers": (lambda: of("llama", {"rope_freqs.weight": [np.nan] * 64}), "not finite"),
    "no layers": (lambda: of("llama", block_count=None), "block_count: is missing"),
    "a base of text": (lambda: of("llama", rope__freq_base="1"), "is not a number"),
    "an odd width": (lambda: of("llama", rope__dimension_count=63), "cannot rotate in pairs"),
    "more than the head": (lambda: of("llama", rope__dimension_count=256), "cannot rotate in pairs"),
    "sections that do not add up": (
        lambda: of("qwen2vl", rope__dimension_sections=[1, 2, 3, 0]),
        "does not divide 64 frequencies",
    ),
    "a short pattern": (
        lambda: of("gemma2", attention__sliding_window_pattern=[True]),
        "does not say which of 12 layers",
    ),
    "no table": (lambda: of("gpt2"), "position_embd.weight"),
    "other slopes": (lambda: of("mpt", rope__freq_base=None, attention__max_alibi_bias=16.0), "changes the slopes"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case: str) -> None:
    make, says = ERRORS[case]
    with pytest.raises(BadInput) as error:
        make()
    assert error.value.file == "model.gguf"
    assert says in str(error.value)


def test_a_file_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("Tiny")
    writer.add_block_count(2)
    writer.add_context_length(131_072)
    writer.add_embedding_length(512)
    writer.add_head_count(4)
    writer.add_rope_freq_base(500_000.0)
    writer.add_rope_dimension_count(128)
    writer.add_array("tokenizer.ggml.tokens", [f"<{n}>" for n in range(2000)])
    writer.add_tensor("rope_freqs.weight", llama3_divisors(5e5, 128, 32.0, 8192))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    resolved = read(path)
    assert (resolved.name, resolved.where, resolved.model_type) == ("Tiny", "tiny.gguf", "llama")
    assert resolved.plan.layers[0].scaling == Llama3(factor=32, trained=8192)
    assert "tokenizer.ggml.tokens" not in resolved.config
    assert resolved.config["llama.block_count"] == 2
    assert read(tmp_path).plan == resolved.plan


@settings(max_examples=300)
@given(
    st.sampled_from(sorted(GGUF_TYPES)),
    st.dictionaries(
        st.sampled_from([
            "rope__freq_base", "rope__dimension_count", "rope__scaling__type", "rope__scaling__factor",
            "rope__scaling__original_context_length", "rope__scaling__attn_factor", "rope__scaling__yarn_beta_fast",
            "rope__scaling__yarn_attn_factor", "attention__sliding_window", "attention__sliding_window_pattern",
            "attention__key_length", "attention__head_count", "block_count", "context_length", "expert_count",
            "rope__dimension_sections", "attention__temperature_scale", "rope__freq_base_swa", "nextn_predict_layers",
        ]),
        st.none() | st.booleans() | st.integers() | st.integers(0, 100) | st.floats() | st.text(max_size=5)
        | st.sampled_from(["yarn", "linear", "longrope", "none"]) | st.lists(st.integers(-1, 5), max_size=5),
        max_size=4,
    ),
)  # fmt: skip
def test_garbage_gives_bad_input_or_a_plan(arch: str, keys: dict[str, Any]) -> None:
    with contextlib.suppress(BadInput):
        assert isinstance(of(arch, **keys), Resolved)


def test_a_vocabulary_is_not_made_to_find_the_positions() -> None:
    """Lists of a model's own layers are, however long."""

    class Long(Said):
        @property
        def metadata(self) -> dict[str, Any]:
            raise AssertionError("every token was made")

        @metadata.setter
        def metadata(self, _: Any) -> None: ...

    keys = {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama.context_length": 64,
        "llama.embedding_length": 64,
        "llama.attention.head_count": 4,
        "llama.rope.freq_base": 500_000.0,
    }
    assert resolve_gguf(cast(GGUF, Long(keys))).plan.stated == 64
    slides = [True] * 4999 + [False]
    said = Said({"general.architecture": "gemma3"})
    keys = {key.replace("llama", "gemma3"): value for key, value in keys.items() if key != "general.architecture"}
    said.small = {
        "general.architecture": "gemma3",
        **keys,
        "gemma3.block_count": 5000,
        "gemma3.attention.sliding_window": 512,
    }
    said.long = ("gemma3.attention.sliding_window_pattern",)
    said.metadata = {**said.small, "gemma3.attention.sliding_window_pattern": slides}
    layers = resolve_gguf(cast(GGUF, said)).plan.layers
    assert [layer.window is not None for layer in layers] == slides


def test_keys_that_nothing_reads_are_harmless_or_named() -> None:
    assert of("llama", feed_forward_length=64, attention__value_length_swa=64, attention__causal=True).plan
    found = of("llama", some_gate=2)
    assert found.not_looked_at == ("llama.some_gate",)
    for key, value in {"attention__causal": False, "attention__key_length_swa": 64, "rope__new": 1}.items():
        with pytest.raises(BadInput, match="looks like a position setting"):
            of("llama", **{key: value})
