"""SGLang, read in 0.5.23: srt/layers/rotary_embedding/*, srt/models/*, srt/utils/hf_transformers; run on a CPU.

It reads configs, and those of GGUF files, with transformers' classes, or with its own for some model types, then builds
tables of its own. A model passes a scaling on or does not; YaRN reads both mscale keys and no attention_factor; dynamic
NTK is a fixed base. LongRoPE has one table of both lists, whose rows a call takes from the long one where any position
of its batch is past the trained length. A window's size is what a query sees before itself. An architecture without a
class of its own runs transformers' modelling code.
"""

from __future__ import annotations

from dataclasses import replace

from ropewalk.checkpoints.architectures.generated import engine_names
from ropewalk.checkpoints.engines import transformers5
from ropewalk.checkpoints.engines.base import LayerReading, Reading, close, gain, yarn_of
from ropewalk.checkpoints.engines.besides import GAINS, STILL, TEMPERATURE, WINDOWS, Besides
from ropewalk.checkpoints.engines.deepseek import overwrites, taken_for_yarn
from ropewalk.checkpoints.engines.draft import Draft
from ropewalk.checkpoints.engines.facts import Facts, Subject
from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.scaling import Dynamic, Linear, Llama3, LongRoPE, Proportional, YaRN
from ropewalk.scaling.longrope import longrope_gain

ENGINE, VERSION = "SGLang", "0.5.23"

PER_BATCH = "in every call, by the largest position of its batch"


def read(resolved: Resolved) -> Reading:
    facts = Facts(resolved)
    if facts.gguf:
        return transformers5.read_gguf(facts, ENGINE, VERSION, "transformers5")
    names = engine_names("sglang")
    if facts.architecture not in names["architectures"]:
        return _through_transformers(resolved, facts)
    own = _text_class(facts)
    if (why := unread(facts)) is not None:
        return Reading(engine=ENGINE, version=VERSION, refusal=why)
    draft, switch = Draft(), "static"
    draft.besides = _besides(facts, own, draft)
    for stated in facts.subjects():
        subject = transformers5.held(facts, stated, draft)
        scaling = subject.layer.scaling
        base = _base(subject, own, draft)
        if scaling is not None and own in names["no_scaling"]:
            draft.ignore("rope_parameters" if facts.new else "rope_scaling")
            draft.note(f"uses plain RoPE, without {scaling.kind}", f"its {own} passes no scaling on")
            draft.layers.append(subject.numbers_of(None, base=base, width=_width(facts, subject, draft)))
        elif facts.row.sglang.rotates_as_transformers:
            draft.layers.append(subject.planned())
        elif overwrites(facts) and scaling is not None and not isinstance(scaling, YaRN):
            usual = {"factor": 1.0, "original_max_position_embeddings": facts.longest or 0}
            unscaled = not subject.block.get("apply_yarn_scaling", True)
            try:
                draft.layers.append(taken_for_yarn(subject, usual, unscaled=unscaled, draft=draft))
            except ValueError as error:
                return Reading(engine=ENGINE, version=VERSION, refusal=str(error))
        elif isinstance(scaling, YaRN):
            if any(subject.block.get(key) is not None for key in ("mscale", "mscale_all_dim")) and facts.row.sections:
                why = "its M-RoPE with YaRN takes no mscale keys"
                return Reading(engine=ENGINE, version=VERSION, refusal=why)
            draft.layers.append(_yarn(subject, scaling, base, draft))
        elif isinstance(scaling, LongRoPE):
            switch = PER_BATCH if scaling.switches else switch
            draft.layers.append(_longrope(facts, subject, scaling, base, draft))
        elif isinstance(scaling, Dynamic):
            draft.layers.append(_dynamic(subject, scaling, base, draft))
        elif isinstance(scaling, Proportional) and scaling.factor != 1:
            draft.ignore("factor")
            draft.note(
                f"does not divide the frequencies by {scaling.factor:g}",
                "its proportional RoPE takes the part of the head and no factor",
            )
            draft.layers.append(subject.numbers_of(Proportional(fraction=scaling.fraction), base=base))
        elif isinstance(scaling, Linear) and isinstance(subject.block.get("factor"), int):
            why = f"linear scaling's factor must be written as a float: {float(scaling.factor)!r}"
            return Reading(engine=ENGINE, version=VERSION, refusal=why)
        else:
            draft.layers.append(subject.numbers_of(scaling, base=base, width=_width(facts, subject, draft)))
    return draft.reading(ENGINE, VERSION, switch=switch, length=_length(facts))


def unread(facts: Facts) -> str | None:
    """Why the config cannot be read at all, before anything overrides it."""
    if (missing := next((key for key in facts.row.sglang.needs if facts.text.get(key) is None), None)) is not None:
        return f"its own config class of {_text_class(facts)} needs {missing}"
    if "su" in (facts.old.get("type"), facts.old.get("rope_type")):
        return "the transformers that it pins, 5.19, takes rope type longrope and no longer its first name, su"
    return None


def _text_class(facts: Facts) -> str:
    """The class of the text part: a model with several parts builds it, or rotates in a file of its own."""
    inner = facts.row.class_name or engine_names("transformers5")["types"].get(facts.resolved.model_type, "")
    return inner if inner in engine_names("sglang")["architectures"] else facts.architecture


def _through_transformers(resolved: Resolved, facts: Facts) -> Reading:
    """An architecture that is not its own runs transformers' modelling code inside SGLang."""
    found = transformers5.read(resolved)
    unread = (WINDOWS,) if found.besides is not None and any(found.besides.windows) else ()
    return replace(
        found,
        engine=ENGINE,
        version=f"{VERSION}, transformers' own {facts.architecture or facts.model_type}",
        length=_length(facts),
        unknown=(*found.unknown, *unread),
    )


def _base(subject: Subject, own: str, draft: Draft) -> float:
    base = subject.layer.base
    assert base is not None
    if own in engine_names("sglang")["whole_base"] and base != int(base):
        draft.note(f"rotates with theta {int(base):,} instead of {base:,.10g}", f"its {own} takes theta as an integer")
        return float(int(base))
    return base


def _width(facts: Facts, subject: Subject, draft: Draft) -> int | None:
    """Rotated features, where they are not the plan's."""
    if subject.partial is None or not facts.row.sglang.part_at_top or facts.text.get(subject.partial) is not None:
        return None
    used = int((subject.layer.head_width or 0) * facts.row.defaults[subject.partial])
    if used == subject.layer.rotary_width:
        return None
    draft.ignore("rope_parameters")
    draft.note(
        f"rotates {used} features of a head instead of {subject.layer.rotary_width}",
        f"it reads {subject.partial} at the top of the config, where newer transformers do not write it",
    )
    return used


def _besides(facts: Facts, own: str, draft: Draft) -> Besides:
    stated, names, row = facts.besides(), engine_names("sglang"), facts.row.sglang
    unread = {
        STILL: any(stated.still) and own not in names["still"],
        TEMPERATURE: any(stated.temperature) and own not in names["temperature"],
    }
    if any(stated.windows) and own not in names["windows"]:
        draft.ignore("sliding_window")
        draft.note("sees all tokens in every layer", f"its {own} passes no window on", about=WINDOWS)
        stated = replace(stated, windows=stated.nothing)
    elif any(stated.windows) and row.one_wider:
        wider = tuple(window and window + 1 for window in stated.windows)
        draft.note(
            f"sees {max(filter(None, wider)):,} tokens in sliding layers, one more than transformers",
            f"its {own} passes sliding_window where others pass one less, for what is seen before the query",
            about=WINDOWS,
        )
        stated = replace(stated, windows=wider)
    elif any(stated.windows) and row.pattern_alone and not isinstance(facts.text.get("sliding_window_pattern"), str):
        unread |= {WINDOWS: True, STILL: True}
    if any(stated.sections):
        stated = draft.arranged(next(iter(facts.subjects())), stated)
    draft.unknown = tuple(aspect for aspect, unknown in unread.items() if unknown)
    return stated


def _yarn(subject: Subject, scaling: YaRN, base: float, draft: Draft) -> LayerReading:
    one, other = (subject.block.get(key) for key in ("mscale", "mscale_all_dim"))
    latent, on_scores = scaling.dialect == "deepseek", 1.0
    if latent:
        rotary = gain(scaling.factor, 1.0 if one is None else one) / gain(scaling.factor, other or 0.0)
        if subject.block.get("apply_yarn_scaling", True):
            on_scores = gain(scaling.factor, other or 0.0) ** 2
    elif one is not None and other is not None:
        rotary = gain(scaling.factor, one) / gain(scaling.factor, other)
    else:
        rotary = gain(scaling.factor, 1.0)
    truncate = scaling.truncate or latent
    if truncate != scaling.truncate:
        draft.ignore("truncate")
        draft.note("rounds the ends of YaRN's ramp, though truncate is false", "its DeepSeek layer does not take it")
    why = "its YaRN reads the mscale keys, and no attention_factor"
    draft.other_gain(rotary, scaling.rotary_gain, why, ignored=["attention_factor"])
    if not close(on_scores, scaling.logit_gain):
        draft.note(
            f"multiplies scores by {on_scores:.4f} instead of {scaling.logit_gain:.4f}",
            "its DeepSeek layer reads mscale_all_dim" if latent else "only its DeepSeek layers apply mscale_all_dim",
            about=GAINS,
        )
    bare = {"attention_factor": None, "mscale": None, "mscale_all_dim": None}
    used = yarn_of(scaling, dialect="hf", truncate=truncate, **bare)
    return subject.numbers_of(used, base=base, rotary_gain=rotary, logit_gain=on_scores)


def _longrope(facts: Facts, subject: Subject, scaling: LongRoPE, base: float, draft: Draft) -> LayerReading:
    ratio = (facts.longest or scaling.trained) / scaling.trained
    rotary = subject.block.get("short_mscale") or longrope_gain(ratio, scaling.trained)
    if scaling.switches:
        draft.note(
            f"chooses LongRoPE's list for a whole batch: the long one where any text of it is past {scaling.trained:,}",
            "the rows of its table are chosen by the largest position of the call; cached keys keep their list",
        )
        draft.note(
            f"turns position {scaling.trained:,} as position 0, where no other of its batch is past it",
            "the long list's rows begin there in its table, and are taken for positions greater than that alone",
        )
    why = "the gain is that of max_position_embeddings / original_max_position_embeddings, or short_mscale"
    draft.other_gain(rotary, scaling.rotary_gain, why, ignored=["attention_factor", "factor"])
    return subject.numbers_of(scaling, base=base, rotary_gain=rotary)


def _dynamic(subject: Subject, scaling: Dynamic, base: float, draft: Draft) -> LayerReading:
    width, factor = subject.layer.rotary_width or 0, scaling.factor
    fixed = base * (factor * factor - (factor - 1)) ** (width / (width - 2))
    draft.note(
        "fixes dynamic NTK's base at start",
        "its table is for factor times max_position_embeddings, and texts of any length use it",
    )
    return subject.numbers_of(None, base=fixed)


def _length(facts: Facts) -> int | None:
    """Times the factor, where the trained length is not stated beside it."""
    longest = facts.longest
    block = facts.new or facts.old
    if longest is None or facts.nested or "original_max_position_embeddings" in block:
        return longest
    scalings = [subject.layer.scaling for subject in facts.subjects()]
    factor = block.get("factor", 1)
    if any(isinstance(scaling, Llama3) for scaling in scalings) or not isinstance(factor, int | float):
        return longest
    return int(longest * factor)
