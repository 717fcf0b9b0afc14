"""Windows, layers without rotation and query temperatures in llama.cpp, read in the sources vendored by
llama-cpp-python 0.3.36: load_arch_hparams of src/models/*.cpp, and what conversion/*.py writes.

An architecture has windows where it sets swa_type; a `sliding_window` in another's config is dropped. Which layers
slide is written by some converters, and built in elsewhere.
"""

from __future__ import annotations

import json
from dataclasses import replace

from ropewalk.checkpoints.architectures.architecture import Architecture
from ropewalk.checkpoints.architectures.in_engines import InLlamaCpp
from ropewalk.checkpoints.engines.besides import STILL, TEMPERATURE, WINDOWS, Besides
from ropewalk.checkpoints.engines.draft import Draft
from ropewalk.checkpoints.engines.facts import Facts

HEAT = {"form": "llama4", "trained": 8192, "strength": 0.1}
"""Llama 4's, built in."""


def besides(facts: Facts, stated: Besides, draft: Draft) -> Besides:
    known = facts.row.llama_cpp
    if facts.gguf:
        # The plan of its own file was read from its code, which switches Phi-3's windows off.
        return _switched_off(stated, draft) if known.windows == "off" else stated
    if known.windows == "at one size":
        return _at_one_size(known.layers, stated, draft)
    found = _windows(facts.row, stated, draft) if any(stated.windows) else stated
    if known.fourth_still is not None:
        found = _every_fourth(facts.resolved.model_type, known.fourth_still, found, draft)
    if known.temperature == "built in":
        return _llama4(facts, found, draft)
    return _temperature(known, found, draft) if any(stated.temperature) else found


def _windows(row: Architecture, stated: Besides, draft: Draft) -> Besides:
    known, width = row.llama_cpp, next(filter(None, stated.windows))
    match known.windows:
        case "none":
            draft.ignore("sliding_window")
            draft.note(
                f"sees all tokens in every layer, without the window of {width:,}",
                f"{known.graph} has no windows",
                "llama.cpp#3377",
                about=WINDOWS,
            )
            return replace(stated, windows=stated.nothing)
        case "off":
            return _switched_off(stated, draft)
        case "built in":
            return _built_in(row, known.window or width, stated, draft)
        case "unknown":
            draft.unknown = (*draft.unknown, WINDOWS)
        case "first" if stated.windows[:: row.every] != stated.nothing[:: row.every]:
            draft.unknown = (*draft.unknown, WINDOWS)
    return stated


def _built_in(row: Architecture, width: int, stated: Besides, draft: Draft) -> Besides:
    found = tuple(width if (number + 1) % row.every else None for number in range(len(stated.windows)))
    if found != stated.windows:
        draft.ignore("layer_types" if row.llama_cpp.window is None else row.window_key)
        draft.note(
            f"sees {width:,} tokens in all layers but every {row.every}th, whatever the config says",
            "its converter does not write which layers slide, and the pattern is fixed in the loader",
            about=WINDOWS,
        )
    return replace(stated, windows=found)


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


def _at_one_size(layers: int | None, stated: Besides, draft: Draft) -> Besides:
    if len(stated.windows) == layers or not any(stated.windows):
        return stated
    draft.ignore("sliding_window")
    draft.note(
        "sees all tokens and rotates in every layer, without the windows of some",
        f"its EXAONE 4 has windows with {layers} layers, the 32B model, and with no other number",
        about=WINDOWS,
    )
    if any(stated.still):
        draft.note("rotates in every layer", "for the same reason", about=STILL)
    return replace(stated, windows=stated.nothing, still=(False,) * len(stated.still))


def _every_fourth(model_type: str, key: str, found: Besides, draft: Draft) -> Besides:
    still = tuple((number + 1) % 4 == 0 for number in range(len(found.still)))
    if still != found.still:
        draft.ignore(key)
        draft.note(
            f"leaves every fourth layer without rotation, whatever {key} says",
            f"its {model_type.removesuffix('_text')} has that step fixed in its code; the converter writes no other",
            "transformers#43756 (what the key means)" if key == "no_rope_layers" else "",
            about=STILL,
        )
    return replace(found, still=still)


def _temperature(known: InLlamaCpp, found: Besides, draft: Draft) -> Besides:
    if known.temperature == "written":
        return found
    if known.temperature == "dropped":
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
            "Llama 4's temperature is fixed in its code",
            about=TEMPERATURE,
        )
    built_in = json.dumps({**heat, **HEAT}, sort_keys=True)
    return replace(found, temperature=tuple(built_in if still else None for still in found.still))
