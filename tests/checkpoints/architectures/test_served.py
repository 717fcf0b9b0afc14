"""What engines serve and `inspect` does not read: each model type by its name, so that a new one is seen."""

from __future__ import annotations

from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

from ropewalk.checkpoints.architectures.generated import engine_names
from ropewalk.checkpoints.architectures.table import names

ENGINES = {"vLLM": engine_names("vllm"), "llama.cpp": engine_names("llama_cpp")["architectures"]}
NOT_READ = {
    "a base for each layer, 0 for none": {"granite_swa", "granitemoe_swa", "muse_glimmer", "step3p7"},
    "an indexer beside other layers": {"hy_v4", "minimax_m3_vl", "qwen4_exp", "qwen4_exp_text"},
    "hybrids, whose layers are named in ways of their own": {"glm5_next", "jamba", "kimi_linear", "nemotron_h"},
    "no attention": {"falcon_mamba", "mamba", "mamba2"},
    "keys in an object of their own": {"dbrx"},
    "layers at the beginning that rotate whatever their type": {"cohere2_moe"},
    "a window that does not count the query": {"mimo_v2_flash"},
    "two bases, and outputs that are rotated back": {"deepseek_v4"},
    "offsets of positions, or masks, around the text part": {"minicpmv4_6", "paddleocr_vl", "shieldgemma2"},
    "not looked at": {"gpt-sw3", "hrm_text"},
}


def served() -> dict[str, list[str]]:
    """Every model type of transformers' causal and image-text models, and the engines that have a class for it."""
    found: dict[str, list[str]] = {}
    for mapping in (MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES):
        for model_type, classes in mapping.items():
            written = {classes} if isinstance(classes, str) else {*classes}
            found.setdefault(model_type, []).extend(name for name, known in ENGINES.items() if written & {*known})
    return found


def test_what_both_engines_serve_is_read_or_named() -> None:
    unread = {name for name, engines in served().items() if {*engines} == {*ENGINES} and name not in names()}
    assert unread == set().union(*NOT_READ.values())
