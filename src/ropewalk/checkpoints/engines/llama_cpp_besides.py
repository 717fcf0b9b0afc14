"""Windows, layers without rotation and query temperatures in llama.cpp, read in the sources vendored by
llama-cpp-python 0.3.36: load_arch_hparams of src/models/*.cpp, and what conversion/*.py writes.

An architecture has windows where it sets swa_type; a `sliding_window` in another's config is dropped. Which layers
slide is written by some converters, and built in elsewhere.
"""

from __future__ import annotations

import json
from dataclasses import replace

from ropewalk.checkpoints.engines.base import Draft
from ropewalk.checkpoints.engines.besides import STILL, TEMPERATURE, WINDOWS, Besides
from ropewalk.checkpoints.engines.facts import Facts

NO_WINDOWS = {
    "dots1": "its dots1 graph",
    "ministral3": "its mistral3 graph",
    "mistral": "its llama graph, which Mistral is converted to,",
    "mixtral": "its llama graph, which Mixtral is converted to,",
    "phimoe": "its phimoe graph",
    "qwen2": "its qwen2 graph",
    "qwen2_5_vl_text": "its qwen2vl graph",
    "qwen2_moe": "its qwen2moe graph",
    "qwen2_vl_text": "its qwen2vl graph",
    "qwen3": "its qwen3 graph",
    "qwen3_moe": "its qwen3moe graph",
    "smollm3": "its smollm3 graph",
    "starcoder2": "its starcoder2 graph",
}
BUILT_IN = {"cohere2": 4, "gemma2": 2, "gemma3_text": 6, "gpt_oss": 2, "llama4_text": 4}
"""Every n-th layer is full, whatever layer_types says."""
WRITTEN = ("exaone_moe", "gemma3n_text", "gemma4_text", "olmo3")
"""The converter writes which layers slide."""
EXAONE = 64
"""EXAONE 4 has windows, and layers without rotation, at this number of layers and no other."""
FOURTH_STILL = {"cohere2": "layer_types", "llama4_text": "no_rope_layers", "smollm3": "no_rope_layers"}
"""Model types whose every fourth layer does not rotate, and the key that would say otherwise."""
CHUNK = 8192
HEAT = {"form": "llama4", "trained": 8192, "strength": 0.1}
"""Llama 4's, built in."""


def besides(facts: Facts, stated: Besides, draft: Draft) -> Besides:
    model_type = facts.resolved.model_type
    if facts.gguf:
        # The plan of its own file was read from its code, which switches Phi-3's windows off.
        return _switched_off(stated, draft) if model_type == "phi3" else stated
    if model_type == "exaone4":
        return _exaone(stated, draft)
    found = stated
    if any(stated.windows):
        found = _windows(model_type, stated, draft)
    if model_type in FOURTH_STILL:
        found = _every_fourth(model_type, found, draft)
    if model_type == "llama4_text":
        return _llama4(facts, found, draft)
    return _temperature(model_type, found, draft) if any(stated.temperature) else found


def _windows(model_type: str, stated: Besides, draft: Draft) -> Besides:
    width = next(filter(None, stated.windows))
    if model_type in NO_WINDOWS:
        draft.ignore("sliding_window")
        draft.note(
            f"sees all tokens in every layer, without the window of {width:,}",
            f"{NO_WINDOWS[model_type]} has no windows",
            about=WINDOWS,
        )
        return replace(stated, windows=stated.nothing)
    if model_type == "phi3":
        return _switched_off(stated, draft)
    if model_type in BUILT_IN:
        every, width = BUILT_IN[model_type], CHUNK if model_type == "llama4_text" else width
        found = tuple(width if (number + 1) % every else None for number in range(len(stated.windows)))
        if found != stated.windows:
            draft.ignore("attention_chunk_size" if model_type == "llama4_text" else "layer_types")
            draft.note(
                f"sees {width:,} tokens in all layers but every {every}th, whatever the config says",
                "its converter does not write which layers slide, and the loader has the pattern built in",
                about=WINDOWS,
            )
        return replace(stated, windows=found)
    if model_type == "modernbert" and stated.windows[::3] == stated.nothing[::3]:
        return stated
    if model_type not in WRITTEN:
        draft.unknown = (*draft.unknown, WINDOWS)
    return stated


def _switched_off(stated: Besides, draft: Draft) -> Besides:
    if any(stated.windows):
        draft.ignore("sliding_window")
        draft.note(
            f"sees all tokens in every layer, without the window of {next(filter(None, stated.windows)):,}",
            "Phi-3's windows are switched off in its loader, which warns of it",
            "llama.cpp#13676",
            about=WINDOWS,
        )
    return replace(stated, windows=stated.nothing)


def _exaone(stated: Besides, draft: Draft) -> Besides:
    if len(stated.windows) == EXAONE or not any(stated.windows):
        return stated
    draft.ignore("sliding_window")
    draft.note(
        "sees all tokens and rotates in every layer, without the windows of some",
        f"its EXAONE 4 has windows with {EXAONE} layers, the 32B model, and with no other number",
        about=WINDOWS,
    )
    if any(stated.still):
        draft.note("rotates in every layer", "for the same reason", about=STILL)
    return replace(stated, windows=stated.nothing, still=(False,) * len(stated.still))


def _every_fourth(model_type: str, found: Besides, draft: Draft) -> Besides:
    still, key = tuple((number + 1) % 4 == 0 for number in range(len(found.still))), FOURTH_STILL[model_type]
    if still != found.still:
        draft.ignore(key)
        draft.note(
            f"leaves every fourth layer without rotation, whatever {key} says",
            f"its {model_type.removesuffix('_text')} has that step built in, and the converter writes no other",
            "transformers#43756 (what the key means)" if key == "no_rope_layers" else "",
            about=STILL,
        )
    return replace(found, still=still)


def _temperature(model_type: str, found: Besides, draft: Draft) -> Besides:
    if model_type == "ministral3":
        return found
    if model_type == "mistral4":
        draft.ignore("llama_4_scaling_beta")
        draft.note(
            "leaves out the temperature on the queries of far positions",
            "its converter of Mistral 4 does not write it",
            about=TEMPERATURE,
        )
        return replace(found, temperature=found.nothing)
    draft.unknown = (*draft.unknown, TEMPERATURE)
    return found


def _llama4(facts: Facts, found: Besides, draft: Draft) -> Besides:
    kinds = facts.text.get("layer_types")
    if isinstance(kinds, list) and all(kind == "full_attention" for kind in kinds):
        draft.unknown = (WINDOWS, STILL, TEMPERATURE)  # its form for MobileLLM, which was not read
        return found
    stated = next(filter(None, found.temperature), None)
    heat = {} if stated is None else json.loads(stated)
    if any(heat.get(key) != value for key, value in HEAT.items()):
        draft.ignore("attn_temperature_tuning", "floor_scale", "attn_scale")
        draft.note(
            "raises the queries' temperature by 0.1 from 8,192 tokens on, whatever the config says",
            "Llama 4's temperature is built in",
            about=TEMPERATURE,
        )
    built_in = json.dumps({**heat, **HEAT}, sort_keys=True)
    return replace(found, temperature=tuple(built_in if still else None for still in found.still))
