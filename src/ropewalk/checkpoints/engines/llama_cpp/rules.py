"""llama.cpp, read in the sources vendored by llama-cpp-python 0.3.36: conversion/*.py, src/llama-model.cpp,
src/llama-context.cpp, src/models/*.cpp, ggml/src/ggml-cpu/ops.cpp.

A checkpoint comes to it through convert_hf_to_gguf.py, so two things are read: what the conversion keeps, and what the
engine makes of it.
    linear     rope.scaling.factor, on the layers the plan scales
    yarn       factor and trained length; ends of the ramp always rounded; betas read by two architectures alone; gain
               0.1 ln s + 1 whatever the file says (rope.scaling.yarn_attn_factor is written, and nothing reads it),
               divided by g(s, mscale_all_dim) on Ministral 3 and MLA models, mscale taken for 1
    llama3     divisors baked into the tensor rope_freqs, by the converters of Llama's relatives and EXAONE
    longrope   both lists, for Phi-3 (with the gain) and MiniCPM (without); chosen by the context size
    dynamic    dropped; proportional  baked in for Gemma 4, without the factor
    windows    engines/llama_cpp/besides.py
Angles are float32, each frequency the one before times base ** (-2 / D).
"""

from __future__ import annotations

from dataclasses import replace

from ropewalk.checkpoints.architectures.generated import engine_names
from ropewalk.checkpoints.engines.base import LayerReading, Reading, close, gain, yarn_of
from ropewalk.checkpoints.engines.besides import GAINS
from ropewalk.checkpoints.engines.draft import Draft
from ropewalk.checkpoints.engines.facts import Facts, Subject
from ropewalk.checkpoints.engines.llama_cpp.besides import besides
from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.scaling import Dynamic, Llama3, LongRoPE, Proportional, YaRN

ENGINE, VERSION = "llama.cpp", "of llama-cpp-python 0.3.36"


def read(resolved: Resolved) -> Reading:
    facts = Facts(resolved)
    names = engine_names("llama_cpp")
    if not facts.gguf and facts.architecture not in names["architectures"]:
        named = facts.architecture or facts.model_type
        return Reading(engine=ENGINE, version=VERSION, refusal=f"its converter has no {named}")
    if facts.row.llama_cpp.yarn_alone and not facts.gguf and not _all_yarn(facts):
        return Reading(engine=ENGINE, version=VERSION, refusal="its converter takes Ministral 3 with YaRN alone")
    draft, switch = Draft(), "static"
    draft.besides = besides(facts, facts.besides(), draft)
    for subject in facts.subjects():
        scaling = subject.layer.scaling
        if isinstance(scaling, LongRoPE) and scaling.switches:
            switch = "at start, by the context size"
        draft.layers.append(_gguf(facts, subject, draft) if facts.gguf else _converted(facts, subject, draft, names))
    return draft.reading(ENGINE, VERSION, switch=switch, length=facts.longest)


def _all_yarn(facts: Facts) -> bool:
    return all(isinstance(subject.layer.scaling, YaRN) for subject in facts.subjects())


def _converted(facts: Facts, subject: Subject, draft: Draft, names: dict[str, list[str]]) -> LayerReading:
    scaling, architecture = subject.layer.scaling, facts.architecture
    if facts.old and facts.text.get("rope_parameters", facts.old) is None:
        return _passed_over(facts, subject, draft)
    if scaling is None and subject.partial and architecture not in names["rotates_part"]:
        why = f"its converter of {architecture} does not read {subject.partial}"
        draft.whole(subject, why, "")
        return draft.layers.pop()
    if facts.nested and scaling is not None and subject.block != facts.new.get("full_attention"):
        draft.ignore("rope_parameters.sliding_attention")
        draft.note(
            f"uses plain RoPE on sliding layers, without {scaling.kind}",
            "of their parameters the converter writes rope_theta alone",
        )
        return subject.numbers_of(None)
    if isinstance(scaling, YaRN):
        return _yarn(facts, subject, scaling, draft, mla=architecture in names["mla"])
    if isinstance(scaling, Llama3) and architecture not in names["llama3"]:
        return _dropped(subject, draft, "llama3", "only the converters of Llama, EXAONE and DeciLM write rope_freqs")
    if isinstance(scaling, LongRoPE):
        return _longrope(facts, subject, scaling, draft, names)
    if isinstance(scaling, Dynamic):
        return _dropped(subject, draft, "dynamic", "the converter ignores the type, and the engine has no such scaling")
    if isinstance(scaling, Proportional):
        if architecture not in names["proportional"]:
            return _dropped(
                subject, draft, "proportional", "only Gemma 4's converter writes the pairs that do not turn"
            )
        if scaling.factor != 1:
            draft.ignore("factor")
            draft.note(
                f"does not divide the frequencies by {scaling.factor:g}",
                "Gemma 4's converter writes which pairs turn, and no factor",
            )
        return subject.numbers_of(Proportional(fraction=scaling.fraction))
    return subject.planned()


def _passed_over(facts: Facts, subject: Subject, draft: Draft) -> LayerReading:
    """`rope_parameters: null` beside rope_scaling: the converter asks whether the key is there, and gets null."""
    stated, base, scaling = facts.text.get("rope_theta"), subject.layer.base, subject.layer.scaling
    theta = float(stated or engine_names("transformers4")["types"].get(facts.resolved.model_type) or 10_000.0)
    assert base is not None
    lost = [] if close(theta, base) else [f"theta {theta:,.10g} instead of {base:,.10g}"]
    lost += [] if scaling is None else [f"no {scaling.kind}"]
    if lost:
        draft.ignore("rope_scaling")
        draft.note(
            f"takes {' and '.join(lost)}",
            "its converter reads rope_parameters where that key is there, also if it is null; remove the key",
        )
    return subject.numbers_of(None, base=theta)


def _dropped(subject: Subject, draft: Draft, kind: str, why: str) -> LayerReading:
    draft.ignore("rope_type")
    issue = {"dynamic": "llama.cpp#8361"}.get(kind, "")
    draft.note(f"uses plain RoPE, without {kind}", why, issue)
    return subject.numbers_of(None)


def _yarn(facts: Facts, subject: Subject, scaling: YaRN, draft: Draft, *, mla: bool) -> LayerReading:
    used = yarn_of(scaling, dialect="hf", truncate=True, attention_factor=None, mscale=None, mscale_all_dim=None)
    if not scaling.truncate:
        draft.ignore("truncate")
        draft.note(
            "rounds the ends of YaRN's ramp, though truncate is false",
            "ggml_rope_yarn_corr_dims always takes floor and ceil, and GGUF has no key for it",
            "vllm#27722 (the same rounding there, since fixed)",
        )
    if not facts.row.llama_cpp.reads_betas and (scaling.beta_fast, scaling.beta_slow) != (32.0, 1.0):
        used = yarn_of(used, beta_fast=32.0, beta_slow=1.0)
        draft.ignore("beta_fast", "beta_slow")
        draft.note(
            f"ramps from 32 to 1 rotations instead of {scaling.beta_fast:g} to {scaling.beta_slow:g}",
            "the file keeps the betas, and only the loaders of Grok and Ministral 3 read them",
            "miles#335 (Kimi K2's beta_fast, lost in training)",
        )
    rotary, on_scores = _gains(facts, scaling, mla)
    key = "attention_factor" if scaling.attention_factor is not None else "mscale"
    why = f"with YaRN on, the gain is computed from the factor, and {key} is not read"
    draft.other_gain(rotary, scaling.rotary_gain, why, "llama.cpp#17945", ignored=[key])
    if not close(on_scores, scaling.logit_gain):
        draft.ignore("mscale_all_dim")
        draft.note(
            f"multiplies scores by {on_scores:.4f} instead of {scaling.logit_gain:.4f}",
            "its DeepSeek graph takes mscale for 1, or for mscale_all_dim where that is not 1",
            "llama.cpp#17945, llama.cpp#7118",
            about=GAINS,
        )
    return subject.numbers_of(used, rotary_gain=rotary, logit_gain=on_scores)


def _gains(facts: Facts, scaling: YaRN, mla: bool) -> tuple[float, float]:
    """On cos and sin, and on scores."""
    weight = scaling.mscale_all_dim if mla or facts.row.llama_cpp.own_gain else None
    if not weight:
        rotary = gain(scaling.factor, 1.0)
        return rotary, rotary**2 if mla else 1.0
    above = weight if mla and weight != 1 else 1.0
    rotary = gain(scaling.factor, above) / gain(scaling.factor, weight)
    return rotary, (rotary * gain(scaling.factor, weight)) ** 2 if mla else 1.0


def _longrope(
    facts: Facts, subject: Subject, scaling: LongRoPE, draft: Draft, names: dict[str, list[str]]
) -> LayerReading:
    with_gain = facts.architecture in names["longrope_with_gain"]
    if not with_gain and facts.architecture not in names["longrope_without_gain"]:
        return _dropped(subject, draft, "longrope", "only the converters of Phi-3 and MiniCPM write the lists")
    longest = facts.longest or scaling.trained
    used = LongRoPE(
        short=scaling.short, long=scaling.long, trained=scaling.trained, factor=max(longest / scaling.trained, 1.0)
    )
    rotary = used.rotary_gain if with_gain else 1.0
    why = "the converter takes max_position_embeddings / original_max_position_embeddings, or none (MiniCPM)"
    draft.other_gain(rotary, scaling.rotary_gain, why, ignored=["attention_factor", "factor"])
    return _by_context(subject, used, draft, longest, scaling.trained, rotary)


def _by_context(
    subject: Subject, used: LongRoPE, draft: Draft, longest: int, trained: int, rotary: float
) -> LayerReading:
    at = subject.numbers_of(used)
    always_long = longest > trained
    if used.switches:
        chosen = "long" if always_long else "short"
        draft.note(
            f"uses LongRoPE's {chosen} list for every text, the short one up to -c {trained}",
            "the list is chosen by the context size, whose default is the longest the file states",
            "llama.cpp#24875, llama.cpp#8995",
            counts=always_long,
        )
    return subject.numbers_of(used, frequencies=at.stretched if always_long else at.frequencies, rotary_gain=rotary)


def _gguf(facts: Facts, subject: Subject, draft: Draft) -> LayerReading:
    """Its own file. The plan keeps what the keys say; the engine does not read all of them."""
    scaling = subject.layer.scaling
    if isinstance(scaling, YaRN):
        found = _yarn(facts, subject, yarn_of(scaling, attention_factor=None), draft, mla=facts.row.latent)
        factor = facts.resolved.config.get(f"{facts.arch}.rope.scaling.attn_factor")
        rotary = found.rotary_gain * (factor if isinstance(factor, float) else 1.0)
        why = "with YaRN on, the gain is computed from the factor, and yarn_attn_factor is overwritten"
        key = f"{facts.arch}.rope.scaling.yarn_attn_factor"
        draft.other_gain(rotary, subject.layer.rotary_gain, why, "llama.cpp#17945", ignored=[key])
        return replace(found, rotary_gain=rotary)
    if isinstance(scaling, LongRoPE) and scaling.switches:
        longest = facts.longest or scaling.trained
        return _by_context(subject, scaling, draft, longest, scaling.trained, scaling.rotary_gain)
    return subject.planned()
