"""What SGLang, MLX-LM, TensorRT-LLM and exllamav3 are said to compute, against their formulas, one frequency at a time.
The first two are compared with their own classes in test_rotations.py."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ropewalk.checkpoints.engines import ENGINES, NOT_RUN, Reading
from ropewalk.checkpoints.inspect.report import counted_engines
from ropewalk.checkpoints.resolve.hf import resolve
from tests.checkpoints.engine_configs import LLAMA, PHI3, YARN, g, llama, noted, read

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
MIXTRAL = {**LLAMA, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"]}


def of(engine: str, config: dict[str, Any]) -> Reading:
    return ENGINES[engine].read(resolve(config))


def new(**parameters: Any) -> dict[str, Any]:
    """As transformers 5 saves it."""
    return {**{key: value for key, value in LLAMA.items() if key != "rope_theta"}, "rope_parameters": parameters}


def plain(base: float, width: int = 64) -> list[float]:
    return [base ** (-2 * i / width) for i in range(width // 2)]


def test_mlx_loses_base_and_scaling_that_are_in_rope_parameters_alone() -> None:
    found = of("mlx", new(rope_theta=500_000.0, **LLAMA3))
    assert found.layers[0].frequencies == pytest.approx(plain(10_000.0), rel=1e-12)
    assert noted(found, "theta 10,000 instead of 500,000")
    assert noted(found, "without llama3")
    assert "rope_parameters" in found.ignored
    both = of("mlx", {**new(rope_theta=500_000.0, **LLAMA3), "rope_theta": 500_000.0, "rope_scaling": LLAMA3})
    assert not both.disagrees


def test_mlx_does_not_load_where_its_file_has_no_default() -> None:
    config = {**new(rope_theta=1e6, rope_type="default"), "model_type": "qwen3_moe", "head_dim": 64}
    assert "qwen3_moe.py needs rope_theta" in str(of("mlx", config).refusal)
    three = {**config, "model_type": "qwen3"}
    assert of("mlx", three).refusal is None
    assert not of("mlx", three).disagrees


def test_mlx_has_a_share_of_its_own_where_phi_states_none() -> None:
    config = {**LLAMA, "model_type": "phi", "architectures": ["PhiForCausalLM"], "hidden_size": 320}
    found = of("mlx", config)
    assert found.layers[0].frequencies == pytest.approx(plain(10_000.0, int(0.4 * 80)), rel=1e-12)
    assert noted(found, "rotates 32 features of a head instead of 40")
    assert not of("mlx", {**config, "partial_rotary_factor": 0.5}).disagrees
    # Where a default is the same as transformers', there is nothing to say.
    nemotron = {**config, "model_type": "nemotron", "architectures": ["NemotronForCausalLM"]}
    assert not of("mlx", nemotron).disagrees


def test_mlx_yarn_has_neither_attention_factor_nor_truncate() -> None:
    found = of("mlx", llama(rope_scaling={**YARN, "attention_factor": 1.0, "truncate": False}))
    assert found.layers[0].rotary_gain == pytest.approx(g(4.0))
    assert noted(found, "truncate is false")
    rounded = of("mlx", llama(rope_scaling=YARN))
    assert found.layers[0].frequencies == rounded.layers[0].frequencies
    assert not rounded.disagrees


def test_mlx_has_windows_where_its_file_has() -> None:
    mistral = {**LLAMA, "model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 64}
    found = of("mlx", mistral)
    assert found.besides is not None
    assert found.besides.windows == (None, None)
    assert noted(found, "all tokens")


def test_sglang_fixes_dynamic_ntk_and_passes_no_scaling_to_some() -> None:
    found = of("sglang", llama(rope_scaling={"rope_type": "dynamic", "factor": 4.0}))
    base = 10_000.0 * (4.0 * 4.0 - 3.0) ** (64 / 62)
    assert found.layers[0].frequencies == found.layers[0].stretched == pytest.approx(plain(base), rel=1e-12)
    assert found.length == 4 * 8192
    dropped = of("sglang", {**MIXTRAL, "rope_scaling": YARN})
    assert dropped.layers[0].frequencies == pytest.approx(plain(10_000.0), rel=1e-12)
    assert noted(dropped, "without yarn")
    assert of("sglang", {**MIXTRAL, "rope_theta": 10_000.5}).layers[0].frequencies == dropped.layers[0].frequencies


def test_sglang_turns_position_l_as_0_and_yarn_without_attention_factor() -> None:
    found = of("sglang", PHI3)
    assert noted(found, "position 4,096 as position 0")
    assert "batch" in found.switch
    gained = of("sglang", llama(rope_scaling={**YARN, "attention_factor": 1.0}))
    assert gained.layers[0].rotary_gain == pytest.approx(g(4.0))
    assert gained.disagrees


def test_sglang_sees_one_more_token_in_command_r() -> None:
    config = {**LLAMA, "model_type": "cohere2", "architectures": ["Cohere2ForCausalLM"], "sliding_window": 64}
    found = of("sglang", {**config, "num_hidden_layers": 4, "logit_scale": 1.0})
    assert found.besides is not None
    assert found.besides.windows == (65, 65, 65, None)


def test_engines_that_were_read_and_not_run_are_shown_where_they_are_named() -> None:
    assert set(NOT_RUN).isdisjoint(read(LLAMA))
    assert set(NOT_RUN).isdisjoint(counted_engines(None))
    assert counted_engines(["exllamav3"]) == ("exllamav3",)
    assert all("not run" in ENGINES[name].VERSION for name in NOT_RUN)


def test_the_yarn_of_qwens_card() -> None:
    """40,960 stated, 32,768 trained, factor 4."""
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}
    config = llama(rope_theta=1e6, max_position_embeddings=40_960, rope_scaling=scaling)
    other, same = of("exllamav3", config), of("tensorrt-llm", config)
    assert other.layers[0].frequencies[-1] == pytest.approx(1e6 ** (-62 / 64) / 1.25, rel=1e-12)
    assert other.layers[0].rotary_gain == pytest.approx(0.1 * math.log(1.25) + 1)
    assert noted(other, "scales by 1.25 instead of 4")
    assert same.layers[0].frequencies[-1] == pytest.approx(1e6 ** (-62 / 64) / 4, rel=1e-12)
    assert not same.disagrees
