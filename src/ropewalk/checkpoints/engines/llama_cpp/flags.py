"""llama.cpp's flags for RoPE: what to type for a scaling, and what it then computes from the file it is given.

Read in the sources vendored by llama-cpp-python 0.3.36 (common/arg.cpp, src/llama-context.cpp, src/models/*.cpp):
    --rope-scaling none|linear|yarn   replaces the type in the file; none turns its factor off
    --rope-scale F                    frequencies / F; --rope-freq-scale is 1 / F, so one of the two is given
    --rope-freq-base B                replaces the base
    --yarn-orig-ctx L, --yarn-beta-*  the trained length and the ramp
    --override-kv ARCH.context_length=int:N    llama-server cuts every text off at the file's context_length, whatever
                                      -c says; a YaRN factor other than the file's moves that end by itself
YaRN's gain is always 0.1 ln F + 1: --yarn-attn-factor is overwritten. Divisors that the file holds as tensors
(rope_freqs of Llama 3, LongRoPE's lists) stay in force beside any flag. Graphs that ask for the base and scale of a
layer take those of the file on layers with a window, whatever the flags say.
"""

from __future__ import annotations

from dataclasses import replace

from ropewalk.checkpoints.architectures.table import gguf_name
from ropewalk.checkpoints.engines.base import Disagreement, Reading, close, ratio, yarn_of
from ropewalk.checkpoints.engines.facts import Facts
from ropewalk.checkpoints.engines.llama_cpp import rules
from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.plan import LayerPlan
from ropewalk.scaling import NTK, Linear, Llama3, LongRoPE, Proportional, Scaling, YaRN


def flags(resolved: Resolved, scaling: Scaling, layer: LayerPlan, to: int) -> tuple[str, ...] | None:
    """Arguments for a scaling of a layer, and for texts of `to` tokens; None where there is no flag for it."""
    given = _flags(resolved, scaling, layer)
    facts = Facts(resolved)
    now = getattr(layer.scaling, "factor", None) if isinstance(layer.scaling, Linear | YaRN) else 1.0
    moves = isinstance(scaling, YaRN) and scaling.factor != now
    if given is None or moves or (facts.longest or 0) >= to:
        return given
    name = facts.arch or gguf_name(resolved.model_type)
    return (*given, "--override-kv", f"{name}.context_length=int:{to}")


def _flags(resolved: Resolved, scaling: Scaling, layer: LayerPlan) -> tuple[str, ...] | None:
    if isinstance(scaling, Linear):
        return ("--rope-scaling", "linear", "--rope-scale", _number(scaling.factor))
    if isinstance(scaling, NTK):
        scaled = any(layer.scaling is not None for layer in resolved.plan.layers)
        before = ("--rope-scaling", "none") if scaled else ()
        assert layer.base is not None
        assert layer.rotary_width is not None
        return (*before, "--rope-freq-base", _number(float(scaling.scaled_base(layer.base, layer.rotary_width))))
    if not isinstance(scaling, YaRN):
        return None
    found = ("--rope-scaling", "yarn", "--rope-scale", _number(scaling.factor), "--yarn-orig-ctx", str(scaling.trained))
    if (scaling.beta_fast, scaling.beta_slow) != (32.0, 1.0):
        found += ("--yarn-beta-fast", _number(scaling.beta_fast), "--yarn-beta-slow", _number(scaling.beta_slow))
    return found


def read(resolved: Resolved, scaling: Scaling) -> Reading:
    """What it computes from the file of this checkpoint, started with the flags of a scaling."""
    found = rules.read(resolved)
    if found.refusal is not None:
        return found
    facts = Facts(resolved)
    subjects = list(facts.subjects())
    if refusal := next(filter(None, (_stays(facts, subject.layer, scaling) for subject in subjects)), None):
        return replace(found, refusal=refusal)
    layers, notes = [], []
    for subject, as_is in zip(subjects, found.layers, strict=True):
        if ratio(as_is.frequencies, subject.planned().frequencies) == float("inf"):
            return replace(found, refusal="it rotates a different part of each head than the checkpoint states")
        reached = _reached(facts, subject.layer, scaling)
        if reached is None:
            return replace(
                found, refusal=f"whether flags reach the sliding layers of {resolved.model_type} is not known"
            )
        layers.append(subject.numbers_of(_computed(scaling)) if reached else as_is)
        if facts.row.llama_cpp.flags == "base" and isinstance(scaling, NTK) and subject.layer.window is not None:
            notes.append(_note("takes the new base on layers with a window too"))
        elif not reached:
            notes.append(_note("keeps the file's base and scale on layers with a window"))
    if isinstance(scaling, YaRN) and not scaling.truncate:
        notes.append(_note("rounds the ends of YaRN's ramp, though truncate is false"))
    elif isinstance(scaling, YaRN) and not close(_computed(scaling).rotary_gain, scaling.rotary_gain):
        notes.append(_note("computes YaRN's gain from the factor alone"))
    return replace(found, layers=tuple(layers), notes=tuple(notes))


def _note(what: str) -> Disagreement:
    return Disagreement(what=what, why="src/llama-context.cpp and src/models/*.cpp")


def _computed(scaling: Scaling) -> Scaling:
    if not isinstance(scaling, YaRN):
        return scaling
    return yarn_of(scaling, dialect="hf", truncate=True, attention_factor=None, mscale=None, mscale_all_dim=None)


def _stays(facts: Facts, layer: LayerPlan, scaling: Scaling) -> str | None:
    """What of the file no flag turns off."""
    if isinstance(layer.scaling, Llama3 | LongRoPE | Proportional):
        return f"the file holds the divisors of {layer.scaling.kind} as a tensor, and flags come on top of them"
    if isinstance(scaling, YaRN) and (facts.row.latent or facts.row.llama_cpp.own_gain):
        return "its graph has a gain of its own with YaRN, which comes from the file"
    if facts.gguf and facts.resolved.config.get(f"{facts.arch}.rope.scaling.attn_factor") not in (None, 1.0):
        return "the file's rope.scaling.attn_factor stays in force"
    return None


def _reached(facts: Facts, layer: LayerPlan, scaling: Scaling) -> bool | None:
    """Whether flags change a layer; None where that is not known."""
    if layer.window is None:
        return True
    match facts.row.llama_cpp.flags:
        case "all":
            return True
        case "file":
            return False
        case "base":
            return isinstance(scaling, NTK)
        case _:
            return None


def _number(value: float) -> str:
    """As short as it reads back to the same number."""
    return str(int(value)) if value.is_integer() and value < 1e15 else repr(value)
