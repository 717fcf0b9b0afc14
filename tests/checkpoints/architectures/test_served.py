"""What engines serve and `inspect` does not read: each model type by its name, so that a new one is seen."""

from __future__ import annotations

from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

from ropewalk.checkpoints.architectures.generated import engine_names
from ropewalk.checkpoints.architectures.table import names
from ropewalk.checkpoints.engines import mlx, sglang

CLASSES = {
    "vLLM": engine_names("vllm"),
    "llama.cpp": engine_names("llama_cpp")["architectures"],
    "SGLang": engine_names("sglang")["architectures"],
}
"""Engines that go by the class a config names."""
TYPES = {"MLX-LM": [*engine_names("mlx_lm")["files"], *engine_names("mlx_lm")["remapped"]]}
"""And by the model type."""
NOT_READ: dict[str, dict[str, str]] = {
    "a draft model, which reads the keys and values of the model it drafts for": {
        "gemma4_assistant": "llama.cpp SGLang",
        "gemma4_unified_assistant": "llama.cpp SGLang",
    },
    "a bias projected from each query, which no encoding here has": {"inkling_mm_model": "vLLM SGLang"},
    "its code was not read": {
        "cosmos3_edge": "vLLM SGLang",
        "diffusion_gemma": "vLLM SGLang",
        "ernie4_5_vl_moe": "vLLM SGLang",
        "minicpmv4_7": "vLLM SGLang",
        "muse_spark": "SGLang MLX-LM",
        "nemotron_h_omni": "vLLM SGLang",
        "olmo_hybrid": "vLLM MLX-LM",
    },
}
"""Model types that two engines or more serve, with those, by the reason why their configs are not read."""


def served() -> dict[str, list[str]]:
    """Every model type of transformers' causal and image-text models, and the engines that have code for it."""
    found: dict[str, list[str]] = {}
    for mapping in (MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES):
        for model_type, classes in mapping.items():
            written = {classes} if isinstance(classes, str) else {*classes}
            engines = [name for name, known in CLASSES.items() if written & {*known}]
            engines += [name for name, known in TYPES.items() if model_type in known]
            before = found.setdefault(model_type, [])
            before += [name for name in engines if name not in before]
    return found


def test_what_two_engines_serve_is_read_or_named() -> None:
    unread = {name: " ".join(engines) for name, engines in served().items() if len(engines) > 1 and name not in names()}
    assert unread == {name: engines for types in NOT_READ.values() for name, engines in types.items()}


def test_nothing_that_three_engines_serve_is_unread() -> None:
    assert [name for name, engines in served().items() if len(engines) > 2 and name not in names()] == []


def test_names_are_of_the_versions_that_the_rules_were_read_in() -> None:
    assert engine_names("sglang")["version"] == sglang.VERSION
    assert engine_names("mlx_lm")["version"] == mlx.VERSION
