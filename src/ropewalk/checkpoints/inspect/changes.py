"""A scaling as what every layer is to rotate by, and as the keys of a config that say so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ropewalk.checkpoints.engines import Reading, close, ratio, vllm
from ropewalk.checkpoints.engines.facts import Facts, frequencies
from ropewalk.checkpoints.resolve.layers import FULL, SLIDING
from ropewalk.checkpoints.resolve.part import Part
from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.plan import LayerPlan
from ropewalk.scaling import Dynamic, LongRoPE, Scaling, YaRN, to_hf

USUAL = {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": True}
"""What every engine takes for YaRN where the key is absent."""


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
        facts = Facts(resolved)
        self.own_keys = facts.row.only_transformers
        self.by_type = not facts.windows_scale
        """Whether layers with a window have parameters of their own, which stay."""

        self._numbers: dict[tuple[Any, ...], Numbers] = {}

    def of(self, layer: LayerPlan) -> Scaling | None:
        return layer.scaling if self.by_type and layer.window is not None else self.scaling

    def short_of(self, reading: Reading) -> str | None:
        """Why a reading is not what is wanted; None where it is."""
        if reading.refusal is not None:
            return reading.refusal
        if self.own_keys:
            return "its positions are spelled in keys of its own, which a pasted scaling does not reach"
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

    @property
    def unread(self) -> str | None:
        """Why no version of transformers takes a scaling from this config; None where one may."""
        if self.known.theta_key is None and "rope_parameters" not in self.known.defaults:
            return f"the code of {self.facts.resolved.model_type} has a fixed base, and reads no scaling"
        return None

    def new(self) -> dict[str, Any]:
        """The keys of transformers 5."""
        found: dict[str, Any] = {**self._lengths(), "rope_parameters": self.parameters()}
        if self.facts.text.get("rope_scaling") is not None:
            found["rope_scaling"] = None  # it would win over rope_parameters
        return {**found, **self.bases(only_stated=True), **self._head()}

    def old(self) -> dict[str, Any]:
        """The keys of transformers 4, which 5 reads too."""
        number = self.scaled_layer()
        found: dict[str, Any] = self._lengths()
        if self.facts.text.get("rope_scaling") is not None:
            found["rope_scaling"] = None
        block = self.block(number)
        needed = self.known.transformers.needs_rope_type_in_4 or any(key in block for key in self.known.elsewhere)
        if needed or block["rope_type"] != "default":
            left_out = ("rope_theta", "partial_rotary_factor")
            found["rope_scaling"] = {key: value for key, value in block.items() if key not in left_out}
        if self.facts.outer.transformers.two_keys_in_4 and "rope_type" in (scaling := found.get("rope_scaling") or {}):
            found["rope_scaling"] = {"type": scaling.pop("rope_type"), **scaling}
        if self.facts.text.get("rope_parameters") is not None:
            found["rope_parameters"] = None
        return {**found, **self.bases(only_stated=False), **self._head()}

    def parameters(self) -> dict[str, Any]:
        """rope_parameters, complete."""
        layers = self.facts.resolved.plan.layers
        if not self.wanted.by_type:
            return self.block(self.scaled_layer())
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
        stated = self.facts.block(number)
        if not self.facts.row.vllm.yarn_without_gain:  # which needs the betas
            found = {key: value for key, value in found.items() if USUAL.get(key) != value}
        if found.get("rope_type") == "longrope" and (gain := found.get("attention_factor")) is not None:
            found |= {"short_mscale": gain, "long_mscale": gain}  # what vLLM and SGLang read in its place
        found |= {key: stated[key] for key in self.known.elsewhere if stated.get(key) is not None}
        given = stated.get("partial_rotary_factor")
        # All of a head may be stated too: GPT-NeoX rotates a quarter where nothing is.
        if not self.known.latent and layer.head_width and (given or layer.rotary_width != layer.head_width):
            given = given or self.facts.text.get("partial_rotary_factor")
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
        stated = [key for key in vllm.LENGTHS if isinstance(text.get(key), int | float) and text[key] < to]
        return dict.fromkeys((self.known.longest_key, *stated), to)

    def _lengths(self) -> dict[str, int]:
        """Of what is written: every one that is stated and too short, and under its own name what the scaling says."""
        return {**self.short_lengths(), self.known.longest_key: self.longest}

    def bases(self, *, only_stated: bool) -> dict[str, Any]:
        """The base beside the parameters: where it stands in the file, it must not contradict them."""
        key = self.known.theta_key
        if key is None:
            return {}
        theta, stated = self.block(self.scaled_layer())["rope_theta"], self.facts.text.get(key)
        return {} if stated == theta or (only_stated and stated is None) else {key: theta}

    def _head(self) -> dict[str, Any]:
        """The width of a head, where transformers multiplies by one that its config class leaves null."""
        silent = 4 in self.facts.row.transformers.head_dim_null and self.facts.text.get("head_dim") is None
        if not silent or not isinstance(self.wanted.scaling, Dynamic | YaRN):
            return {}
        return {"head_dim": self.facts.resolved.plan.layers[self.scaled_layer()].head_width}

    def scaled_layer(self) -> int:
        layers = list(enumerate(self.facts.resolved.plan.layers))
        turning = [(number, layer) for number, layer in layers if layer.base is not None]
        return next((number for number, layer in turning if layer.window is None), turning[0][0])


def _said(reading: Reading) -> str | None:
    return next((f"it {note.what}" for note in reading.notes if note.counts), None)


def _at(scaling: Scaling | None, length: int) -> Scaling | None:
    return scaling.for_length(length) if isinstance(scaling, Dynamic | LongRoPE) else scaling
