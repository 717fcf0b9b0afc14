"""TensorRT-LLM's PyTorch backend, read in its sources of the first half of 2026 and not run.

RopeParams.from_config of _torch/attention_backend/interface.py reads the base and rope_scaling, `type` before
`rope_type`. YaRN rounds its ramp and takes the ratio of both mscale keys, without attention_factor; its trained length
is 1,024 where none is stated. dynamic needs an alpha. Which architectures it loads, and its windows, were not read.
"""

from __future__ import annotations

from ropewalk.checkpoints.engines.base import LayerReading, Reading, gain, yarn_of
from ropewalk.checkpoints.engines.besides import GAINS
from ropewalk.checkpoints.engines.draft import Draft
from ropewalk.checkpoints.engines.exllamav3 import longrope
from ropewalk.checkpoints.engines.facts import Facts, Subject
from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.scaling import Dynamic, LongRoPE, Proportional, YaRN

ENGINE, VERSION = "TensorRT-LLM", "of early 2026, read and not run"

TRAINED_KEY = "original_max_position_embeddings"
TRAINED = 1024


def read(resolved: Resolved) -> Reading:
    facts = Facts(resolved)
    if facts.gguf:
        return Reading(engine=ENGINE, version=VERSION, refusal="it does not read GGUF")
    if facts.text.get("rotary_emb_base") is not None:
        return Reading(
            engine=ENGINE, version=VERSION, refusal="its RoPE takes rotary_emb_base for a number of features"
        )
    besides = facts.besides()
    draft, switch = Draft(besides=besides, unknown=besides.present()), "static"
    for subject in facts.subjects():
        scaling = subject.layer.scaling
        if isinstance(scaling, Proportional):
            return Reading(engine=ENGINE, version=VERSION, refusal="its RoPE has no rope type proportional")
        if isinstance(scaling, YaRN):
            if scaling.dialect == "deepseek":
                draft.unknown = tuple(dict.fromkeys((*draft.unknown, GAINS)))
            draft.layers.append(_yarn(facts, subject, scaling, draft))
        elif isinstance(scaling, LongRoPE):
            switch = "at start, by the length it is given" if scaling.switches else switch
            draft.layers.append(longrope(facts, subject, scaling, draft))
        elif isinstance(scaling, Dynamic):
            draft.ignore("factor")
            draft.note("does not scale at all", "its dynamic NTK needs an alpha, and takes 1 where there is none")
            draft.layers.append(subject.numbers_of(None))
        else:
            draft.layers.append(subject.planned())
    return draft.reading(ENGINE, VERSION, switch=switch, length=facts.longest)


def _yarn(facts: Facts, subject: Subject, scaling: YaRN, draft: Draft) -> LayerReading:
    trained = facts.text.get(TRAINED_KEY) or subject.block.get(TRAINED_KEY) or TRAINED
    one, other = (subject.block.get(key, default) for key, default in (("mscale", 1.0), ("mscale_all_dim", 0.0)))
    rotary = gain(scaling.factor, one) / gain(scaling.factor, other)
    if trained != scaling.trained:
        draft.note(
            f"ramps YaRN as for a trained length of {trained:,} instead of {scaling.trained:,}",
            "without original_max_position_embeddings it takes 1,024",
        )
    if not scaling.truncate:
        draft.ignore("truncate")
        draft.note("rounds the ends of YaRN's ramp, though truncate is false", "its YaRN does not take it")
    why = "its YaRN takes the ratio of both mscale keys, with defaults 1 and 0, and no attention_factor"
    draft.other_gain(rotary, scaling.rotary_gain, why, ignored=["attention_factor"])
    bare = {"attention_factor": None, "mscale": None, "mscale_all_dim": None}
    used = yarn_of(scaling, dialect="hf", truncate=True, trained=trained, **bare)
    return subject.numbers_of(used, rotary_gain=rotary, logit_gain=scaling.logit_gain)
