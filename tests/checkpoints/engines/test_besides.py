"""Windows, layers without rotation, temperatures and sections in vLLM 0.32.0 and llama.cpp: the facts of their sources,
written out here by hand. transformers is asked itself in test_engines_spelling.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ropewalk.checkpoints.engines import Reading, readings
from ropewalk.checkpoints.inspect.report import inspect
from ropewalk.checkpoints.resolve.read import read as read_path
from tests.checkpoints.engine_configs import LLAMA, PHI3, YARN, noted, read
from tests.checkpoints.engines.spellings import windowed


def config(model_type: str, architecture: str, **changed: Any) -> dict[str, Any]:
    whole = {**LLAMA, "model_type": model_type, "architectures": [architecture], "num_hidden_layers": 8, **changed}
    return {key: value for key, value in whole.items() if value is not None}


def windows(reading: Reading) -> tuple[int | None, ...]:
    assert reading.besides is not None
    return reading.besides.windows


LATE = {"sliding_window": 1024, "use_sliding_window": True}
DROPPED = {
    "mistral": ("MistralForCausalLM", {"sliding_window": 1024}),
    "mixtral": ("MixtralForCausalLM", {"sliding_window": 1024, "num_local_experts": 2}),
    "phi3": ("Phi3ForCausalLM", {"sliding_window": 1024}),
    "starcoder2": ("Starcoder2ForCausalLM", {"sliding_window": 1024}),
    "qwen2": ("Qwen2ForCausalLM", {**LATE, "max_window_layers": 0}),
    "qwen3": ("Qwen3ForCausalLM", {**LATE, "max_window_layers": 0}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", {**LATE, "num_experts": 2}),
}


@pytest.mark.parametrize("model_type", DROPPED)
def test_llama_cpp_has_no_windows_for_these(model_type: str) -> None:
    """Of their graphs none sets swa_type; phi3's loader sets it to none. The others see what the checkpoint says."""
    architecture, changed = DROPPED[model_type]
    found = read(config(model_type, architecture, **changed))
    assert windows(found["llama.cpp"]) == (None,) * 8
    assert noted(found["llama.cpp"], "without the window of 1,024")
    for name in ("transformers5", "transformers4", "vllm"):
        assert windows(found[name]) == (1024,) * 8
        assert not found[name].disagrees


def test_a_window_that_the_longest_text_fits_in_is_none() -> None:
    """Phi-3-mini-128k states 262,144, and Ministral 8B its whole length."""
    for longest, counts in ((8192, False), (8193, True)):
        found = read(config("mistral", "MistralForCausalLM", sliding_window=8192, max_position_embeddings=longest))
        assert found["llama.cpp"].disagrees == counts
    assert not noted(read({**PHI3, "sliding_window": 262_144})["llama.cpp"], "window")


def test_phi3_of_a_gguf_file_has_its_windows_switched_off_too(tmp_path: Path) -> None:
    package = pytest.importorskip("gguf")
    import numpy

    writer = package.GGUFWriter(tmp_path / "phi.gguf", "phi3")
    sizes = {"block_count": 2, "context_length": 4096, "embedding_length": 256, "attention.head_count": 4}
    for key, value in {**sizes, "attention.sliding_window": 2047}.items():
        writer.add_uint32(f"phi3.{key}", value)
    writer.add_float32("phi3.rope.freq_base", 10_000.0)
    writer.add_tensor("other.weight", numpy.ones(1, dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = readings(read_path(tmp_path / "phi.gguf"))
    assert noted(found["llama.cpp"], "without the window of 2,047")
    assert "windows" in found["transformers5"].unknown  # what it reads of them from GGUF was not looked at


@pytest.mark.parametrize(("model_type", "every"), [("gemma2", 2), ("gpt_oss", 2), ("gemma3_text", 6), ("cohere2", 4)])
def test_a_pattern_that_is_built_in(model_type: str, every: int) -> None:
    """Their converters write a window and not which layers have it."""
    names = {"gemma2": "Gemma2", "gpt_oss": "GptOss", "gemma3_text": "Gemma3", "cohere2": "Cohere2"}
    sizes = {"sliding_window": 1024, "head_dim": 64, "rope_theta": 10_000.0, "num_hidden_layers": 12}
    kinds = ["sliding_attention" if (i + 1) % every else "full_attention" for i in range(12)]
    usual = config(model_type, f"{names[model_type]}ForCausalLM", **sizes, layer_types=kinds)
    built_in = tuple(1024 if (i + 1) % every else None for i in range(12))
    assert windows(read(usual)["llama.cpp"]) == built_in
    other = {**usual, "layer_types": kinds[::-1]}
    assert windows(read(other)["transformers5"]) == built_in[::-1]
    assert windows(read(other)["llama.cpp"]) == built_in
    assert noted(read(other)["llama.cpp"], "whatever the config says")
    if model_type == "gpt_oss":
        assert windows(read(other)["vllm"]) == built_in
        assert noted(read(other)["vllm"], "whatever layer_types says")
    if model_type == "cohere2":
        assert noted(read(other)["llama.cpp"], "leaves every fourth layer without rotation, whatever layer_types")


def test_windows_of_exaone_4_hang_on_the_number_of_layers() -> None:
    small = config("exaone4", "Exaone4ForCausalLM", sliding_window=1024, sliding_window_pattern=4, num_hidden_layers=8)
    found = read(small)["llama.cpp"]
    assert windows(found) == (None,) * 8
    assert found.besides is not None
    assert not any(found.besides.still)
    assert {note.about for note in found.notes if note.counts} == {"windows", "layers without rotation"}
    assert not read({**small, "num_hidden_layers": 64})["llama.cpp"].disagrees


def test_llama_4_is_built_in() -> None:
    settings = {"attention_chunk_size": 8192, "max_position_embeddings": 131_072, "num_local_experts": 2}
    usual = config("llama4_text", "Llama4ForCausalLM", **settings, head_dim=64)
    assert [name for name, reading in read(usual).items() if reading.disagrees] == ["mlx"]  # its file has no chunks
    for key, value, words in (
        ("attention_chunk_size", 4096, "sees 8,192 tokens in all layers but every 4th"),
        ("no_rope_layers", [1, 0] * 4, "leaves every fourth layer without rotation"),
        ("attn_temperature_tuning", False, "raises the queries' temperature"),
        ("floor_scale", 4096, "raises the queries' temperature"),
    ):
        found = read({**usual, key: value})
        assert noted(found["llama.cpp"], words), key
        assert not found["vllm"].disagrees  # which reads all of them


def test_vllm_on_windows_of_some_layers() -> None:
    mixed = config("qwen2", "Qwen2ForCausalLM", **LATE, max_window_layers=4)
    assert "in all layers or in none" in str(read(mixed)["vllm"].refusal)
    experts = config("qwen2_moe", "Qwen2MoeForCausalLM", **LATE, max_window_layers=8, num_experts=2)
    assert noted(read(experts)["vllm"], "without the windows of some")
    command = config("cohere2", "Cohere2ForCausalLM", sliding_window=1024)
    assert windows(read(command)["vllm"]) == (1025, 1025, 1025, None) * 2
    assert noted(read(command)["vllm"], "sees 1,025 tokens")


def test_vllm_takes_a_window_that_the_architecture_has_not(tmp_path: Path) -> None:
    """Llama's code in transformers reads no sliding_window; vLLM's engine does, and no engine fails over the key."""
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "sliding_window": 1024}), encoding="utf-8")
    report = inspect(tmp_path)
    assert report.at_odds == ("vllm",)
    assert report.rows["vllm"].departs == ("windows",)
    assert report.loading == ("transformers5", "transformers4", "vllm", "llama.cpp", "sglang", "mlx")
    assert "windows" in report.compared


def test_the_temperature_of_ministral_3() -> None:
    """vLLM's Mistral asks for llama_4_scaling, a key of params.json; llama.cpp's converter writes it."""
    block = {**YARN, "rope_theta": 1e6, "llama_4_scaling_beta": 0.1, "mscale": 1.0, "mscale_all_dim": 1.0}
    ministral = config("ministral3", "Ministral3ForCausalLM", rope_theta=None, rope_parameters=block, head_dim=64)
    found = read(ministral)
    assert noted(found["vllm"], "leaves out the temperature")
    assert not found["transformers5"].disagrees
    assert not found["llama.cpp"].disagrees


def test_sections_of_m_rope() -> None:
    """vLLM arranges them by mrope_interleaved, transformers' Qwen3-VL always interleaved, llama.cpp as IMROPE."""
    block = {"rope_type": "default", "mrope_section": [12, 10, 10], "rope_theta": 1e6}
    model = config("qwen3_vl_text", "Qwen3VLForConditionalGeneration", head_dim=64, rope_theta=None)
    found = read({**model, "rope_parameters": {**block, "mrope_interleaved": True}})
    assert not any(reading.disagrees for reading in found.values())
    assert "rope_scaling.mrope_section" in str(found["transformers4"].refusal)
    found = read({**model, "rope_parameters": block})
    assert noted(found["vllm"], "as blocks; texts without images are not touched")
    assert not found["llama.cpp"].disagrees


def test_every_window_of_the_table_is_known_in_every_engine() -> None:
    """What cannot be compared is named; today that is nothing of these."""
    for name, small in windowed().items():
        for engine, reading in read({**small, "architectures": None}).items():
            # Windows where SGLang runs transformers' code, or goes by a pattern of letters, were not read.
            if engine == "sglang" and ("transformers' own" in reading.version or name.startswith("exaone")):
                continue
            if reading.refusal is None and not name.startswith("modernbert"):
                # Of the temperature of some models, the rules of SGLang and MLX-LM say that it was not compared.
                unread = {*reading.unknown} - ({"query temperature"} if engine in ("sglang", "mlx") else set())
                assert unread == set(), (name, engine)
