"""What to paste so that an engine rotates by a scaling: keys for config.json, overrides and flags for a command line.

Nothing is printed on trust. Each change is made to the config as the engine would make it, the result is resolved and
read by that engine's rule again, and only where its frequencies and gains are the wanted ones is the text given;
elsewhere stands why not. None of it is measured: what a model's answers are worth at that length, no config says.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from ropewalk.checkpoints.architectures.table import SEVERAL_PARTS
from ropewalk.checkpoints.engines import sglang, vllm
from ropewalk.checkpoints.engines.facts import Facts
from ropewalk.checkpoints.inspect.changes import USUAL, Config, Wanted
from ropewalk.checkpoints.inspect.file_keys import of_mlx, of_transformers
from ropewalk.checkpoints.inspect.llama_cpp_flags import of_llama_cpp
from ropewalk.checkpoints.inspect.pasted import MODEL, Override, as_json, brought, reading_of
from ropewalk.checkpoints.resolve.layers import FULL
from ropewalk.checkpoints.resolve.native import MODEL_TYPE
from ropewalk.checkpoints.resolve.part import find_part
from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.scaling import Dynamic, Linear, LongRoPE, Scaling

OTHERS = "transformers, vLLM, SGLang and MLX-LM"
"""All but llama.cpp, whose flags stand beside no config."""
Keys = tuple[dict[str, Any] | None, str | None, tuple[str, ...]]
"""To override; None and why there are none; and what else the engine then does."""


def overrides(resolved: Resolved, scaling: Scaling, to: int, model: str = MODEL) -> tuple[Override, ...]:
    """For each engine, what makes it rotate by `scaling` on the layers that are scaled; a model of our own has none."""
    if resolved.model_type == MODEL_TYPE:
        return ()
    facts = Facts(resolved)
    wanted = Wanted(resolved, scaling, to)
    if facts.gguf:
        convert = f"ropewalk export {shlex.quote(model)} OUT --format hf"
        why = f"a GGUF file has no config.json; make a directory of it: {convert}"
        return Override(engine=OTHERS, why=why), of_llama_cpp(wanted, model, None)
    config = Config(facts, find_part(resolved.config, resolved.where), wanted)
    if (why := config.unread) is not None:
        return Override(engine=OTHERS, why=why), of_llama_cpp(wanted, model, config)
    if resolved.text_at not in ((), ("text_config",)):
        at = ".".join(resolved.text_at)
        why = f"its text part is in {at}, and how {facts.model_type} reads that is not known"
        return Override(engine=OTHERS, why=why), of_llama_cpp(wanted, model, config)
    several = SEVERAL_PARTS.get(facts.model_type)
    if not config.inside and several is not None and not several.keys_at_top:
        why = f"their {facts.model_type} takes its text model from text_config, and this config has none"
        return Override(engine=OTHERS, why=why), of_llama_cpp(wanted, model, config)
    return (
        *of_transformers(config),
        _vllm(config, model),
        of_llama_cpp(wanted, model, config),
        _sglang(config, model),
        of_mlx(config),
    )


def _vllm(config: Config, model: str) -> Override:
    serve = f"vllm serve {shlex.quote(model)}"
    told = f"--max-model-len {config.wanted.to}"
    found, why, notes = _vllm_keys(config)
    if found is None:
        return Override(engine="vLLM", why=why)
    given = f" --hf-overrides {shlex.quote(as_json(found))}" if found else ""
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
    facts = Facts(resolved)
    # LongRoPE ends texts at its trained length unless told otherwise, and max_model_len tells it.
    length = vllm.read(resolved).length if facts.switch is None else vllm.most(facts)
    if length is not None and length >= to:
        return {}, None
    if any(layer.scaling is not None for layer in resolved.plan.layers):
        return None, f"it ends texts at {length or 0:,} tokens, where the checkpoint's scaling ends"
    config = Config(facts, find_part(resolved.config, resolved.where), Wanted(resolved, Linear(factor=1), to))
    changes = config.short_lengths()
    return ({"text_config": changes} if config.inside else dict(changes)), None


def _vllm_keys(config: Config) -> Keys:
    """None, and why there are none; or the keys that override the config's, and what else it then does."""
    if isinstance(config.wanted.scaling, Dynamic):
        why = "its base does not grow with the text: it either does not scale, or scales texts of every length"
        return None, why, ()
    return _keys(config, vllm)


def _sglang(config: Config, model: str) -> Override:
    """Overrides reach a config that transformers' class has read and that has the keys of its text part at the top,
    too. Its models read one or the other, and the length is the text part's: a text part is named besides the top."""
    facts = config.facts
    if (why := sglang.unread(facts)) is not None:
        return Override(engine="SGLang", why=why)
    found, why, notes = _keys(config, sglang)
    if found is None:
        return Override(engine="SGLang", why=why)
    if "text_config" in found:
        found = {**found["text_config"], **found}
        notes = (
            *notes,
            "reads the top of the config or text_config, by the model, and must be given both (sglang#27974)",
        )
    given = f" --json-model-override-args {shlex.quote(as_json(found))}" if found else ""
    command = f"python -m sglang.launch_server --model-path {shlex.quote(model)}{given}"
    return Override(engine="SGLang", text=f"{command} --context-length {config.wanted.to}", notes=notes)


def _keys(config: Config, engine: Any) -> Keys:
    """With the length where it must be raised; vLLM and SGLang both override what transformers' class has read."""
    if isinstance(config.wanted.scaling, LongRoPE):
        why = config.wanted.short_of(engine.read(config.facts.resolved))
        return None if why else {}, why, ()
    nested = config.facts.model_type in SEVERAL_PARTS or config.inside is not None
    why: str | None = None
    for longer in (False, True):
        if not longer and config.facts.text.get(config.known.longest_key) is None:
            continue  # the class's own default would be the end
        lengths = config.short_lengths() if longer else {}
        given: dict[str, Any] = {**lengths, **_given(config, engine, nested)}
        spent = {key: None for key in ("rope_scaling", config.known.theta_key, config.known.local_theta_key) if key}
        held = _without_nulls(given["rope_parameters"])
        reading = reading_of(config, config.changed({**spent, **lengths, "rope_parameters": held}), engine)
        missing = config.wanted.short_of(reading)
        if missing is None and (reading.length or 0) >= config.wanted.to:
            notes = brought(config, reading, engine)
            notes = (*notes, *_table(config, longer)) if engine is vllm else notes
            return {"text_config": given} if nested else given, None, notes
        why = why or missing
    return None, why or "its maximum length would stay shorter", ()


def _given(config: Config, engine: Any, nested: bool) -> dict[str, Any]:
    """rope_parameters, so that nothing of those that are there is left. vLLM merges objects within text_config.
    SGLang merges these two at the top, unless they were set to null before; and some of its models read the base
    beside them."""
    new, old = config.parameters(), _loaded(config)
    if engine is vllm:
        return {"rope_parameters": _over(old, new) if nested else new}
    left = nested or any(key not in new for key in old)
    return {**({"rope_scaling": None} if left else {}), **config.bases(only_stated=True), "rope_parameters": new}


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
    """rope_parameters as transformers' config class holds them before an engine overrides them."""
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


def _without_nulls(value: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_nulls(one) if isinstance(one, Mapping) else one for key, one in value.items() if one is not None
    }
