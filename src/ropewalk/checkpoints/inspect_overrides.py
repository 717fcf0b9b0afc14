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

from ropewalk.checkpoints.architectures import PARTS, find
from ropewalk.checkpoints.engines import (
    Reading,
    close,
    llama_cpp,
    llama_cpp_flags,
    ratio,
    transformers4,
    transformers5,
    vllm,
)
from ropewalk.checkpoints.engines.facts import Facts, frequencies
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.resolve_hf import resolve
from ropewalk.checkpoints.resolve_part import Part, find_part
from ropewalk.checkpoints.resolved import Resolved
from ropewalk.plan import LayerPlan
from ropewalk.scaling import Dynamic, LongRoPE, Scaling, YaRN, to_hf

MODEL = "MODEL"
"""Stands for the model's directory where only its config was given."""
USUAL = {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": True}
"""What every engine takes for YaRN where nothing is said."""
LENGTHS = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length"),
    *("max_sequence_length", "max_seq_length", "seq_len"),
)
"""Keys of which vLLM takes the smallest (transformers_utils/model_arch_config_convertor.py)."""
FLAT = ("qwen2_vl", "qwen2_5_vl")
"""Models of several parts whose config class takes the text part's keys from the top, too."""
FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True, kw_only=True)
class Override:
    """What one engine is told, or why there is nothing to tell it."""

    engine: str
    into: str | None = None
    """The object of a file that the text's keys belong into; None: the text is a command."""
    text: str | None = None
    why: str | None = None
    """Why there is no text."""
    notes: tuple[str, ...] = ()
    """What the engine does besides, once it is told."""


def overrides(resolved: Resolved, scaling: Scaling, to: int, model: str = MODEL) -> tuple[Override, ...]:
    """For each engine, what makes it rotate by `scaling` on the layers that are scaled; a model of our own has none."""
    if resolved.model_type == "ropewalk":
        return ()
    facts = Facts(resolved)
    wanted = Wanted(resolved, scaling, to)
    if facts.gguf:
        why = (
            f"a GGUF file has no config.json; make a directory of it: ropewalk export {shlex.quote(model)} OUT --to hf"
        )
        return Override(engine="transformers and vLLM", why=why), _llama_cpp(wanted, model, None)
    config = Config(facts, find_part(resolved.config, resolved.where), wanted)
    if config.known.theta_key is None and "rope_parameters" not in config.known.defaults:
        why = f"the code of {resolved.model_type} has its base built in, and reads no scaling"
        return Override(engine="transformers and vLLM", why=why), _llama_cpp(wanted, model, config)
    if resolved.text_at not in ((), ("text_config",)):
        at = ".".join(resolved.text_at)
        why = f"its text part stands in {at}, and what {facts.model_type} makes of that is not known"
        return Override(engine="transformers and vLLM", why=why), _llama_cpp(wanted, model, config)
    if not config.inside and facts.model_type in PARTS and facts.model_type not in FLAT:
        why = f"their {facts.model_type} takes its text model from text_config, and this config has none"
        return Override(engine="transformers and vLLM", why=why), _llama_cpp(wanted, model, config)
    return (*_transformers(config), _vllm(config, model), _llama_cpp(wanted, model, config))


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """What a layer is to rotate by, within the trained length and past it."""

    within: tuple[float, ...]
    past: tuple[float, ...]
    rotary_gain: float
    logit_gain: float


class Wanted:
    """The frequencies and gains that every layer is to have."""

    def __init__(self, resolved: Resolved, scaling: Scaling, to: int) -> None:
        self.resolved, self.scaling, self.to = resolved, scaling, to
        known = find(resolved.model_type)
        local = known is not None and (known.local_theta_key is not None or not known.scales_local)
        self.by_type = local or Facts(resolved).nested
        """Whether layers with a window have parameters of their own, which stay."""

        self._numbers: dict[tuple[Any, ...], Numbers] = {}

    def of(self, layer: LayerPlan) -> Scaling | None:
        return layer.scaling if self.by_type and layer.window is not None else self.scaling

    def short_of(self, reading: Reading) -> str | None:
        """Why a reading is not what is wanted; None where it is."""
        if reading.refusal is not None:
            return reading.refusal
        for one in reading.layers:
            alike = [self.resolved.plans[one.side].layers[number] for number in one.numbers]
            for wanted in dict.fromkeys(self.numbers(layer) for layer in alike):
                # An engine that fixes LongRoPE's list at start takes the long one for a length past the trained.
                within = one.frequencies if isinstance(self.scaling, LongRoPE) else wanted.within
                if ratio(one.frequencies, within) != 1 or ratio(one.stretched, wanted.past) != 1:
                    return _said(reading) or "the changed keys would not give it these frequencies"
                if not close(one.rotary_gain, wanted.rotary_gain) or not close(one.logit_gain, wanted.logit_gain):
                    return _said(reading) or "the changed keys would not give it this gain"
        return None

    def numbers(self, layer: LayerPlan) -> Numbers:
        scaling = self.of(layer)
        key = (layer.base, layer.ladders, scaling)
        if key not in self._numbers:
            assert layer.base is not None
            trained = getattr(scaling, "trained", self.to)
            self._numbers[key] = Numbers(
                within=frequencies(layer.base, layer.ladders, _at(scaling, trained)),
                past=frequencies(layer.base, layer.ladders, _at(scaling, self.to)),
                rotary_gain=1.0 if scaling is None else scaling.rotary_gain,
                logit_gain=1.0 if scaling is None else scaling.logit_gain,
            )
        return self._numbers[key]


class Config:
    """A config.json to change."""

    def __init__(self, facts: Facts, part: Part, wanted: Wanted) -> None:
        self.facts, self.part, self.wanted = facts, part, wanted
        self.known = part.known
        self.inside = "text_config" if part.keys.path else None
        self.into = f"{'text_config in ' if self.inside else ''}{facts.resolved.where}"
        scaling = wanted.scaling
        self.longest = wanted.to if scaling.longest is None else scaling.longest

    def new(self) -> dict[str, Any]:
        """The keys of transformers 5."""
        found: dict[str, Any] = {self.known.longest_key: self.longest, "rope_parameters": self.parameters()}
        if self.facts.text.get("rope_scaling") is not None:
            found["rope_scaling"] = None  # it would win over rope_parameters
        return {**found, **self._bases(only_stated=True), **self._head()}

    def old(self) -> dict[str, Any]:
        """The keys of transformers 4, which 5 reads too."""
        number = self._scaled_layer()
        found: dict[str, Any] = {self.known.longest_key: self.longest}
        if self.facts.text.get("rope_scaling") is not None:
            found["rope_scaling"] = None
        block = self.block(number)
        if block["rope_type"] != "default" or any(key in block for key in self.known.elsewhere):
            left_out = ("rope_theta", "partial_rotary_factor")
            found["rope_scaling"] = {key: value for key, value in block.items() if key not in left_out}
        if self.facts.model_type in transformers4.TWO_KEYS and "rope_type" in (
            scaling := found.get("rope_scaling") or {}
        ):
            found["rope_scaling"] = {"type": scaling.pop("rope_type"), **scaling}
        if self.facts.text.get("rope_parameters") is not None:
            found["rope_parameters"] = None
        return {**found, **self._bases(only_stated=False), **self._head()}

    def parameters(self) -> dict[str, Any]:
        """rope_parameters, complete."""
        layers = self.facts.resolved.plan.layers
        if not self.wanted.by_type:
            return self.block(self._scaled_layer())
        found = dict(self.facts.new) if self.facts.nested else {}
        for number, layer in enumerate(layers):
            if layer.base is not None:
                found[SLIDING if layer.window is not None else FULL] = self.block(number)
        return found

    def block(self, number: int) -> dict[str, Any]:
        """The parameters of one layer, with what is not the scaling's as it stands."""
        layer = self.facts.resolved.plan.layers[number]
        assert layer.base is not None
        found = to_hf(self.wanted.of(layer), layer.base, layer.rotary_width)
        found = {key: value for key, value in found.items() if USUAL.get(key) != value}
        stated = self.facts.block(number)
        found |= {key: stated[key] for key in self.known.elsewhere if stated.get(key) is not None}
        if not self.known.latent and layer.head_width and layer.rotary_width != layer.head_width:
            given = stated.get("partial_rotary_factor", self.facts.text.get("partial_rotary_factor"))
            found["partial_rotary_factor"] = given or (layer.rotary_width or 0) / layer.head_width
        return found

    def changed(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The config with these keys in it."""
        config = dict(self.facts.resolved.config)
        if self.inside:
            config[self.inside] = {**config[self.inside], **changes}
            return config
        return {**config, **changes}

    def short_lengths(self) -> dict[str, int]:
        """The length under its own name, and under every other that vLLM takes for the end where it is stated."""
        text, to = self.facts.text, self.wanted.to
        stated = [key for key in LENGTHS if isinstance(text.get(key), int | float) and text[key] < to]
        return dict.fromkeys((self.known.longest_key, *stated), to)

    def _bases(self, *, only_stated: bool) -> dict[str, Any]:
        """The base beside the parameters: where it stands in the file, it must not contradict them."""
        key = self.known.theta_key
        if key is None:
            return {}
        theta, stated = self.block(self._scaled_layer())["rope_theta"], self.facts.text.get(key)
        return {} if stated == theta or (only_stated and stated is None) else {key: theta}

    def _head(self) -> dict[str, Any]:
        """The width of a head, where transformers multiplies by one that its config class leaves null."""
        silent = self.facts.resolved.model_type in transformers4.NO_HEAD_DIM and self.facts.text.get("head_dim") is None
        if not silent or not isinstance(self.wanted.scaling, Dynamic | YaRN):
            return {}
        return {"head_dim": self.facts.resolved.plan.layers[self._scaled_layer()].head_width}

    def _scaled_layer(self) -> int:
        layers = list(enumerate(self.facts.resolved.plan.layers))
        turning = [(number, layer) for number, layer in layers if layer.base is not None]
        return next((number for number, layer in turning if layer.window is None), turning[0][0])


def _transformers(config: Config) -> tuple[Override, ...]:
    if isinstance(config.wanted.scaling, LongRoPE):
        return (Override(engine="transformers", why="nothing to change: it takes the long list by itself"),)
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
    if isinstance(config.wanted.scaling, LongRoPE):
        why = config.wanted.short_of(vllm.read(config.facts.resolved))
        return Override(engine="vLLM", why=why) if why else Override(engine="vLLM", text=f"{serve} {told}")
    if isinstance(config.wanted.scaling, Dynamic):
        return Override(engine="vLLM", why="it has no base that grows with a text: it does not scale, or for all alike")
    why: str | None = None
    for longer in (False, True):
        changes: dict[str, Any] = {"rope_parameters": config.parameters()}
        if longer:
            changes = {**config.short_lengths(), **changes}
        elif config.facts.text.get(config.known.longest_key) is None:
            continue  # the class's own default would be the end
        nested = config.facts.model_type in PARTS or config.inside is not None
        if nested:
            changes["rope_parameters"] = _over(_loaded(config), changes["rope_parameters"])
        reading = _reading(config, config.changed(_as_vllm(config, changes)), vllm)
        missing = config.wanted.short_of(reading)
        if missing is None and (reading.length or 0) >= config.wanted.to:
            given = shlex.quote(_json({"text_config": changes} if nested else changes))
            text = f"{serve} --hf-overrides {given} {told}"
            return Override(engine="vLLM", text=text, notes=_besides(config, reading, vllm))
        why = why or missing
    return Override(engine="vLLM", why=why or "its longest text would stay shorter")


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
    stale = [key for key in old if key not in new and key != "type"]
    return {**found, **dict.fromkeys(stale)} if not any(isinstance(value, Mapping) for value in new.values()) else found


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
    as_is = llama_cpp.read(resolved)
    if as_is.refusal is not None:
        return Override(engine="llama.cpp", why=as_is.refusal)
    if isinstance(scaling, LongRoPE):
        why = wanted.short_of(as_is)
        return Override(engine="llama.cpp", why=why) if why else Override(engine="llama.cpp", text=serve)
    layer = next(one for one in resolved.plan.layers if one.base is not None and wanted.of(one) is scaling)
    given = llama_cpp_flags.flags(resolved, scaling, layer, wanted.to)
    if given is None:
        why = f"it has no flag for {scaling.kind}"
    else:
        why = wanted.short_of(llama_cpp_flags.read(resolved, scaling))
    if why is None and given is not None:
        return Override(engine="llama.cpp", text=f"{serve} {' '.join(given)}")
    return Override(engine="llama.cpp", why=f"{why}{_converted(config)}")


def _converted(config: Config | None) -> str:
    """Whether a file made of the changed config would do."""
    if config is None or isinstance(config.wanted.scaling, Dynamic):
        return ""
    # Its converter takes a rope_parameters that is null for one that is there.
    changes = config.new() if config.facts.new else config.old()
    short = config.wanted.short_of(_reading(config, config.changed(changes), llama_cpp))
    if short is not None:
        return f"; a GGUF file of the changed config would not do either: {short}"
    return "; change config.json as for transformers, then convert it: ropewalk export MODEL MODEL.gguf --to gguf"


def _said(reading: Reading) -> str | None:
    return next((f"it {note.what}" for note in reading.notes if note.counts), None)


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _at(scaling: Scaling | None, length: int) -> Scaling | None:
    return scaling.for_length(length) if isinstance(scaling, Dynamic | LongRoPE) else scaling
