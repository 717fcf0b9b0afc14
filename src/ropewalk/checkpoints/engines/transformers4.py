"""transformers 4, read in 4.57.1 and run: modeling_rope_utils.py, models/*.

It knows `rope_theta`, `rope_scaling` and `partial_rotary_factor` at the top of the config, and has never heard of
`rope_parameters`: what stands only there, or a theta that stands only inside rope_scaling, is lost, and the config
class's own theta and no scaling stand in. So the rule is to read the config once more as this version sees it. The
formulas are those of transformers 5, except that LongRoPE takes its trained length and its factor from the top of the
config alone. Windows and layers without rotation are the plan's, but for Qwen2-MoE's.
"""

from __future__ import annotations

from dataclasses import replace

from ropewalk.checkpoints.architectures.generated import engine_names
from ropewalk.checkpoints.engines.base import LayerReading, Reading, close
from ropewalk.checkpoints.engines.besides import GAINS, SECTIONS, WINDOWS, Besides
from ropewalk.checkpoints.engines.draft import Draft
from ropewalk.checkpoints.engines.facts import Facts, Subject
from ropewalk.checkpoints.engines.transformers5 import (
    GROWING,
    PER_CALL,
    longrope,
    read_gguf,
    refused,
    rotates_part,
    stateful,
    yarn,
)
from ropewalk.checkpoints.resolve.hf import resolve
from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.plan import LayerPlan
from ropewalk.scaling import Dynamic, LongRoPE, YaRN

ENGINE, VERSION = "transformers 4", "4.57.1"


def read(resolved: Resolved) -> Reading:
    facts = Facts(resolved)
    if facts.gguf:
        return read_gguf(facts, ENGINE, VERSION, "transformers4")
    if (unknown := facts.unknown_to("transformers4")) is not None:
        return Reading(engine=ENGINE, version=VERSION, refusal=f"no model type {unknown!r} without remote code")
    besides = facts.besides()
    if refusal := _refusal(facts, besides):
        return Reading(engine=ENGINE, version=VERSION, refusal=refusal)
    draft, switch = Draft(), "static"
    draft.besides = _besides(facts, besides, draft)
    subjects = list(facts.subjects())
    seen = _seen(facts) if subjects else resolved
    if refusal := refused(Facts(seen), 4):
        return Reading(engine=ENGINE, version=VERSION, refusal=refusal)
    for stated in subjects:
        subject = _lost(stated, seen.plans[stated.side].layers[stated.numbers[0]], draft)
        scaling = subject.layer.scaling
        whole = subject.partial and not rotates_part(resolved, "transformers4")
        # Under a scaling the shared code reads partial_rotary_factor at the top of any config.
        if whole and (scaling is None or facts.text.get("partial_rotary_factor") is None):
            why = f"its {resolved.model_type} does not read {subject.partial}"
            draft.whole(subject, why, "transformers#48652, transformers#48241")
        elif scaling is not None and facts.row.transformers.no_scaling_in_4:
            draft.ignore("rope_scaling")
            draft.note(f"uses plain RoPE, without {scaling.kind}", "its Nemotron reads no rope_scaling")
            draft.layers.append(subject.numbers_of(None))
        elif isinstance(scaling, YaRN):
            found = yarn(facts, subject, scaling, draft, nested_truncate=False, engine="transformers4")
            draft.layers.append(found)
        elif isinstance(scaling, LongRoPE):
            switch = PER_CALL if scaling.switches else switch
            draft.layers.append(_longrope(facts, subject, scaling, draft))
        elif isinstance(scaling, Dynamic):
            switch = GROWING
            stateful(subject, scaling, draft)
            draft.layers.append(subject.planned())
        else:
            draft.layers.append(subject.planned())
    return draft.reading(ENGINE, VERSION, switch=switch, length=facts.longest)


def _seen(facts: Facts) -> Resolved:
    """The checkpoint as version 4 reads it: without rope_parameters, with the config class's own theta."""
    text = {key: value for key, value in facts.text.items() if key != "rope_parameters"}
    if facts.old:
        inside = ("rope_theta", "partial_rotary_factor")
        text["rope_scaling"] = {key: value for key, value in facts.old.items() if key not in inside}
    key = facts.row.theta_key
    if key in ("rope_theta", "rotary_emb_base") and text.get(key) is None:
        types = engine_names("transformers4")["types"]
        text[key] = types.get(facts.resolved.model_type) or types.get(facts.model_type) or 10_000.0
    return resolve(facts.with_text(text), where=facts.resolved.where, strict=False)


def _lost(stated: Subject, layer: LayerPlan, draft: Draft) -> Subject:
    """The subject as version 4 sees it, with a note of what it does not."""
    base, other, scaling = stated.layer.base, layer.base, stated.layer.scaling
    assert base is not None
    assert other is not None
    lost = [] if close(other, base) else [f"theta {other:,.10g} instead of {base:,.10g}"]
    lost += [f"no {scaling.kind}"] if scaling is not None and layer.scaling is None else []
    if layer.rotary_width != stated.layer.rotary_width:
        lost.append(f"{layer.rotary_width} rotated features instead of {stated.layer.rotary_width}")
    if lost:
        draft.ignore("rope_parameters")
        draft.note(
            f"takes {' and '.join(lost)}",
            "version 4 reads rope_theta and rope_scaling at the top of the config, not rope_parameters; write both",
            "vllm#44158",
        )
    return replace(stated, layer=layer)


def _besides(facts: Facts, besides: Besides, draft: Draft) -> Besides:
    if not facts.row.transformers.one_mask_in_4 or not any(besides.windows) or all(besides.windows):
        return besides
    window = next(one for one in besides.windows if one)
    draft.note(
        f"sees {window:,} tokens in every layer, also where the checkpoint has no window",
        "its Qwen2-MoE makes one mask for all layers",
        about=WINDOWS,
    )
    return replace(besides, windows=(window,) * len(besides.windows))


def _refusal(facts: Facts, besides: Besides) -> str | None:
    if SECTIONS in besides.present() and "mrope_section" not in facts.old:
        return "its attention reads rope_scaling.mrope_section, which is missing"
    if facts.row.transformers.needs_rope_type_in_4 and "rope_type" not in facts.old:
        return f"its {facts.model_type} reads rope_scaling.rope_type, which is missing"
    if not facts.old:
        return None
    kind = facts.old.get("rope_type", facts.old.get("type"))
    if kind == "proportional":
        return "no rope_type 'proportional'"
    outer = facts.outer.transformers
    if outer.two_keys_in_4 and (set(facts.old) != {"type", "factor"} or kind not in ("linear", "dynamic")):
        return f"its {facts.model_type} wants rope_scaling to be exactly type (linear or dynamic) and factor"
    if facts.row.transformers.llama3_alone_in_4 and kind not in ("llama3", "default"):
        return f"its Llama 4 reads every rope_scaling as llama3, also {kind!r}"
    if kind == "yarn" and facts.old.get("factor") is None:
        return "rope_scaling.factor is null, and it takes the logarithm of it"
    if kind in ("longrope", "su") and outer.longrope_in_three_keys_in_4:
        if len(facts.old) != 3 or facts.old.get("type") not in ("longrope", "su"):
            return "its Phi-3 wants rope_scaling to be exactly type, short_factor and long_factor"
    elif kind == "longrope" and _top(facts) is None and facts.old.get("factor") is None:
        return "LongRoPE without original_max_position_embeddings at the top of the config needs a factor"
    return None


def _top(facts: Facts) -> int | None:
    """original_max_position_embeddings as an attribute of the config object; Phi-3's class has a default."""
    stated = facts.text.get("original_max_position_embeddings")
    if stated is None and facts.outer.transformers.trained_within_in_4:
        stated = facts.old.get("original_max_position_embeddings")
    return stated if isinstance(stated, int) else facts.outer.transformers.trained_in_4


def _longrope(facts: Facts, subject: Subject, scaling: LongRoPE, draft: Draft) -> LayerReading:
    longest = facts.longest or scaling.trained
    trained = _top(facts) or longest
    factor = max(longest / trained, 1.0) if _top(facts) else scaling.ratio
    used = LongRoPE(
        short=scaling.short,
        long=scaling.long,
        trained=trained,
        factor=factor,
        attention_factor=scaling.attention_factor,
    )
    found = longrope(facts, subject, used, draft)
    if trained != scaling.trained:
        draft.ignore("rope_scaling.original_max_position_embeddings")
        draft.note(
            f"takes {trained:,} for the trained length instead of {scaling.trained:,}",
            "LongRoPE reads original_max_position_embeddings at the top of the config, not in rope_scaling",
            "transformers#33129",
        )
    elif not close(used.rotary_gain, scaling.rotary_gain):
        draft.ignore("factor")
        draft.note(
            f"multiplies cos and sin by {used.rotary_gain:.4f}",
            "the factor is max_position_embeddings / original_max_position_embeddings, whatever `factor` says",
            about=GAINS,
        )
    return found
