"""What the engines' rules ask of a checkpoint: its rotating layers with the raw keys they came from, and its names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ropewalk.checkpoints.architectures.architecture import Architecture
from ropewalk.checkpoints.architectures.generated import engine_names
from ropewalk.checkpoints.architectures.table import PARTS, find
from ropewalk.checkpoints.engines.base import LayerReading
from ropewalk.checkpoints.engines.besides import Besides, of_layers
from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.plan import LayerPlan, Plan
from ropewalk.scaling import Dynamic, LongRoPE, Scaling, ladder


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Rotating layers that are alike, with the raw parameters they were read from."""

    side: str
    numbers: tuple[int, ...]
    layer: LayerPlan
    block: Mapping[str, Any]
    short: int
    """A length within the trained one."""
    long: int
    """The length the checkpoint was extended to."""

    def planned(self) -> LayerReading:
        return self.numbers_of(self.layer.scaling)

    @property
    def partial(self) -> str | None:
        """The key that makes only a part of the head rotate; None where the whole head does, or the model is MLA."""
        if self.layer.head_width is None or self.layer.rotary_width == self.layer.head_width:
            return None
        key = dict(self.layer.sources).get("rotary_width", "").rpartition(":")[2].rpartition(".")[2]
        return key if key in ("partial_rotary_factor", "rotary_pct", "rotary_dim") else None

    def numbers_of(
        self, scaling: Scaling | None, *, base: float | None = None, width: int | None = None, **changed: Any
    ) -> LayerReading:
        """The numbers under another scaling, base or rotated width; `changed` are fields of the answer to put in."""
        base = self.layer.base if base is None else base
        assert base is not None
        ladders = self.layer.ladders if width is None else (width,)
        within = frequencies(base, ladders, _at(scaling, self.short))
        past = within
        if scaling is not None and scaling.length_dependent:
            past = frequencies(base, ladders, _at(scaling, self.long))
        found = LayerReading(
            side=self.side,
            numbers=self.numbers,
            frequencies=within,
            stretched=past,
            rotary_gain=1.0 if scaling is None else scaling.rotary_gain,
            logit_gain=1.0 if scaling is None else scaling.logit_gain,
        )
        return replace(found, **changed)


class Facts:
    """What the rules ask of a checkpoint besides its plan."""

    def __init__(self, resolved: Resolved) -> None:
        self.resolved = resolved
        config = resolved.config
        self.text: Mapping[str, Any] = config
        for step in resolved.text_at:
            self.text = self.text[step]
        self.gguf = "general.architecture" in config
        self.arch = str(config["general.architecture"]) if self.gguf else ""
        self.model_type = str(config.get("model_type") or resolved.model_type)
        self.row = find(resolved.model_type) or Architecture()
        """Of the part that has the positions."""
        self.outer = find(self.model_type) or Architecture()
        """Of the config itself, which is another where that is a part."""
        block = self.text.get("rope_parameters")
        self.new = block if isinstance(block, Mapping) else {}
        block = self.text.get("rope_scaling")
        self.old = block if isinstance(block, Mapping) else {}
        self.nested = any(isinstance(value, Mapping) for value in self.new.values())

    @property
    def windows_scale(self) -> bool:
        """Whether a scaling in the config reaches layers with a window too; False where they have parameters of their
        own."""
        return self.row.local_theta_key is None and self.row.scales_local and not self.nested

    def scaled(self, scaling: Scaling) -> Plan:
        """The plan with this scaling in the layers that the config's own would reach."""

        def changed(layer: LayerPlan) -> LayerPlan:
            reached = layer.base is not None and (self.windows_scale or layer.window is None)
            return layer.scaled(scaling) if reached else layer

        plan = self.resolved.plan
        layers = {layer: changed(layer) for layer in dict.fromkeys(plan.layers)}
        if all(layers[layer] is layer for layer in layers):
            raise ValueError(f"a scaling changes RoPE's frequencies, and no layer of {self.resolved.name} is reached")
        return replace(plan, layers=tuple(layers[layer] for layer in plan.layers), extended=None, length=None)

    def with_text(self, text: Mapping[str, Any]) -> Mapping[str, Any]:
        """The config with another text part."""

        def within(outer: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
            return {**outer, path[0]: within(outer[path[0]], path[1:])} if path else text

        return within(self.resolved.config, self.resolved.text_at)

    @property
    def architecture(self) -> str:
        """The class of transformers that the config names, or that its model type usually has."""
        named = self.resolved.config.get("architectures")
        if isinstance(named, list) and named and isinstance(named[0], str):
            return named[0]
        types = engine_names("transformers5")["types"]
        own = self.outer.class_name or types.get(self.model_type)
        return own or self.row.class_name or types.get(self.resolved.model_type, "")

    def unknown_to(self, engine: str) -> str | None:
        """The model type that a version of transformers has no class for; None where it has."""
        inner = self.text.get("model_type") if self.text is not self.resolved.config else None
        if inner == PARTS.get(self.model_type):  # its own class has that part, which may have no name of its own
            inner = None
        types = engine_names(engine)["types"]
        return next((one for one in (self.model_type, inner) if one is not None and one not in types), None)

    @property
    def switch(self) -> int | None:
        """Tokens up to which LongRoPE has its short list, and past which the long one; None without two lists."""
        scalings = (layer.scaling for layer in self.resolved.plan.layers)
        return next((one.trained for one in scalings if isinstance(one, LongRoPE) and one.switches), None)

    @property
    def longest(self) -> int | None:
        """`max_position_embeddings` under any of its names."""
        if self.gguf:
            return _whole(self.resolved.config.get(f"{self.arch}.context_length"))
        for key in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length"):
            if (found := _whole(self.text.get(key))) is not None:
                return found
        plan = self.resolved.plan
        return plan.longest

    def besides(self) -> Besides:
        """As the checkpoint states it."""
        plans = self.resolved.plans.values()
        longest = max((length for length in (self.longest, *(plan.extended for plan in plans)) if length), default=None)
        layers = (layer for plan in plans for layer in plan.layers)
        return of_layers(layers, longest, linear=self.row.pattern in ("linear", "recurrent", "crossing"))

    def subjects(self) -> Iterable[Subject]:
        """Each different set of rotating layers."""
        for side, plan in self.resolved.plans.items():
            found: dict[tuple[Any, ...], tuple[LayerPlan, list[int]]] = {}
            for number, layer in enumerate(plan.layers):
                if layer.base is not None:
                    same = (layer.base, layer.scaling, layer.ladders, layer.rotary_gain, layer.logit_gain)
                    if self.row.transformers.sliding_theta_in_5 is not None:
                        same = (*same, layer.window is None)
                    found.setdefault(same, (layer, []))[1].append(number)
            for layer, numbers in found.values():
                short, long = self.lengths(layer)
                block = self.block(numbers[0])
                yield Subject(side=side, numbers=tuple(numbers), layer=layer, block=block, short=short, long=long)

    def block(self, number: int) -> Mapping[str, Any]:
        """The rope parameters of one layer as they stand in the config."""
        if not self.nested:
            return self.new or self.old
        kinds = self.text.get("layer_types")
        kind = kinds[number] if isinstance(kinds, list) and number < len(kinds) else "full_attention"
        found = self.new.get(kind)
        return found if isinstance(found, Mapping) else {}

    def lengths(self, layer: LayerPlan) -> tuple[int, int]:
        """A length within the trained one and one past it, where a length-dependent scaling is looked at."""
        plan = self.resolved.plan
        scaling = layer.scaling
        trained = getattr(scaling, "trained", None) or plan.trained or plan.stated or self.longest or 2048
        factor = getattr(scaling, "factor", None) or getattr(scaling, "ratio", None) or 2.0
        return trained, max(plan.extended or 0, int(trained * factor), trained + 1)


@lru_cache(maxsize=64)
def frequencies(base: float, ladders: tuple[int, ...], scaling: Scaling | None) -> tuple[float, ...]:
    """In float64, correctly rounded. Remembered: six engines ask for those of a few scalings again and again."""
    one = ladder if scaling is None else scaling.frequencies
    return tuple(float(omega) for width in ladders for omega in one(base, width))


def _at(scaling: Scaling | None, length: int) -> Scaling | None:
    return scaling.for_length(length) if isinstance(scaling, Dynamic | LongRoPE) else scaling


def _whole(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
