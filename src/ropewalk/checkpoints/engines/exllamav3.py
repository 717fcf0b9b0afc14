"""exllamav3, read in its sources of August 2026 (util/rope.py) and not run.

It reads rope type, base and part of the head as transformers 4 spells them. YaRN's factor is max_position_embeddings
over original_max_position_embeddings, whatever `factor` says; LongRoPE's list is chosen by the length it is started
with. There is no dynamic NTK. Which architectures it loads, and its windows, were not read.
"""

from __future__ import annotations

from ropewalk.checkpoints.engines.base import LayerReading, Reading, close, gain, yarn_of
from ropewalk.checkpoints.engines.besides import GAINS
from ropewalk.checkpoints.engines.draft import Draft
from ropewalk.checkpoints.engines.facts import Facts, Subject
from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.scaling import NTK, Dynamic, LongRoPE, YaRN
from ropewalk.scaling.longrope import longrope_gain

ENGINE, VERSION = "exllamav3", "of August 2026, read and not run"


def read(resolved: Resolved) -> Reading:
    facts = Facts(resolved)
    if facts.gguf:
        return Reading(engine=ENGINE, version=VERSION, refusal="it does not read GGUF")
    besides = facts.besides()
    draft, switch = Draft(besides=besides, unknown=besides.present()), "static"
    for subject in facts.subjects():
        scaling = subject.layer.scaling
        if isinstance(scaling, Dynamic | NTK):
            return Reading(engine=ENGINE, version=VERSION, refusal="its RoPE has no rope type dynamic")
        if isinstance(scaling, YaRN):
            if scaling.dialect == "deepseek":
                draft.unknown = tuple(dict.fromkeys((*draft.unknown, GAINS)))
            draft.layers.append(_yarn(facts, subject, scaling, draft))
        elif isinstance(scaling, LongRoPE):
            switch = "at start, by the length it is given" if scaling.switches else switch
            draft.layers.append(longrope(facts, subject, scaling, draft))
        else:
            draft.layers.append(subject.planned())
    return draft.reading(ENGINE, VERSION, switch=switch, length=facts.longest)


def _yarn(facts: Facts, subject: Subject, scaling: YaRN, draft: Draft) -> LayerReading:
    factor = scaling.factor
    if subject.block.get("original_max_position_embeddings") is not None and facts.longest:
        factor = facts.longest / scaling.trained
    if not close(factor, scaling.factor):
        draft.ignore("factor")
        draft.note(
            f"scales by {factor:g} instead of {scaling.factor:g}",
            "its YaRN takes max_position_embeddings / original_max_position_embeddings for the factor",
        )
    one, other = scaling.mscale, scaling.mscale_all_dim
    rotary = gain(factor, one) / gain(factor, other) if one and other else gain(factor, 1.0)
    rotary = rotary if scaling.attention_factor is None else scaling.attention_factor
    draft.other_gain(rotary, scaling.rotary_gain, "its gain is that of its own factor")
    bare = {"attention_factor": None, "mscale": None, "mscale_all_dim": None}
    used = yarn_of(scaling, dialect="hf", factor=max(factor, 1.0), **bare)
    return subject.numbers_of(used, rotary_gain=rotary, logit_gain=scaling.logit_gain)


def longrope(facts: Facts, subject: Subject, scaling: LongRoPE, draft: Draft) -> LayerReading:
    """The list of the length it is started with, whose default is the stated one; the gain is that of the latter."""
    factor = (facts.longest or scaling.trained) / scaling.trained
    rotary = longrope_gain(factor, scaling.trained)
    found = subject.numbers_of(scaling, rotary_gain=rotary)
    why = "the gain is that of max_position_embeddings / original_max_position_embeddings"
    draft.other_gain(rotary, scaling.rotary_gain, why, ignored=["attention_factor", "factor"])
    if not scaling.switches or factor <= 1:
        return found
    draft.note(
        f"uses LongRoPE's long list for every text, unless it is started for at most {scaling.trained:,} tokens",
        "the list is chosen once, by the length it is started with",
    )
    return subject.numbers_of(scaling, rotary_gain=rotary, frequencies=found.stretched)
