"""vLLM, read in 0.32.0: model_executor/layers/rotary_embedding/*, config/model.py, models/deepseek_v2.py, gpt_oss.py.

It reads configs with transformers' classes, then builds tables of its own. YaRN follows transformers by then
(before vllm#56446, `attention_factor` and the mscale keys were dropped: vllm#48351). All is decided at start:
LongRoPE's list by max_model_len, whose default is then the trained length; dynamic NTK for the table's own length.
An architecture that its registry gives to the "transformers" module runs transformers' modelling code.

Windows: models/*.py and engine/arg_utils.py. A model that passes none gets sliding_window in all layers where
layer_types is absent or all sliding, and none where it is mixed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ropewalk.checkpoints.architectures.generated import engine_names
from ropewalk.checkpoints.engines import transformers5
from ropewalk.checkpoints.engines.base import LayerReading, Reading, close, gain, yarn_of
from ropewalk.checkpoints.engines.besides import GAINS, SECTIONS, TEMPERATURE, WINDOWS, Besides
from ropewalk.checkpoints.engines.deepseek import overwrites, taken_for_yarn
from ropewalk.checkpoints.engines.draft import Draft
from ropewalk.checkpoints.engines.facts import Facts, Subject
from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.scaling import Dynamic, Linear, LongRoPE, Proportional, YaRN

ENGINE, VERSION = "vLLM", "0.32.0"
LENGTHS = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length"),
    *("max_sequence_length", "max_seq_length", "seq_len"),
)
"""Keys of which it takes the smallest (transformers_utils/model_arch_config_convertor.py)."""


def read(resolved: Resolved) -> Reading:
    facts = Facts(resolved)
    if facts.gguf:
        return Reading(engine=ENGINE, version=VERSION, refusal="GGUF support has moved out of its code into plug-ins")
    own = facts.architecture in engine_names("vllm")
    if not own and facts.model_type not in engine_names("transformers5")["types"]:
        return Reading(
            engine=ENGINE, version=VERSION, refusal=f"no architecture {facts.architecture or facts.model_type!r}"
        )
    if transformers5.type_unread(facts) and any(one.layer.scaling is not None for one in facts.subjects()):
        why = "its config has rope_type: default beside type, and the two must agree"
        return Reading(engine=ENGINE, version=VERSION, refusal=why)
    if not own:
        return _through_transformers(resolved, facts)
    besides = facts.besides()
    if facts.row.vllm.windows == "all or none" and any(besides.windows) and not all(besides.windows):
        why = "its Qwen2 and Qwen3 take a window in all layers or in none (max_window_layers)"
        return Reading(engine=ENGINE, version=VERSION, refusal=why)
    draft, switch = Draft(), "static"
    draft.besides = _besides(facts, besides, draft)
    for stated in facts.subjects():
        subject = transformers5.held(facts, stated, draft)
        scaling = subject.layer.scaling
        if (why := _unable(facts, subject)) is not None:
            return Reading(engine=ENGINE, version=VERSION, refusal=why)
        if overwrites(facts) and scaling is not None and not isinstance(scaling, YaRN):
            unscaled = subject.block.get("attention_factor") == 1.0
            try:
                draft.layers.append(taken_for_yarn(subject, {}, unscaled=unscaled, draft=draft))
            except ValueError as error:
                return Reading(engine=ENGINE, version=VERSION, refusal=str(error))
        elif isinstance(scaling, YaRN):
            draft.layers.append(_yarn(facts, subject, scaling, draft))
        elif isinstance(scaling, LongRoPE):
            switch = "at start, by max_model_len" if scaling.switches else switch
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


def _unable(facts: Facts, subject: Subject) -> str | None:
    """What its code of an architecture cannot compute at all."""
    scaling = subject.layer.scaling
    stated = any(facts.text.get(key) for key in ("rope_parameters", "rope_scaling"))  # else its config class has YaRN
    if facts.row.vllm.yarn_without_gain and stated:
        needed = ("factor", "original_max_position_embeddings", "beta_fast", "beta_slow")
        missing = next((f", and needs {key}" for key in needed if subject.block.get(key) is None), "")
        if missing or not isinstance(scaling, YaRN):
            return f"its {facts.model_type} computes YaRN alone{missing}"
    if isinstance(scaling, YaRN):
        needed = ("factor", "beta_fast", "beta_slow")
        null = next((key for key in needed if key in subject.block and subject.block[key] is None), None)
        if null is not None:
            return f"its YaRN computes with {null}, which is null"
    if isinstance(scaling, LongRoPE) and subject.layer.layout == "pairs" and not overwrites(facts):
        return "its LongRoPE turns halves of a head, and this model turns pairs"
    return None


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
        besides=found.besides,
        unknown=(WINDOWS,) if facts.row.vllm.windows_unread_in_transformers else found.unknown,
        refusal=found.refusal,
    )


def _besides(facts: Facts, besides: Besides, draft: Draft) -> Besides:
    windows = facts.row.vllm.windows
    if any(besides.windows) and windows == "unknown":
        draft.unknown = (*draft.unknown, WINDOWS)
    if (window := _unasked(facts)) is not None:
        draft.note(
            f"sees {window:,} tokens in every layer, though the model's code in transformers has no windows",
            "without layer_types it takes sliding_window for all layers, whatever the architecture",
            about=WINDOWS,
        )
        besides = replace(besides, windows=(window,) * len(besides.windows))
    if windows == "one wider" and any(besides.windows):
        wider = tuple(window and window + 1 for window in besides.windows)
        draft.note(
            f"sees {max(filter(None, wider)):,} tokens in sliding layers, one more than transformers",
            "its Command R passes sliding_window + 1, which it says is how the model was trained",
            about=WINDOWS,
        )
        besides = replace(besides, windows=wider)
    elif windows == "every other" and any(besides.windows):
        window = next(filter(None, besides.windows))
        fixed = tuple(None if number % 2 else window for number in range(len(besides.windows)))
        if fixed != besides.windows:
            draft.ignore("layer_types")
            draft.note(
                "has a window in every other layer, from the first, whatever layer_types says",
                "its gpt-oss goes by the layer index",
                about=WINDOWS,
            )
            besides = replace(besides, windows=fixed)
    elif windows == "all" and any(besides.windows) and not all(besides.windows):
        draft.ignore("sliding_window")
        draft.note(
            "sees all tokens in every layer, without the windows of some",
            "its Qwen2-MoE passes no window of a layer, and one for the model is taken where all layers have it",
            about=WINDOWS,
        )
        besides = replace(besides, windows=besides.nothing)
    if any(besides.temperature):
        besides = _temperature(facts, besides, draft)
    if any(besides.sections):
        besides = _sections(facts, besides, draft)
    return besides


def _unasked(facts: Facts) -> int | None:
    """A sliding_window that the architecture does not read, where its code leaves the window to the engine."""
    window = facts.text.get("sliding_window")
    if facts.row.pattern != "full" or facts.row.latent or facts.text.get("layer_types"):
        return None
    if not isinstance(window, int) or not 0 < window < (facts.longest or window):
        return None
    return window


def _temperature(facts: Facts, besides: Besides, draft: Draft) -> Besides:
    if facts.row.vllm.temperature == "dropped":
        draft.ignore("llama_4_scaling_beta")
        draft.note(
            "leaves out the temperature on the queries of far positions",
            "its Mistral reads llama_4_scaling of Mistral's own params.json, and takes that file where it is there",
            about=TEMPERATURE,
        )
        return replace(besides, temperature=besides.nothing)
    if facts.row.vllm.temperature == "unknown":
        draft.unknown = (*draft.unknown, TEMPERATURE)
    return besides


def _sections(facts: Facts, besides: Besides, draft: Draft) -> Besides:
    """As `mrope_interleaved` says, by plain RoPE's and YaRN's layers alone."""
    subject = next(iter(facts.subjects()))
    if subject.layer.scaling is not None and not isinstance(subject.layer.scaling, YaRN):
        draft.unknown = (*draft.unknown, SECTIONS)
        return besides
    return draft.arranged(subject, besides)


def _yarn(facts: Facts, subject: Subject, scaling: YaRN, draft: Draft) -> LayerReading:
    if facts.row.vllm.yarn_without_gain:
        used = yarn_of(scaling, dialect="hf", attention_factor=None, mscale=None, mscale_all_dim=None)
        why = "its gpt-oss passes factor, lengths, betas and truncate on, and no gain"
        keys = ("attention_factor", "mscale", "mscale_all_dim")
        draft.other_gain(used.rotary_gain, scaling.rotary_gain, why, ignored=keys)
        return subject.numbers_of(used)
    if scaling.dialect == "deepseek":
        return _deepseek(subject, scaling, draft)
    if not close(gain(scaling.factor, 1.0), scaling.rotary_gain):
        draft.note(
            f"multiplies cos and sin by {scaling.rotary_gain:.4f} as it should; older versions by "
            f"{gain(scaling.factor, 1.0):.4f}",
            "before vllm#56446 (September 2026) its YaRN did not read attention_factor and the mscale keys",
            "vllm#48351, vllm#46280",
            about=GAINS,
            counts=False,
        )
    if facts.row.vllm.table_four_times:
        return _yarn_on_sections(subject, scaling, draft)
    return subject.numbers_of(yarn_of(scaling, dialect="hf"))


def _yarn_on_sections(subject: Subject, scaling: YaRN, draft: Draft) -> LayerReading:
    used = yarn_of(scaling, dialect="hf", trained=4 * scaling.trained)
    draft.note(
        f"ramps YaRN as for a trained length of {used.trained:,} instead of {scaling.trained:,}",
        "its M-RoPE module makes the table four times as long, for videos, and YaRN's ramp takes that length for the "
        "trained one",
    )
    return subject.numbers_of(used)


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
                about=GAINS,
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
    if scaling.switches:
        draft.note(
            _by_length(served, scaling.trained),
            "the list is chosen once, when the engine starts, so that no cached key has another list's rotation",
            "vllm#27414, vllm#27431",
            counts=served > scaling.trained,
        )
    why = "the gain is that of max_position_embeddings / original_max_position_embeddings, or short_mscale"
    draft.other_gain(gains[0], scaling.rotary_gain, why, "vllm#27431", ignored=["attention_factor", "factor"])
    at = subject.numbers_of(used)
    always = at.stretched if served > scaling.trained else at.frequencies
    return subject.numbers_of(used, frequencies=always, stretched=at.stretched, rotary_gain=gains[0])


def _by_length(served: int, trained: int) -> str:
    if served > trained:
        return f"uses LongRoPE's long list for every text, short ones too; the short one with --max-model-len {trained}"
    return (
        f"ends at {trained:,} tokens unless told otherwise, and uses LongRoPE's short list; with --max-model-len past "
        "that, the long list for every text, short ones too"
    )


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
        "without max_trained_positions it compares max_position_embeddings to itself; a longer text exceeds its table",
        "vllm#5093, vllm#55910",
    )
    return subject.numbers_of(None)


def most(facts: Facts) -> int | None:
    """The smallest length that is stated: what max_model_len may be under LongRoPE, or without a scaling."""
    stated = [facts.text[key] for key in LENGTHS if _number(facts.text.get(key)) is not None]
    return min([*([] if facts.longest is None else [facts.longest]), *map(int, stated)], default=None)


def _length(facts: Facts) -> int | None:
    """max_model_len where none is given."""
    longest = most(facts)
    scalings = [subject.layer.scaling for subject in facts.subjects()]
    if longest is None:
        return None
    if any(isinstance(scaling, LongRoPE) for scaling in scalings):
        key = "original_max_position_embeddings"
        top = facts.text.get(key, facts.row.defaults.get(key))
        return top if isinstance(top, int) else longest
    if not facts.row.vllm.length_as_stated:
        for scaling in scalings:
            if isinstance(scaling, Linear | Dynamic | Proportional):
                return int(longest * scaling.factor)
    return longest


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
