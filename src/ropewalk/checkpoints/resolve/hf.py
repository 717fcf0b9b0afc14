"""config.json to a plan: which architecture it is, what each layer does with positions, and how long the texts may be.

`max_position_embeddings` is the trained length of a plain model, the extended length of most scaled ones and neither in
others (Qwen3 with YaRN), so the three lengths are kept apart, each with its source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ropewalk.checkpoints.architectures.architecture import Architecture
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.resolve.keys import LARGEST_LENGTH, Keys, shown
from ropewalk.checkpoints.resolve.layers import (
    CHUNKED,
    CONV,
    CROSS,
    FEED_FORWARD,
    FULL,
    LINEAR,
    SLIDING,
    Layers,
    is_causal,
    layer_count,
    read_layers,
    sees_both_ways,
)
from ropewalk.checkpoints.resolve.leftovers import check_leftovers
from ropewalk.checkpoints.resolve.lengths import lengths
from ropewalk.checkpoints.resolve.part import Part, find_part, refusal_of
from ropewalk.checkpoints.resolve.plain import plain_plans
from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.checkpoints.resolve.rope import Rotation, read_rotations
from ropewalk.plan import Arithmetic, LayerPlan, Plan, rope_layer


def resolve(
    config: Mapping[str, Any],
    *,
    name: str = "",
    where: str = "config.json",
    arithmetic: Arithmetic = "exact",
    strict: bool = True,
) -> Resolved:
    """What a transformers config says of positions: each key about them is used, noted as meaningless, or an error.

    strict=False: a key that is not understood stands in `not_understood` beside the plan, and is no error.
    """
    if not isinstance(config, Mapping):
        raise BadInput(where, "", "is not an object", "give the contents of a config.json")
    part = find_part(config, where)
    notes: list[str] = []
    stack = part.known.stack
    if part.known.kind == "rope" and not _is_alibi(part):
        if sees_both_ways(part.keys, part.known) or not is_causal(part.keys):
            stack = "encoder"
        plans = {"encoder" if stack == "encoder" else "decoder": _rope_plan(part, notes, arithmetic)}
    else:
        plans = plain_plans(part.keys, part.known, notes)
    speaking = plans["decoder"] if "decoder" in plans else plans["encoder"]
    left = check_leftovers(part, speaking, stack, notes)
    if strict and left.not_understood:
        raise next(iter(left.not_understood.values()))
    refusal = refusal_of(part)
    if part.refusal is not None and refusal != part.refusal:
        notes.append(part.refusal)
    stated = config.get("_name_or_path")
    return Resolved(
        name=name or (stated if isinstance(stated, str) else "") or part.model_type,
        where=where,
        model_type=part.model_type,
        stack=stack,
        plans=plans,
        config=config,
        text_at=part.path,
        notes=tuple(dict.fromkeys(notes)),
        not_understood={key: error.said for key, error in left.not_understood.items()},
        not_looked_at=left.not_looked_at,
        refusal=refusal,
    )


def _is_alibi(part: Part) -> bool:
    return part.known.alibi_key is not None and bool(part.keys.flag(part.known.alibi_key))


def _rope_plan(part: Part, notes: list[str], arithmetic: Arithmetic) -> Plan:
    keys, known = part.keys, part.known
    count = layer_count(keys, known)
    longest = keys.integer(known.longest_key, least=2, most=LARGEST_LENGTH)
    layers = read_layers(keys, known, count, notes)
    widths, width_from = _head_widths(keys, known, layers)
    turning = tuple(kind if rotates else "" for kind, rotates in zip(layers.types, layers.rotates, strict=True))
    rotations = read_rotations(keys, known, turning, widths, longest, notes)
    _check_marks(keys, known, rotations)
    each = tuple(zip(layers.types, layers.rotates, layers.bases, strict=True))
    built: dict[tuple[str, bool, float | None], LayerPlan] = {}
    for kind, rotates, base in dict.fromkeys(each):
        rotation = rotations.get(kind) if rotates else None
        if rotation is not None and base is not None:
            sources = {**rotation.sources, "base": keys.source(known.bases_key or "")}
            rotation = rotation._replace(rope=replace(rotation.rope, base=base), sources=sources)
        built[kind, rotates, base] = _layer(part, kind, rotation, layers, widths.get(kind), width_from, arithmetic)
    if any(kind in FEED_FORWARD for kind in layers.types):
        notes.append("layers that are a feed-forward network alone have no positions: kind none")
    if LINEAR in layers.types or CONV in layers.types:
        notes.append("layers of linear attention or convolution have no position encoding of their own: kind none")
    if CROSS in layers.types:
        notes.append("layers of cross-attention attend to an image, and have no positions: kind none")
    if CHUNKED in layers.types:
        notes.append(
            f"chunked_attention sees its own chunk of {layers.window:,} tokens, at most that many: shown as window"
        )
    if known.code is not None:
        notes.append(f"transformers has no {part.model_type}: what it is comes from {known.code}")
    if known.rotates == "none":
        notes.append(f"no layer rotates: {part.model_type} has no position encoding")
    elif known.latent or known.rotates_last:
        beside = " (qk_nope_head_dim)" if known.latent else ""
        notes.append(f"the rotated features of a head come after its still ones{beside}")
    if known.turns_values:
        notes.append("values are the rotated keys, and outputs are rotated back by the position of the query")
    scaled = [one for one in rotations.values() if one is not None and one.rope.scaling is not None]
    scaling, sources = (scaled[0].rope.scaling, scaled[0].sources) if scaled else (None, {})
    return Plan(
        layers=tuple(built[one] for one in each),
        **lengths(keys, known, scaling, sources, longest, notes),
    )


def _head_widths(keys: Keys, known: Architecture, layers: Layers) -> tuple[dict[str, int], str]:
    """Of a head of each type of layer, and where it came from."""
    if known.rotates == "none":
        return {}, ""
    if known.latent:
        if keys.flag("use_mla") is False:
            raise keys.bad(
                "use_mla",
                f"is false: heads without latent attention, which transformers' {keys.owner} does not have",
                "nothing here reads such a checkpoint",
            )
        still = keys.needed("qk_nope_head_dim", least=0, most=65_536)
        width = still + keys.needed("qk_rope_head_dim", most=65_536)
        return dict.fromkeys(layers.types, width), f"{keys.source('qk_nope_head_dim')} + qk_rope_head_dim"
    heads = keys.needed(known.heads_key, most=65_536)
    stated = None if known.head_key is None else keys.integer(known.head_key, most=65_536)
    if stated is not None and known.head_key is not None:
        widths, source = dict.fromkeys(layers.types, stated), keys.source(known.head_key)
    else:
        width = keys.needed(known.width_key)
        if width % heads:
            raise keys.bad(known.heads_key, f"{heads} does not divide {known.width_key} {width}", "correct one of them")
        widths = dict.fromkeys(layers.types, width // heads)
        source = f"{keys.source(known.width_key)} / {known.heads_key}"
    if "global_head_dim" in known.defaults and FULL in widths:
        widths[FULL] = _full_width(keys, layers) or keys.needed("global_head_dim", most=65_536)
    return widths, source


def _check_marks(keys: Keys, known: Architecture, rotations: dict[str, Rotation | None]) -> None:
    """Bases that only mark layers must be the common one: transformers rotates by that."""
    if not known.bases_mark or known.bases_key is None:
        return
    common = {rotation.rope.base for rotation in rotations.values() if rotation is not None}
    for base in keys.data.get(known.bases_key) or ():
        if base and common and base not in common:
            problem = f"has {shown(base)}, and transformers' {keys.owner} rotates by rope_theta {common.pop():,g} alone"
            raise keys.bad(known.bases_key, problem, "make them equal, or 0 for no rotation")


def _full_width(keys: Keys, layers: Layers) -> int | None:
    """Gemma 4 as transformers 5 writes it: the head width of full layers is in per_layer_config, by layer number."""
    listed = keys.mapping("per_layer_config")
    if not listed:
        return None
    full = {number for number, kind in enumerate(layers.types) if kind == FULL}
    numbers = {int(number) if str(number).isdecimal() else number for number in listed}
    widths = {entry.get("head_dim") if isinstance(entry, Mapping) else None for entry in listed.values()}
    within = {key for entry in listed.values() if isinstance(entry, Mapping) for key in entry}
    if numbers != full or len(widths) != 1 or within - {"head_dim", "num_key_value_heads"}:
        problem = f"{shown(listed, 40)} is not one head_dim for each of the {len(full)} full_attention layers"
        raise keys.bad("per_layer_config", problem, "write it as transformers does")
    width = Keys({"head_dim": widths.pop()}, keys.where, f"{keys.path}per_layer_config.*.").needed(
        "head_dim", most=65_536
    )
    if keys.stated("global_head_dim") not in (None, width):
        problem = (
            f"is {shown(keys.data['global_head_dim'])}, and per_layer_config says {width}, which transformers reads"
        )
        raise keys.bad("global_head_dim", problem, "keep the one that is meant")
    return width


def _layer(
    part: Part,
    kind: str,
    rotation: Rotation | None,
    layers: Layers,
    head: int | None,
    head_from: str,
    arithmetic: Arithmetic,
) -> LayerPlan:
    keys, known = part.keys, part.known
    window = layers.window if kind in (SLIDING, CHUNKED) else None
    sources = {"window": layers.sources["window"]} if window is not None else {}
    if "kind" in layers.sources:
        sources["kind"] = layers.sources["kind"]
    if rotation is None:
        heat = _llama4_temperature(keys) if known.temperature == "llama4" and kind == FULL else None
        kind = "none" if heat is None else "temperature"
        return LayerPlan(kind=kind, settings=json.dumps(heat or {}), window=window, sources=tuple(sources.items()))
    sources |= {
        **rotation.sources,
        "head_width": head_from,
        "layout": known.code or f"transformers' code for {part.model_type}",
    }
    layout = known.layout
    if "rope_interleave" in known.defaults and keys.flag("rope_interleave") is False:
        layout, sources["layout"] = "half", keys.source("rope_interleave")
    settings: dict[str, Any] = {"sections": None, "arrangement": "blocks"}
    if known.sections is not None:
        settings = _sections(keys, known, rotation)
    if known.temperature == "ministral" and (beta := rotation.extra.get("llama_4_scaling_beta")):
        settings["temperature"] = _ministral_temperature(keys, rotation, beta)
    try:
        layer = rope_layer(
            rotation.rope.base,
            rotation.width,
            rotation.rope.scaling,
            arithmetic,
            layout=layout,
            head_width=head,
            window=window,
            settings=json.dumps(settings),
            sources=tuple(sources.items()),
        )
        if not layer.resolved:
            layer.for_length(2)  # what does not fit must not wait for a length to be found
        return layer
    except ValueError as error:
        raise keys.bad(sources.get("scaling", sources["base"]).partition(":")[2], str(error)) from None


def _sections(keys: Keys, known: Architecture, rotation: Rotation) -> dict[str, Any]:
    sections = rotation.extra.get("mrope_section")
    if sections is None:
        sections = list(known.axes)
        if known.sections == "interleaved":  # the code overwrites the first axis, which keeps what is left
            sections[0] = max(0, rotation.width // 2 - sum(sections[1:]))
    if sum(sections) != rotation.width // 2:
        raise keys.bad(
            "mrope_section",
            f"{sections} adds up to {sum(sections)}, the head has {rotation.width // 2} frequencies",
            "fix it",
        )
    return {"sections": sections, "arrangement": known.sections}


def _llama4_temperature(keys: Keys) -> dict[str, Any] | None:
    on = keys.stated("attn_temperature_tuning")
    # transformers 4.51 wrote the number 4 here, and asked whether it is 0.
    on = on != 0 if type(on) is int else keys.flag("attn_temperature_tuning")
    floor, strength = keys.integer("floor_scale", least=2, most=LARGEST_LENGTH), keys.number("attn_scale", 0, 1e6)
    if on is False:
        return None
    return {"form": "llama4", "trained": floor or 8192, "strength": 0.1 if strength is None else strength}


def _ministral_temperature(keys: Keys, rotation: Rotation, beta: Any) -> dict[str, Any]:
    if isinstance(beta, bool) or not isinstance(beta, int | float) or not 0 < beta <= 1e6:
        raise keys.bad("llama_4_scaling_beta", f"{shown(beta)} is not a number above 0", "correct it")
    trained = getattr(rotation.rope.scaling, "trained", None)
    if trained is None:
        raise keys.bad("llama_4_scaling_beta", "needs original_max_position_embeddings beside it", "add it")
    return {"kind": "temperature", "form": "ministral", "trained": trained, "strength": float(beta)}
