"""transformers 4, read in 4.57.1: modeling_rope_utils.py, models/*/configuration_*.py.

It knows `rope_theta`, `rope_scaling` and `partial_rotary_factor` at the top of the config, and has never heard of
`rope_parameters`: a checkpoint that has only those gets the config class's own theta and no scaling. The formulas are
those of transformers 5, except that LongRoPE takes its trained length and its factor from the top of the config alone.
"""

from __future__ import annotations

from ropewalk.checkpoints.architectures import find
from ropewalk.checkpoints.engines.base import Draft, LayerReading, Reading, close
from ropewalk.checkpoints.engines.facts import Facts, Subject, known
from ropewalk.checkpoints.engines.transformers5 import (
    GROWING,
    PER_CALL,
    longrope,
    read_gguf,
    rotates_part,
    stateful,
    yarn,
)
from ropewalk.checkpoints.resolved import Resolved
from ropewalk.scaling import Dynamic, LongRoPE, YaRN

ENGINE, VERSION = "transformers 4", "4.57.1"

LOCAL_BASE = 10_000.0
"""Of sliding layers, in the config classes that give them a base of their own (Gemma 3, ModernBERT)."""


def read(resolved: Resolved) -> Reading:
    facts = Facts(resolved)
    if facts.gguf:
        return read_gguf(facts, ENGINE, VERSION, "transformers4")
    if (unknown := facts.unknown_to("transformers4")) is not None:
        return Reading(engine=ENGINE, version=VERSION, refusal=f"no model type {unknown!r} without remote code")
    if refusal := _refusal(facts):
        return Reading(engine=ENGINE, version=VERSION, refusal=refusal)
    draft, switch = Draft(), "static"
    for subject in facts.subjects():
        scaling = subject.layer.scaling
        if _unread(facts):
            draft.layers.append(_default(facts, subject, draft))
        elif scaling is None and subject.partial and not rotates_part(resolved, "transformers4"):
            why = f"its {resolved.model_type} does not read {subject.partial}"
            draft.whole(subject, why, "transformers#48652, transformers#48241")
        elif isinstance(scaling, YaRN):
            found = yarn(facts, subject, scaling, draft, nested_truncate=False, engine="transformers4")
            draft.layers.append(found)
        elif isinstance(scaling, LongRoPE):
            switch = PER_CALL
            draft.layers.append(_longrope(facts, subject, scaling, draft))
        elif isinstance(scaling, Dynamic):
            switch = GROWING
            stateful(subject, scaling, draft)
            draft.layers.append(subject.planned())
        else:
            draft.layers.append(subject.planned())
    return draft.reading(ENGINE, VERSION, switch=switch, length=facts.longest)


def _unread(facts: Facts) -> bool:
    """Whether the positions stand only where version 4 does not look."""
    return bool(facts.new) and not facts.old and not any(key in facts.text for key in ("rope_theta", "rotary_emb_base"))


def _refusal(facts: Facts) -> str | None:
    if not facts.old:
        return None
    kind = facts.old.get("rope_type", facts.old.get("type"))
    if kind == "proportional":
        return "no rope_type 'proportional'"
    if kind == "yarn" and facts.old.get("factor") is None:
        return "rope_scaling.factor is null, which it takes a logarithm of"
    if kind in ("longrope", "su") and facts.model_type == "phi3":
        if len(facts.old) != 3 or facts.old.get("type") not in ("longrope", "su"):
            return "its Phi-3 wants rope_scaling to be exactly type, short_factor and long_factor"
    elif kind == "longrope" and _top(facts) is None and facts.old.get("factor") is None:
        return "LongRoPE without original_max_position_embeddings at the top of the config needs a factor"
    return None


def _default(facts: Facts, subject: Subject, draft: Draft) -> LayerReading:
    types = known("transformers4")["types"]
    local = any(name == "base" and "local" in source for name, source in subject.layer.sources)
    sliding = facts.nested and subject.block is not facts.new.get("full_attention")
    theta = types.get(facts.resolved.model_type) or types.get(facts.model_type) or 10_000.0
    if (local or sliding) and facts.resolved.model_type in ("gemma3_text", "gemma3n_text", "modernbert"):
        theta = LOCAL_BASE
    base, scaling = subject.layer.base, subject.layer.scaling
    assert base is not None
    lost = [] if close(theta, base) else [f"theta {theta:,.10g} instead of {base:,.10g}"]
    lost += [] if scaling is None else [f"no {scaling.kind}"]
    width = subject.layer.rotary_width
    if subject.partial == "partial_rotary_factor" and "partial_rotary_factor" not in facts.text:
        known_type = find(facts.resolved.model_type)
        fraction = known_type.defaults.get("partial_rotary_factor", 1.0) if known_type else 1.0
        width = int((subject.layer.head_width or 0) * fraction)
        if width != subject.layer.rotary_width:
            lost.append(f"{width} rotated features instead of {subject.layer.rotary_width}")
    if lost:
        draft.ignore("rope_parameters")
        draft.note(
            f"takes {' and '.join(lost)}",
            "version 4 does not read rope_parameters; write rope_theta and rope_scaling beside them",
            "vllm#44158",
        )
    return subject.numbers_of(None, base=theta, width=width)


def _top(facts: Facts) -> int | None:
    """original_max_position_embeddings as an attribute of the config object; Phi-3's class has a default."""
    stated = facts.text.get("original_max_position_embeddings")
    if stated is None and facts.model_type == "phimoe":
        stated = facts.old.get("original_max_position_embeddings")
    return stated if isinstance(stated, int) else 4096 if facts.model_type == "phi3" else None


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
        )
    return found
