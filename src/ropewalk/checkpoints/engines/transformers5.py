"""transformers 5, read in 5.22.2: modeling_rope_utils.py, models/*, integrations/ggml.py.

Frequencies are float32; cos and sin are multiplied by `attention_factor`. Length-dependent scalings are decided in
every forward pass: `longrope` by the largest position of the call, `dynamic` by the longest text seen so far, which
falls back only on a text shorter than max_position_embeddings. Keys cached before such a change keep their rotation;
generate() throws the cache away where Phi-3's list changes, as Phi-3's own code does.

The plan was read from its code, so windows, layers without rotation, temperatures and sections are the plan's.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ropewalk.checkpoints.architectures.generated import engine_names
from ropewalk.checkpoints.engines.base import LayerReading, Reading, gain, yarn_of
from ropewalk.checkpoints.engines.besides import GAINS
from ropewalk.checkpoints.engines.draft import Draft
from ropewalk.checkpoints.engines.facts import Facts, Subject
from ropewalk.checkpoints.resolve.hf import resolve
from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.scaling import Dynamic, LongRoPE, YaRN

ENGINE, VERSION = "transformers 5", "5.22.2"

PER_CALL = "in every call, by its largest position"
GROWING = "by the longest text seen so far"


def read(resolved: Resolved) -> Reading:
    facts = Facts(resolved)
    if facts.gguf:
        return read_gguf(facts, ENGINE, VERSION, "transformers5")
    if (unknown := facts.unknown_to("transformers5")) is not None:
        return Reading(engine=ENGINE, version=VERSION, refusal=f"no model type {unknown!r} without remote code")
    if refusal := refused(facts, 5):
        return Reading(engine=ENGINE, version=VERSION, refusal=refusal)
    draft, switch = Draft(besides=facts.besides()), "static"
    for stated in facts.subjects():
        subject = held(facts, stated, draft)
        scaling = subject.layer.scaling
        of_part = not subject.partial or rotates_part(resolved, "transformers5")
        if scaling is None and not of_part:
            why = f"its {resolved.model_type} builds plain RoPE for the whole head, and does not read {subject.partial}"
            draft.whole(subject, why, "transformers#48652")
        elif scaling is not None and not of_part and not _states_part(facts, subject):
            why = f"under {scaling.kind} its {resolved.model_type} reads partial_rotary_factor, not {subject.partial}"
            draft.whole(subject, why, "transformers#48652")
        elif facts.row.transformers.rotary_key_unread_in_5 and not _states_part(facts, subject):
            why = (
                f"its {resolved.model_type} reads partial_rotary_factor of rope_parameters, not {facts.row.rotary_key}"
            )
            draft.whole(subject, why, "transformers#48241 (the same for MiniMax-M2, repaired)")
        elif (theta := facts.row.transformers.theta_in_unread_in_5) and not _theta_elsewhere(facts):
            draft.layers.append(_object_theta(subject, theta, str(facts.row.theta_in), draft))
        elif (
            (theta := facts.row.transformers.sliding_theta_in_5) is not None
            and subject.layer.window is not None
            and not facts.nested
        ):
            draft.layers.append(_default_theta(subject, theta, draft))
        elif isinstance(scaling, YaRN):
            draft.layers.append(yarn(facts, subject, scaling, draft, nested_truncate=facts.row.rotates_by_type))
        elif isinstance(scaling, LongRoPE):
            switch = PER_CALL if scaling.switches else switch
            draft.layers.append(longrope(facts, subject, scaling, draft))
        elif isinstance(scaling, Dynamic):
            switch = GROWING
            stateful(subject, scaling, draft)
            draft.layers.append(subject.planned())
        else:
            draft.layers.append(subject.planned())
    return draft.reading(ENGINE, VERSION, switch=switch, length=facts.longest)


def _default_theta(subject: Subject, theta: float, draft: Draft) -> LayerReading:
    """OLMo 3's config gives rope_theta to the full layers and takes it out of the keys before the sliding ones."""
    if subject.layer.base != theta:
        draft.note(
            f"rotates sliding layers with theta {theta:,.0f} instead of {subject.layer.base:,.10g}",
            "its OLMo 3 config takes rope_theta out of the keys for the full layers, so that the sliding ones get the "
            "default; write rope_parameters by layer type",
        )
    return subject.numbers_of(subject.layer.scaling, base=theta)


def held(facts: Facts, stated: Subject, draft: Draft) -> Subject:
    """The subject as transformers' config class holds it, which vLLM and SGLang build their models from, too."""
    if stated.layer.scaling is None or not (type_unread(facts) or _scaling_unread(facts)):
        return stated
    text = {key: value for key, value in facts.text.items() if key != "rope_scaling"}
    seen = resolve(facts.with_text(text), where=facts.resolved.where, strict=False)
    layer = seen.plans[stated.side].layers[stated.numbers[0]]
    draft.ignore("rope_scaling")
    why = (
        "has rope_scaling for a field that nothing reads; write rope_parameters"
        if _scaling_unread(facts)
        else "puts rope_scaling into an object that says rope_type: default, which wins over type; write rope_type"
    )
    draft.note(
        f"takes no {stated.layer.scaling.kind} from rope_scaling",
        f"the config class of {facts.resolved.model_type} {why}",
    )
    return replace(stated, layer=layer)


def _scaling_unread(facts: Facts) -> bool:
    return bool(facts.old) and facts.row.transformers.scaling_unread_in_5


def type_unread(facts: Facts) -> bool:
    """Whether a scaling is lost because its kind is given as `type` alone."""
    alone = facts.old is not None and facts.old.get("type") is not None and "rope_type" not in facts.old
    return alone and facts.row.transformers.type_unread_in_5 and not facts.new


def _theta_elsewhere(facts: Facts) -> bool:
    return bool(facts.text.get("rope_parameters")) or facts.text.get("rope_theta") is not None


def _states_part(facts: Facts, subject: Subject) -> bool:
    key = "partial_rotary_factor"
    whole = subject.layer.head_width is None or subject.layer.rotary_width == subject.layer.head_width
    return whole or facts.text.get(key) is not None or subject.block.get(key) is not None


def _object_theta(subject: Subject, theta: float, within: str, draft: Draft) -> LayerReading:
    if subject.layer.base != theta:
        draft.ignore(f"{within}.rope_theta")
        draft.note(
            f"rotates with theta {theta:,.0f} instead of {subject.layer.base:,.10g}",
            f"its config class takes the base from rope_parameters or from the top, not from {within}",
        )
    return subject.numbers_of(subject.layer.scaling, base=theta)


def refused(facts: Facts, version: int) -> str | None:
    """Scalings that fail when the model is built."""
    model_type = facts.resolved.model_type
    drops = version == 5 and facts.row.transformers.scaling_drops_part_in_5
    if drops and facts.old and facts.old.get("partial_rotary_factor") is None:
        return f"its {model_type} loses the rotated part of a head where rope_scaling is given without it"
    for subject in facts.subjects():
        scaling = subject.layer.scaling
        if scaling is None:
            continue
        if facts.row.transformers.longrope_alone and not isinstance(scaling, LongRoPE):
            return f"its {model_type} takes longrope and no other rope type, not {scaling.kind!r}"
        unset = version in facts.row.transformers.head_dim_null and facts.text.get("head_dim") is None
        if unset and isinstance(scaling, Dynamic | YaRN | LongRoPE):
            return f"rope type {scaling.kind!r} fails on {model_type} unless the config states head_dim"
    return None


def rotates_part(resolved: Resolved, engine: str) -> bool:
    """Whether the model's code rotates a part of the head; the others' plain RoPE is built for all of it."""
    return resolved.model_type.removesuffix("_text") in engine_names(engine)["rotates_part"]


def yarn(
    facts: Facts,
    subject: Subject,
    scaling: YaRN,
    draft: Draft,
    *,
    nested_truncate: bool,
    engine: str = "transformers5",
) -> LayerReading:
    """`attention_factor` replaces the gain; else both mscale keys; else g(s, 1)."""
    used = yarn_of(scaling, dialect="hf")
    if nested_truncate and not scaling.truncate:
        used = yarn_of(used, truncate=True)
        draft.ignore("truncate")
        draft.note(
            "rounds the ends of YaRN's ramp, though truncate is false",
            "it looks for truncate beside the layer types, not among the parameters of the layer type",
            "transformers#45887 (the same bug, fixed for another key)",
        )
    on_score = 1.0
    if scaling.mscale_all_dim and facts.resolved.model_type in engine_names(engine)["gain_on_scores"]:
        on_score = gain(scaling.factor, scaling.mscale_all_dim) ** 2
    elif scaling.logit_gain != 1:
        draft.ignore("mscale_all_dim")
        draft.note(
            "leaves out YaRN's gain on the scores",
            f"its {facts.resolved.model_type} attention does not apply mscale_all_dim",
            "transformers#47435",
            about=GAINS,
        )
    found = subject.numbers_of(used, logit_gain=on_score)
    if scaling.dialect == "deepseek" and not math.isclose(found.rotary_gain, scaling.rotary_gain, rel_tol=1e-6):
        draft.note(
            f"multiplies cos and sin by {found.rotary_gain:.4f}",
            "without both mscale keys it takes 0.1 ln s + 1; DeepSeek's own rule takes the ratio with defaults 1 and 0",
            "vllm#56446",
            about=GAINS,
        )
    return found


def longrope(facts: Facts, subject: Subject, scaling: LongRoPE, draft: Draft) -> LayerReading:
    """The list of the length, as the checkpoint's authors have it; `scaling` is what this version takes it for."""
    starts_anew = facts.row.transformers.restarts_cache
    if scaling.switches:
        draft.note(
            f"chooses LongRoPE's list anew in every call: short up to {scaling.trained:,} tokens, then long",
            "as Phi-3's own code does; generate() discards the cache at the switch; a loop of your own must do the same"
            if starts_anew
            else "keys cached before the switch keep the short list's rotation",
            "transformers#33129",
            counts=not starts_anew,
        )
    found = subject.numbers_of(scaling)
    if facts.outer.transformers.never_long:
        draft.note(
            "never uses the long list",
            "its PhiMoE layer recomputes the frequencies without the length; only the gain switches",
        )
        return subject.numbers_of(scaling, stretched=found.frequencies)
    return found


def stateful(subject: Subject, scaling: Dynamic, draft: Draft) -> None:
    draft.note(
        f"raises dynamic NTK's base with the longest text seen so far, past {scaling.trained:,}",
        "a result depends on earlier calls, and cached keys keep the base they were rotated under",
        "transformers#25104, transformers#25306",
    )


def read_gguf(facts: Facts, engine: str, version: str, names: str) -> Reading:
    """Of a GGUF file it reads rope.freq_base, and context_length; no rope.scaling key but gpt-oss's, no rope_freqs."""
    besides = facts.besides()
    draft = Draft(besides=besides, unknown=besides.present())
    newer = engine == ENGINE and facts.row.transformers.reads_gguf_in_5
    if not newer and not {facts.resolved.model_type, facts.arch} & {*engine_names(names)["gguf_base"]}:
        why = f"it reads no rope.freq_base from GGUF architecture {facts.arch!r}"
        return Reading(engine=engine, version=version, refusal=why)
    ignored = [key for key in facts.resolved.config if key.startswith(f"{facts.arch}.rope.scaling.")]
    for subject in facts.subjects():
        scaling = subject.layer.scaling
        reads_scaling = facts.row.gguf is not None and facts.row.gguf.scaling_in_transformers
        if scaling is None or (reads_scaling and isinstance(scaling, YaRN)):
            draft.layers.append(subject.planned())
            continue
        draft.ignore(*ignored)
        draft.note(
            f"uses plain RoPE, without {scaling.kind}",
            "from a GGUF file it reads rope.freq_base and context_length, not rope.scaling.* nor the tensor rope_freqs",
            "vllm#7268 (rope_freqs taken for a weight)",
        )
        draft.layers.append(subject.numbers_of(None))
    return draft.reading(engine, version, length=facts.longest)
