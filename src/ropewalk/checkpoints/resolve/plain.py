"""Positions that do not rotate: learned tables, T5's buckets, ALiBi, sinusoids."""

from __future__ import annotations

import json
from typing import Any

from ropewalk.checkpoints.architectures.architecture import Architecture
from ropewalk.checkpoints.resolve.keys import LARGEST_LENGTH, MOST_LAYERS, Keys, shown
from ropewalk.plan import LayerPlan, Plan


def plain_plans(keys: Keys, known: Architecture, notes: list[str]) -> dict[str, Plan]:
    match known.kind:
        case "t5":
            return _t5(keys, known, notes)
        case "sinusoidal":
            return _sinusoidal(keys, known)
        case "learned" | "mpnet":
            return _learned(keys, known, notes)
        case _:
            return _alibi(keys, known, notes)


def _learned(keys: Keys, known: Architecture, notes: list[str]) -> dict[str, Plan]:
    kind = keys.text("position_embedding_type")
    if kind not in (None, "absolute"):
        raise keys.bad(
            "position_embedding_type",
            f"{shown(kind)} is another encoding than the table of transformers 5's {keys.owner}; the weights were "
            "trained with it, so no other value is right for them",
            "it is neither inspected nor loaded"
            + (": the code its auto_map names is never run" if "auto_map" in keys.data else ""),
        )
    if known.longest_key == "n_positions" and (context := keys.integer("n_ctx", most=LARGEST_LENGTH)) is not None:
        rows = keys.needed(known.longest_key, most=LARGEST_LENGTH)
        if rows != context:
            raise keys.bad("n_ctx", f"is {context}, and n_positions, the rows of the table, {rows}", "make them equal")
    if keys.data.get("sinusoidal_pos_embds") is True:
        raise keys.bad(
            "sinusoidal_pos_embds", "true fills the table with sinusoids, which is not supported", "use false"
        )
    keys.read.add("sinusoidal_pos_embds")
    if known.stack == "encoder-decoder":
        if known.source_key is not None:
            notes.append("positions of the encoder are those of frames of sound, whose table holds sinusoids")
        return {
            "encoder": _table(keys, known, known.source_key or known.longest_key, "encoder_layers"),
            "decoder": _table(keys, known, known.longest_key, "decoder_layers"),
        }
    return {known.stack: _table(keys, known, known.longest_key, known.layer_key)}


def _table(keys: Keys, known: Architecture, longest_key: str, layer_key: str) -> Plan:
    """One learned table, whose rows are before the first layer."""
    rows = keys.needed(longest_key, most=LARGEST_LENGTH)
    first, first_from = known.first_row, f"transformers' code for {keys.owner}"
    if first == "pad":
        pad = keys.integer("pad_token_id", least=0)
        first, first_from = (
            (2 if pad is None else pad + 1),
            (first_from if pad is None else keys.source("pad_token_id")),
        )
    longest = rows if known.rows_beside else rows - first
    if longest < 1:
        raise keys.bad(longest_key, f"{rows} rows leave none past the first {first}", "correct it")
    table = {"longest": longest, "first_row": first}
    sources = {"longest": keys.source(longest_key), "first_row": first_from}
    name, settings = "learned", table
    if known.kind == "mpnet":
        for key, fixed in known.defaults.items():
            if (said := keys.needed(key, most=LARGEST_LENGTH)) != fixed:
                problem = f"is {said}, and transformers' code computes with {fixed} whatever it says"
                raise keys.bad(key, problem, "write what the model was trained with")
        buckets = _buckets(keys, bidirectional=True)
        name = "chain"
        settings = {"parts": [{"kind": "learned", **table}, {"kind": "t5", **buckets}]}
        sources["buckets"] = keys.source("relative_attention_num_buckets")
    layer = LayerPlan(kind=name, settings=json.dumps(settings), sources=tuple(sources.items()))
    count = keys.needed(layer_key, most=MOST_LAYERS)
    at = keys.source(longest_key) + ("" if not first or known.rows_beside else f" - {first}")
    return Plan(layers=(layer,) * count, stated=longest, table=longest, sources=(("stated", at), ("table", at)))


def _buckets(keys: Keys, *, bidirectional: bool) -> dict[str, Any]:
    buckets = keys.needed("relative_attention_num_buckets", least=4, most=65_536)
    farthest = keys.needed("relative_attention_max_distance", least=2, most=LARGEST_LENGTH)
    one_way = buckets // 2 if bidirectional else buckets
    if buckets % 2 or farthest <= one_way // 2:
        raise keys.bad(
            "relative_attention_max_distance",
            f"{farthest} does not lie past the {one_way // 2} exact ones of {buckets} buckets",
            "T5 has 32 and 128",
        )
    return {"buckets": buckets, "farthest": farthest, "bidirectional": bidirectional}


def _t5(keys: Keys, known: Architecture, notes: list[str]) -> dict[str, Plan]:
    encoder = keys.needed("num_layers", most=MOST_LAYERS)
    decoder = keys.integer("num_decoder_layers", most=MOST_LAYERS) or encoder
    stated = keys.integer("n_positions", least=2, most=LARGEST_LENGTH)
    if stated is not None:
        notes.append(f"n_positions {stated:,} is not a limit: nothing reads it")
    sources = {
        "buckets": keys.source("relative_attention_num_buckets"),
        "farthest": keys.source("relative_attention_max_distance"),
    }
    lengths = {"stated": stated, "sources": () if stated is None else (("stated", keys.source("n_positions")),)}
    plans = {}
    for side, count in (("encoder", encoder), ("decoder", decoder)):
        settings = json.dumps(_buckets(keys, bidirectional=side == "encoder"))
        layer = LayerPlan(kind="t5", settings=settings, sources=tuple(sources.items()))
        plans[side] = Plan(layers=(layer,) * count, **lengths)
    return plans


def _sinusoidal(keys: Keys, known: Architecture) -> dict[str, Plan]:
    longest = keys.integer(known.longest_key, least=2, most=LARGEST_LENGTH)
    layer = LayerPlan(
        kind="sinusoidal",
        settings=json.dumps({"layout": "half"}),
        sources=(("layout", f"transformers' code for {keys.owner}"),),
    )
    sources = () if longest is None else (("stated", keys.source(known.longest_key)),)
    return {
        side: Plan(layers=(layer,) * keys.needed(f"{side}_layers", most=MOST_LAYERS), stated=longest, sources=sources)
        for side in ("encoder", "decoder")
    }


def _alibi(keys: Keys, known: Architecture, notes: list[str]) -> dict[str, Plan]:
    """BLOOM always; MPT unless its attn_config says otherwise; Falcon where a key says so."""
    source = f"transformers' code for {keys.owner}"
    if known.alibi_key is not None:
        source = keys.source(known.alibi_key)
        spare = [key for key in ("rope_theta", "rope_scaling", "rope_parameters") if keys.stated(key) is not None]
        notes.extend(f"{key} is ignored here: {known.alibi_key} is true" for key in spare)
    if known.alibi_in is not None:
        source = _check_mpt(keys, known.alibi_in)
    count = _either(keys, known.layer_key, "num_hidden_layers", MOST_LAYERS)
    stated = keys.integer(known.longest_key, least=2, most=LARGEST_LENGTH)
    layer = LayerPlan(kind="alibi", sources=(("kind", source),))
    sources = () if stated is None else (("stated", keys.source(known.longest_key)),)
    return {"decoder": Plan(layers=(layer,) * count, stated=stated, sources=sources)}


def _either(keys: Keys, key: str, other: str, most: int) -> int:
    """BLOOM and Falcon configs have both spellings about."""
    one, two = keys.integer(key, most=most), keys.integer(other, most=most)
    if one is not None and two is not None and one != two:
        raise keys.bad(key, f"is {one}, and {other} is {two}", "keep the one that is meant")
    if one is None and two is None:
        raise keys.bad(key, "is missing, and no default is assumed", "add it")
    return one if one is not None else two or 0


def _check_mpt(keys: Keys, within: str) -> str:
    inner = keys.mapping(within)
    if inner is None:
        raise keys.bad(within, "is missing, and it says whether there is ALiBi", 'add {"alibi": true}')
    attention = keys.inside(within, inner)
    if attention.flag("alibi") is not True:
        raise attention.bad(
            "alibi",
            f"is {inner.get('alibi')!r}: transformers' MPT then has no positions, MosaicML's a learned table",
            "only MPT with ALiBi is supported",
        )
    slope = attention.number("alibi_bias_max", 0, 1e6)
    if slope not in (None, 8.0):
        raise attention.bad("alibi_bias_max", f"{slope:g} changes the slopes, and only 8 is supported", "use 8")
    if inner.get("rope") is True:
        raise attention.bad(
            "rope", "true rotates in MosaicML's code, and transformers ignores it", "remove one of the two"
        )
    return attention.source("alibi")
