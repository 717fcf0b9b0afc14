"""What engines make of a GGUF file: llama.cpp by its own rules, transformers without any scaling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ropewalk.checkpoints.engines import readings
from ropewalk.checkpoints.resolve.read import read as read_path
from tests.checkpoints.engine_configs import STATIC, g, noted, planned, yarn_in_llama_cpp


def gguf(path: Path, divisors: list[float] | None = None, **keys: Any) -> Path:
    """A file with the head of a Llama, and rope_freqs if given."""
    package = pytest.importorskip("gguf")
    import numpy

    writer = package.GGUFWriter(path, "llama")
    sizes = {"block_count": 2, "context_length": 8192, "embedding_length": 256, "attention.head_count": 4}
    for key, value in {**sizes, "rope.freq_base": 10_000.0, **keys}.items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)]
        add(f"llama.{key}", value)
    values = numpy.array(divisors or [1.0], dtype=numpy.float32)
    writer.add_tensor("rope_freqs.weight" if divisors else "other.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_with_yarn(tmp_path: Path) -> None:
    scaling = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 2048}
    path = gguf(tmp_path / "plain.gguf", **scaling)
    found = readings(read_path(path))
    (layer,) = found["llama.cpp"].layers
    expected = [yarn_in_llama_cpp(i, 1e4, 64, 4.0, 2048) for i in range(32)]
    assert layer.frequencies == pytest.approx(expected, rel=1e-12)
    assert layer.rotary_gain == pytest.approx(g(4.0))
    assert not found["llama.cpp"].disagrees
    for name in ("transformers5", "transformers4"):
        assert found[name].layers[0].frequencies == pytest.approx([1e4 ** (-2 * i / 64) for i in range(32)], rel=1e-12)
        assert noted(found[name], "uses plain RoPE, without yarn")
        assert "llama.rope.scaling.factor" in found[name].ignored
    assert "GGUF" in str(found["vllm"].refusal)

    beside = {"rope.scaling.yarn_attn_factor": 1.0, "rope.scaling.yarn_beta_fast": 16.0}
    found = readings(read_path(gguf(tmp_path / "more.gguf", **scaling, **beside)))
    assert found["llama.cpp"].layers[0].frequencies == pytest.approx(expected, rel=1e-12)
    assert found["llama.cpp"].layers[0].rotary_gain == pytest.approx(g(4.0))
    assert noted(found["llama.cpp"], "ramps from 32 to 1")
    assert noted(found["llama.cpp"], "multiplies cos and sin by 1.1386 instead of 1.0000")


def test_a_gguf_file_with_the_divisors_of_llama_3(tmp_path: Path) -> None:
    config = STATIC["llama3"]
    (plan,) = planned(config)
    divisors = [500_000.0 ** (-2 * i / 64) / omega for i, omega in enumerate(plan.frequencies)]
    found = readings(read_path(gguf(tmp_path / "llama3.gguf", divisors, **{"rope.freq_base": 500_000.0})))
    assert found["llama.cpp"].layers[0].frequencies == pytest.approx(plan.frequencies, rel=1e-6)
    assert found["llama.cpp"].switch == "static"
    assert not found["llama.cpp"].disagrees
    assert noted(found["transformers5"], "uses plain RoPE, without llama3")
