"""vLLM, read in 0.32.0: model_executor/layers/rotary_embedding/*, config/model.py, models/deepseek_v2.py, gpt_oss.py.

It reads configs with transformers' classes, then builds tables of its own. YaRN follows transformers by then
(before vllm#56446, `attention_factor` and the mscale keys were dropped: vllm#48351). All is decided at start:
LongRoPE's list by max_model_len, whose default is then the trained length; dynamic NTK for the table's own length.
"""

from __future__ import annotations

from typing import Any

from ropewalk.checkpoints.engines import transformers5
from ropewalk.checkpoints.engines.base import Draft, LayerReading, Reading, close, gain, yarn_of
from ropewalk.checkpoints.engines.facts import Facts, Subject, known
from ropewalk.checkpoints.resolved import Resolved
from ropewalk.scaling import Dynamic, Linear, LongRoPE, Proportional, YaRN

ENGINE, VERSION = "vLLM", "0.32.0"


def read(resolved: Resolved) -> Reading:
    facts = Facts(resolved)
    if facts.gguf:
        return Reading(engine=ENGINE, version=VERSION, refusal="GGUF is not in its own code any more, only in plug-ins")
    if facts.model_type not in known("transformers5")["types"] and facts.architecture not in known("vllm"):
        return Reading(
            engine=ENGINE, version=VERSION, refusal=f"no architecture {facts.architecture or facts.model_type!r}"
        )
    draft = Draft()
    if facts.architecture not in known("vllm"):
        return _through_transformers(resolved, facts)
    switch = "static"
    for subject in facts.subjects():
        scaling = subject.layer.scaling
        if isinstance(scaling, YaRN):
            draft.layers.append(_yarn(facts, subject, scaling, draft))
        elif isinstance(scaling, LongRoPE):
            switch = "at start, by max_model_len"
            draft.layers.append(_longrope(facts, subject, scaling, draft))
        elif isinstance(scaling, Dynamic):
            draft.layers.append(_dynamic(facts, subject, scaling, draft))
        elif isinstance(scaling, Proportional) and scaling.factor != 1:
            draft.ignore("factor")
            draft.note(
                f"does not divide the frequencies by {scaling.factor:g}",
                "its proportional RoPE takes the part of the head and no factor",
            )
            draft.layers.append(subject.numbers_of(Proportional(fraction=scaling.fraction)))
        elif isinstance(scaling, Linear) and isinstance(subject.block.get("factor"), int):
            why = f"linear scaling's factor must be written as a float: {float(scaling.factor)!r}"
            return Reading(engine=ENGINE, version=VERSION, refusal=why)
        else:
            draft.layers.append(subject.planned())
    return draft.reading(ENGINE, VERSION, switch=switch, length=_length(facts))


def _through_transformers(resolved: Resolved, facts: Facts) -> Reading:
    """An architecture that is not its own runs transformers' modelling code inside vLLM."""
    found = transformers5.read(resolved)
    return Reading(
        engine=ENGINE,
        version=f"{VERSION}, transformers' own {facts.architecture or facts.model_type}",
        layers=found.layers,
        switch=found.switch,
        length=_length(facts),
        ignored=found.ignored,
        notes=found.notes,
        refusal=found.refusal,
    )


def _yarn(facts: Facts, subject: Subject, scaling: YaRN, draft: Draft) -> LayerReading:
    if facts.architecture == "GptOssForCausalLM":
        used = yarn_of(scaling, dialect="hf", attention_factor=None, mscale=None, mscale_all_dim=None)
        if not close(used.rotary_gain, scaling.rotary_gain):
            draft.ignore("attention_factor", "mscale", "mscale_all_dim")
            draft.note(
                f"multiplies cos and sin by {used.rotary_gain:.4f} instead of {scaling.rotary_gain:.4f}",
                "its gpt-oss passes factor, lengths, betas and truncate on, and no gain",
            )
        return subject.numbers_of(used)
    if scaling.dialect == "deepseek":
        return _deepseek(subject, scaling, draft)
    if not close(gain(scaling.factor, 1.0), scaling.rotary_gain):
        draft.note(
            f"multiplies cos and sin by {scaling.rotary_gain:.4f} as it should; older versions by "
            f"{gain(scaling.factor, 1.0):.4f}",
            "before vllm#56446 (September 2026) its YaRN did not read attention_factor and the mscale keys",
            "vllm#48351, vllm#46280",
            counts=False,
        )
    return subject.numbers_of(yarn_of(scaling, dialect="hf"))


def _deepseek(subject: Subject, scaling: YaRN, draft: Draft) -> LayerReading:
    """Its DeepSeek attention: the ratio of both gains with defaults 1 and 0, no attention_factor, no truncate."""
    used = yarn_of(scaling, attention_factor=None, truncate=True)
    on_scores = gain(scaling.factor, scaling.mscale_all_dim or 0.0) ** 2
    if scaling.attention_factor is not None:
        if close(scaling.attention_factor, 1.0):
            on_scores = 1.0  # it takes attention_factor 1 as a sign of the form without a gain on the scores
        if not close(used.rotary_gain, scaling.rotary_gain) or not close(on_scores, scaling.logit_gain):
            draft.ignore("attention_factor")
            draft.note(
                f"multiplies cos and sin by {used.rotary_gain:.4f} and scores by {on_scores:.4f}",
                "its DeepSeek layer reads the mscale keys; attention_factor 1 only turns the gain on scores off",
                "vllm#48351",
            )
    if not scaling.truncate:
        draft.ignore("truncate")
        draft.note(
            "rounds the ends of YaRN's ramp, though truncate is false",
            "its DeepSeek layer does not take it",
            "vllm#27722",
        )
    return subject.numbers_of(used, logit_gain=on_scores)


def _longrope(facts: Facts, subject: Subject, scaling: LongRoPE, draft: Draft) -> LayerReading:
    longest = facts.longest or scaling.trained
    used = LongRoPE(
        short=scaling.short,
        long=scaling.long,
        trained=scaling.trained,
        factor=max(longest / scaling.trained, 1.0),
    )
    gains = [_number(subject.block.get(key)) or used.rotary_gain for key in ("short_mscale", "long_mscale")]
    served = _length(facts) or longest
    draft.note(
        f"uses LongRoPE's {'long' if served > scaling.trained else 'short'} list for every text, "
        f"the {'short' if served > scaling.trained else 'long'} one with --max-model-len "
        f"{'up to' if served > scaling.trained else 'past'} {scaling.trained:,}",
        "the list is chosen once, when the engine starts",
        "vllm#27414, vllm#27431",
        counts=False,
    )
    if not close(gains[0], scaling.rotary_gain):
        draft.ignore("attention_factor", "factor")
        draft.note(
            f"multiplies cos and sin by {gains[0]:.4f} instead of {scaling.rotary_gain:.4f}",
            "the gain is that of max_position_embeddings / original_max_position_embeddings, or short_mscale",
            "vllm#27431",
        )
    at = subject.numbers_of(used)
    always = at.stretched if served > scaling.trained else at.frequencies
    return subject.numbers_of(used, frequencies=always, stretched=at.stretched, rotary_gain=gains[0])


def _dynamic(facts: Facts, subject: Subject, scaling: Dynamic, draft: Draft) -> LayerReading:
    """Its base is that of a table of max_position_embeddings rows, whose trained length is the same number."""
    trained = _number(subject.block.get("max_trained_positions"))
    if trained:
        used = Dynamic(factor=scaling.factor, trained=int(trained), length=facts.longest)
        fixed = subject.numbers_of(used).stretched
        draft.note(
            "fixes dynamic NTK's base at start", "it scales for max_position_embeddings, at any length", "vllm#5093"
        )
        return subject.numbers_of(None, frequencies=fixed, stretched=fixed)
    draft.ignore("factor")
    draft.note(
        "does not scale at all",
        "without max_trained_positions it compares max_position_embeddings with itself; a longer text leaves its table",
        "vllm#5093, vllm#55910",
    )
    return subject.numbers_of(None)


def _length(facts: Facts) -> int | None:
    """max_model_len where none is given."""
    longest = facts.longest
    scalings = [subject.layer.scaling for subject in facts.subjects()]
    if longest is None:
        return None
    if any(isinstance(scaling, LongRoPE) for scaling in scalings):
        top = facts.text.get("original_max_position_embeddings")
        return top if isinstance(top, int) else longest
    if "gemma3" not in facts.resolved.model_type:
        for scaling in scalings:
            if isinstance(scaling, Linear | Dynamic | Proportional):
                return int(longest * scaling.factor)
    return longest


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
