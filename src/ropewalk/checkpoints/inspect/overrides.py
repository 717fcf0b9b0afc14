"""What to paste so that an engine rotates by a scaling: keys for config.json, overrides and flags for a command line.

Nothing is printed on trust. Each change is made to the config as the engine would make it, the result is resolved and
read by that engine's rule again, and only where its frequencies and gains are the wanted ones is the text given;
elsewhere stands why not. None of it is measured: what a model's answers are worth at that length, no config says.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ropewalk.checkpoints.architectures.table import SEVERAL_PARTS
from ropewalk.checkpoints.engines import Reading, transformers4, transformers5, vllm
from ropewalk.checkpoints.engines.facts import Facts
from ropewalk.checkpoints.engines.llama_cpp import flags, rules
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.inspect.changes import USUAL, Config, Wanted
from ropewalk.checkpoints.resolve.hf import resolve
from ropewalk.checkpoints.resolve.layers import FULL
from ropewalk.checkpoints.resolve.native import MODEL_TYPE
from ropewalk.checkpoints.resolve.part import find_part
from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.scaling import Dynamic, Linear, LongRoPE, Scaling

MODEL = "MODEL"
"""Stands for the model's directory where only its config was given."""


@dataclass(frozen=True, kw_only=True)
class Override:
    """The keys or flags for one engine, or why there are none."""

    engine: str
    into: str | None = None
    """The object of a file that the text's keys belong into; None: the text is a command."""
    text: str | None = None
    why: str | None = None
    """Why there is no text."""
    notes: tuple[str, ...] = ()
    """What else the engine does with these keys or flags."""


def overrides(resolved: Resolved, scaling: Scaling, to: int, model: str = MODEL) -> tuple[Override, ...]:
    """For each engine, what makes it rotate by `scaling` on the layers that are scaled; a model of our own has none."""
    if resolved.model_type == MODEL_TYPE:
        return ()
    facts = Facts(resolved)
    wanted = Wanted(resolved, scaling, to)
    if facts.gguf:
        convert = f"ropewalk export {shlex.quote(model)} OUT --format hf"
        why = f"a GGUF file has no config.json; make a directory of it: {convert}"
        return Override(engine="transformers and vLLM", why=why), _llama_cpp(wanted, model, None)
    config = Config(facts, find_part(resolved.config, resolved.where), wanted)
    if config.known.theta_key is None and "rope_parameters" not in config.known.defaults:
        why = f"the code of {resolved.model_type} has a fixed base, and reads no scaling"
        return Override(engine="transformers and vLLM", why=why), _llama_cpp(wanted, model, config)
    if resolved.text_at not in ((), ("text_config",)):
        at = ".".join(resolved.text_at)
        why = f"its text part is in {at}, and how {facts.model_type} reads that is not known"
        return Override(engine="transformers and vLLM", why=why), _llama_cpp(wanted, model, config)
    several = SEVERAL_PARTS.get(facts.model_type)
    if not config.inside and several is not None and not several.keys_at_top:
        why = f"their {facts.model_type} takes its text model from text_config, and this config has none"
        return Override(engine="transformers and vLLM", why=why), _llama_cpp(wanted, model, config)
    return (*_transformers(config), _vllm(config, model), _llama_cpp(wanted, model, config))


def _transformers(config: Config) -> tuple[Override, ...]:
    if isinstance(config.wanted.scaling, LongRoPE):
        return (Override(engine="transformers", why="nothing to change: it switches to the long list by itself"),)
    old, new = config.old(), config.new()
    answers = {"5": _checked(config, old, transformers5), "4": _checked(config, old, transformers4)}
    if not config.facts.new and all(why is None for why, _ in answers.values()):
        _, notes = answers["5"]
        return (Override(engine="transformers 4 and 5", into=config.into, text=_json(old), notes=notes),)
    found = []
    for version, changes, engine in (("5", new, transformers5), ("4", old, transformers4)):
        why, notes = _checked(config, changes, engine)
        into, text = (None, None) if why is not None else (config.into, _json(changes))
        found.append(Override(engine=f"transformers {version}", into=into, text=text, why=why, notes=notes))
    if found[0].why is not None and found[0].why == found[1].why:
        return (Override(engine="transformers 4 and 5", why=found[0].why),)
    return tuple(found)


def _checked(config: Config, changes: Mapping[str, Any], engine: Any) -> tuple[str | None, tuple[str, ...]]:
    """Why the changed config is not read as wanted, or what else the engine then does."""
    reading = _reading(config, config.changed(changes), engine)
    why = config.wanted.short_of(reading)
    return why, () if why is not None else _besides(config, reading, engine)


def _reading(config: Config, changed: Mapping[str, Any], engine: Any) -> Reading:
    try:
        return engine.read(resolve(changed, where=config.facts.resolved.where, strict=False))
    except BadInput as error:
        return Reading(engine=engine.ENGINE, version=engine.VERSION, refusal=f"{error.field} {error.problem}")
    except ValueError as error:
        return Reading(engine=engine.ENGINE, version=engine.VERSION, refusal=str(error))


def _besides(config: Config, reading: Reading, engine: Any) -> tuple[str, ...]:
    """Disagreements that the change brings."""
    before = {note.what for note in engine.read(config.facts.resolved).notes}
    return tuple(note.what for note in reading.notes if note.counts and note.what not in before)


def _vllm(config: Config, model: str) -> Override:
    serve = f"vllm serve {shlex.quote(model)}"
    told = f"--max-model-len {config.wanted.to}"
    found, why, notes = _vllm_keys(config)
    if found is None:
        return Override(engine="vLLM", why=why)
    given = f" --hf-overrides {shlex.quote(_json(found))}" if found else ""
    return Override(engine="vLLM", text=f"{serve}{given} {told}", notes=notes)


def vllm_keys(resolved: Resolved, scaling: Scaling | None, to: int) -> tuple[dict[str, Any] | None, str | None]:
    """What --hf-overrides has to say for texts of `to` tokens, or None and why it cannot; scaling: None for the
    checkpoint's own."""
    refusal = vllm.read(resolved).refusal
    if refusal is not None:
        return None, refusal
    if scaling is not None:
        config = Config(Facts(resolved), find_part(resolved.config, resolved.where), Wanted(resolved, scaling, to))
        return _vllm_keys(config)[:2]
    length = vllm.read(resolved).length
    if length is not None and length >= to:
        return {}, None
    if any(layer.scaling is not None for layer in resolved.plan.layers):
        return None, f"it ends texts at {length or 0:,} tokens, where the checkpoint's scaling ends"
    config = Config(Facts(resolved), find_part(resolved.config, resolved.where), Wanted(resolved, Linear(factor=1), to))
    changes = config.short_lengths()
    return ({"text_config": changes} if config.inside else dict(changes)), None


def _vllm_keys(config: Config) -> tuple[dict[str, Any] | None, str | None, tuple[str, ...]]:
    """The keys that override the config's; None and why there are none; and what else it then does."""
    if isinstance(config.wanted.scaling, LongRoPE):
        why = config.wanted.short_of(vllm.read(config.facts.resolved))
        return None if why else {}, why, ()
    if isinstance(config.wanted.scaling, Dynamic):
        why = "its base does not grow with the text: it either does not scale, or scales texts of every length"
        return None, why, ()
    why: str | None = None
    for longer in (False, True):
        changes: dict[str, Any] = {"rope_parameters": config.parameters()}
        if longer:
            changes = {**config.short_lengths(), **changes}
        elif config.facts.text.get(config.known.longest_key) is None:
            continue  # the class's own default would be the end
        nested = config.facts.model_type in SEVERAL_PARTS or config.inside is not None
        if nested:
            changes["rope_parameters"] = _over(_loaded(config), changes["rope_parameters"])
        reading = _reading(config, config.changed(_as_vllm(config, changes)), vllm)
        missing = config.wanted.short_of(reading)
        if missing is None and (reading.length or 0) >= config.wanted.to:
            notes = (*_besides(config, reading, vllm), *_table(config, longer))
            return {"text_config": changes} if nested else changes, None, notes
        why = why or missing
    return None, why or "its maximum length would stay shorter", ()


def _table(config: Config, longer: bool) -> tuple[str, ...]:
    """Its linear module holds a table of the stated length times the factor, also where that is the extended one."""
    scaling, layer = config.wanted.scaling, config.facts.resolved.plan.layers[config.scaled_layer()]
    if not isinstance(scaling, Linear) or layer.rotary_width is None:
        return ()
    stated = config.wanted.to if longer else config.facts.text.get(config.known.longest_key) or 0
    rows = round(stated * scaling.factor)
    size = rows * layer.rotary_width * 2 / 2**30
    return (f"holds a table of {rows:,} positions, {size:.1f} GiB in 16 bits",) if size >= 1 else ()


def _loaded(config: Config) -> dict[str, Any]:
    """rope_parameters as transformers' config class holds them before vLLM overrides them."""
    if config.facts.nested:
        return dict(config.facts.new)
    flat = {key: value for key, value in (config.facts.new or config.facts.old).items() if value is not None}
    return {FULL: flat} if config.wanted.by_type else flat


def _over(old: Mapping[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Within text_config vLLM merges objects key by key, so what is not to stay is set to null."""
    found = {}
    for key, value in new.items():
        before = old.get(key)
        found[key] = _over(before, value) if isinstance(value, dict) and isinstance(before, Mapping) else value
    if any(isinstance(value, Mapping) for value in new.values()):
        return found
    # YaRN's betas cannot be null.
    usual = USUAL if new.get("rope_type") == "yarn" else {}
    return found | {key: usual.get(key) for key in old if key not in new and key != "type"}


def _as_vllm(config: Config, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The changes beside a config whose older keys transformers has taken up into rope_parameters."""
    spent = {key: None for key in ("rope_scaling", config.known.theta_key, config.known.local_theta_key) if key}
    return {**spent, **changes, "rope_parameters": _without_nulls(changes["rope_parameters"])}


def _without_nulls(value: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_nulls(one) if isinstance(one, Mapping) else one for key, one in value.items() if one is not None
    }


def _llama_cpp(wanted: Wanted, model: str, config: Config | None) -> Override:
    resolved, scaling = wanted.resolved, wanted.scaling
    file = shlex.quote(model if config is None else f"{MODEL}.gguf")
    serve = f"llama-server -m {file} -c {wanted.to}"
    as_is = rules.read(resolved)
    if as_is.refusal is not None:
        return Override(engine="llama.cpp", why=as_is.refusal)
    if isinstance(scaling, LongRoPE):
        why = wanted.short_of(as_is)
        return Override(engine="llama.cpp", why=why) if why else Override(engine="llama.cpp", text=serve)
    layer = next(one for one in resolved.plan.layers if one.base is not None and wanted.of(one) is scaling)
    given = flags.flags(resolved, scaling, layer, wanted.to)
    if given is None:
        why = f"it has no flag for {scaling.kind}"
    else:
        why = wanted.short_of(flags.read(resolved, scaling))
    if why is None and given is not None:
        return Override(engine="llama.cpp", text=f"{serve} {' '.join(given)}")
    return Override(engine="llama.cpp", why=f"{why}{_converted(config)}")


def _converted(config: Config | None) -> str:
    """Whether a file made of the changed config would do."""
    if config is None or isinstance(config.wanted.scaling, Dynamic):
        return ""
    # Its converter takes a rope_parameters that is null for one that is there.
    changes = config.new() if config.facts.new else config.old()
    short = config.wanted.short_of(_reading(config, config.changed(changes), rules))
    if short is not None:
        return f"; nor would a GGUF file converted from the changed config: {short}"
    return "; change config.json as for transformers, then convert it: ropewalk export MODEL MODEL.gguf --format gguf"


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
