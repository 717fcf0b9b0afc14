"""What engines serve and `inspect` does not read: each model type by its name, so that a new one is seen."""

from __future__ import annotations

from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)

from ropewalk.checkpoints.architectures.generated import engine_names
from ropewalk.checkpoints.architectures.table import names

ENGINES = {"vLLM": engine_names("vllm"), "llama.cpp": engine_names("llama_cpp")["architectures"]}
NOT_READ: dict[str, set[str]] = {}
"""Model types by the reason why their configs are not read: what is missing in them."""


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
