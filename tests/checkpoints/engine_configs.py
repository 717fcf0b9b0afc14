"""Configs that engines read differently, and the formulas of their sources, one frequency at a time."""

from __future__ import annotations

import math
from typing import Any

from ropewalk.checkpoints.engines import Reading, readings
from ropewalk.checkpoints.engines.facts import Facts
from ropewalk.checkpoints.resolve.hf import resolve

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 256,
    "max_position_embeddings": 8192,
    "rope_theta": 10_000.0,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
LONGROPE = {
    "type": "longrope",
    "short_factor": [1.0 + 0.01 * i for i in range(16)],
    "long_factor": [2.0 + 0.5 * i for i in range(16)],
}
PHI3 = {
    "model_type": "phi3",
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "hidden_size": 128,
    "max_position_embeddings": 131_072,
    "original_max_position_embeddings": 4096,
    "rope_theta": 10_000.0,
    "sliding_window": None,
    "rope_scaling": LONGROPE,
}
GPT_OSS = {
    "model_type": "gpt_oss",
    "num_hidden_layers": 2,
    "num_attention_heads": 64,
    "hidden_size": 2880,
    "head_dim": 64,
    "max_position_embeddings": 131_072,
    "rope_theta": 150_000,
    "sliding_window": 128,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 32.0,
        "original_max_position_embeddings": 4096,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
    },
}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 2,
    "num_attention_heads": 128,
    "hidden_size": 7168,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "max_position_embeddings": 163_840,
    "rope_theta": 10_000,
    "rope_scaling": {
        "type": "yarn",
        "factor": 40,
        "original_max_position_embeddings": 4096,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    },
}


def llama(**changed: Any) -> dict[str, Any]:
    return {key: value for key, value in {**LLAMA, **changed}.items() if value is not None}


def read(config: dict[str, Any]) -> dict[str, Reading]:
    return readings(resolve(config))


def planned(config: dict[str, Any]):
    return [subject.planned() for subject in Facts(resolve(config)).subjects()]


def noted(reading: Reading, words: str) -> bool:
    return any(words in note.what for note in reading.notes if note.counts)


def g(factor: float, weight: float = 1.0) -> float:
    return 0.1 * weight * math.log(factor) + 1.0


def yarn_in_llama_cpp(i: int, base: float, width: int, factor: float, trained: int) -> float:
    """ggml_rope_yarn_corr_dims and rope_yarn, for the angle at position 1."""

    def place(rotations: float) -> float:
        return width * math.log(trained / (rotations * 2 * math.pi)) / (2 * math.log(base))

    start, end = max(0.0, math.floor(place(32.0))), min(width - 1.0, math.ceil(place(1.0)))
    mix = 1 - min(1.0, max(0.0, (i - start) / max(0.001, end - start)))
    omega = base ** (-2 * i / width)
    return omega / factor * (1 - mix) + omega * mix


STATIC = {
    "plain": llama(),
    "theta": llama(rope_theta=500_000.0),
    "linear": llama(rope_scaling={"rope_type": "linear", "factor": 4.0}),
    "yarn": llama(rope_scaling=YARN),
    "yarn, its gain given": llama(rope_scaling={**YARN, "attention_factor": 1.0}),
    "yarn, both mscales": llama(rope_scaling={**YARN, "mscale": 0.707, "mscale_all_dim": 1.0}),
    "yarn, other betas": llama(rope_scaling={**YARN, "beta_fast": 16.0, "beta_slow": 2.0}),
    "yarn, not truncated": llama(rope_scaling={**YARN, "truncate": False}),
    "llama3": llama(
        rope_theta=500_000.0,
        rope_scaling={
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    ),
    "gpt-oss": GPT_OSS,
    "deepseek": DEEPSEEK,
}
