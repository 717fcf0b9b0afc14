"""Flags for llama-server, or whether a file converted from the changed config would do."""

from __future__ import annotations

import shlex

from ropewalk.checkpoints.engines.facts import Facts
from ropewalk.checkpoints.engines.llama_cpp import flags, rules
from ropewalk.checkpoints.inspect.changes import Config, Wanted
from ropewalk.checkpoints.inspect.pasted import MODEL, Override, reading_of
from ropewalk.scaling import Dynamic, Llama3, LongRoPE


def of_llama_cpp(wanted: Wanted, model: str, config: Config | None) -> Override:
    resolved, scaling = wanted.resolved, wanted.scaling
    file = shlex.quote(model if config is None else f"{MODEL}.gguf")
    serve = f"llama-server -m {file} -c {wanted.to}"
    as_is = rules.read(resolved)
    if as_is.refusal is not None:
        return Override(engine="llama.cpp", why=as_is.refusal)
    if isinstance(scaling, LongRoPE):
        why = wanted.short_of(as_is)
        return Override(engine="llama.cpp", why=why) if why else Override(engine="llama.cpp", text=serve)
    layer = next((one for one in resolved.plan.layers if one.base is not None and wanted.of(one) is scaling), None)
    if layer is None:
        return Override(engine="llama.cpp", why="no layer is reached by it")
    given = flags.flags(resolved, scaling, layer, wanted.to)
    if given is None:
        why = f"it has no flag for {scaling.kind}"
    else:
        why = wanted.short_of(flags.read(resolved, scaling))
    if why is None and given is not None:
        return Override(engine="llama.cpp", text=f"{serve} {' '.join(given)}")
    made = _written(wanted, model) if config is None else _converted(config)
    return Override(engine="llama.cpp", why=f"{why}{made}")


def _written(wanted: Wanted, model: str) -> str:
    """Whether a file with divisors of its own would do in place of this one."""
    row = Facts(wanted.resolved).row
    held = any(isinstance(layer.scaling, Llama3 | LongRoPE) for layer in wanted.resolved.plan.layers)
    divides = row.written_as_gguf and row.gguf is not None and row.gguf.divisors
    if not divides or held or not isinstance(wanted.scaling, Llama3):
        return ""
    write = f"ropewalk extend {shlex.quote(model)} OUT.gguf --to {wanted.to} --scaling llama3"
    return f"; a file can hold its divisors: {write}"


def _converted(config: Config) -> str:
    """Whether a file made of the changed config would do."""
    if isinstance(config.wanted.scaling, Dynamic):
        return ""
    # Its converter takes a rope_parameters that is null for one that is there.
    changes = config.new() if config.facts.new else config.old()
    short = config.wanted.short_of(reading_of(config, config.changed(changes), rules))
    if short is not None:
        return f"; nor would a GGUF file converted from the changed config: {short}"
    return "; change config.json as for transformers, then convert it: ropewalk export MODEL MODEL.gguf --format gguf"
