"""What a model's positions resolve to, layer by layer: frozen, hashable, printable, and the same from JSON.

A plan is the one place where numbers that rotate keys or change scores come from, each with where it was read. Its
fingerprint is what a KV cache carries: keys rotated under one plan are refused under another. A scaling that depends on
the length has no frequencies until `for_length(limit)` fixes it, once, for a run or a generation.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any, Literal, Self, get_args

from ropewalk.amounts import brief
from ropewalk.plan_text import layer_lines, plan_text
from ropewalk.scaling import Scaling, find, ladder, ladder32, turns
from ropewalk.scaling.base import refuse_unknown

Layout = Literal["half", "pairs"]
Arithmetic = Literal["exact", "float32"]
Sources = tuple[tuple[str, str], ...]
"""Field to where its value came from, such as ("base", "config.json:rope_theta")."""


@dataclass(frozen=True, kw_only=True, repr=False)
class LayerPlan:
    """One layer's positions. An encoding without frequencies says all it is in `settings`."""

    kind: str
    settings: str = "{}"
    """The encoding's own config as a JSON object, brought to one spelling."""
    base: float | None = None
    scaling: Scaling | None = None
    arithmetic: Arithmetic = "exact"
    frequencies: tuple[float, ...] = ()
    """For reading; rotations are computed from `turns`."""
    turns: tuple[int, ...] = ()
    """Each frequency as a signed 64-bit fraction of a turn."""
    rotary_gain: float = 1.0
    """On cos and sin."""
    logit_gain: float = 1.0
    """On every score."""
    layout: Layout | None = None
    rotary_width: int | None = None
    """Features of a head that rotate."""
    head_width: int | None = None
    ladders: tuple[int, ...] = ()
    """Widths of the ladders of frequencies, one after the other; a single one unless each axis has its own."""
    window: int | None = None
    """Tokens a query sees, itself among them; None: all."""
    keep_first: int = 0
    """First tokens of each document that stay visible past the window."""
    sources: Sources = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", _canonical(self.settings))
        if self.layout not in (None, *get_args(Layout)):
            raise ValueError(f"layout {self.layout!r} is not half or pairs")
        if self.arithmetic not in get_args(Arithmetic):
            raise ValueError(f"arithmetic {self.arithmetic!r} is not exact or float32")
        if len(self.frequencies) != len(self.turns):
            raise ValueError(f"{len(self.frequencies)} frequencies and {len(self.turns)} turns; there must be as many")
        for name in ("rotary_gain", "logit_gain"):
            gain = getattr(self, name)
            if not 0 < gain < math.inf:
                raise ValueError(f"{name} {gain!r} is not finite and positive; 1 leaves scores as they are")
        if self.window is not None and self.window < 1:
            raise ValueError(f"window {self.window} sees nothing; a query sees itself with 1, all with None")
        if self.keep_first < 0 or (self.keep_first and self.window is None):
            raise ValueError(f"keep_first {self.keep_first} keeps tokens past a window; give window, and 0 or more")

    def __repr__(self) -> str:
        return f"LayerPlan({'  '.join(layer_lines(self))})"

    @property
    def length_dependent(self) -> bool:
        return self.scaling is not None and self.scaling.length_dependent

    @property
    def resolved(self) -> bool:
        """Whether the frequencies are known: False for a length-dependent scaling before `for_length`."""
        return not self.length_dependent or getattr(self.scaling, "length", None) is not None

    @property
    def wavelengths(self) -> tuple[float, ...]:
        """Positions per turn of each frequency; infinite where a pair does not turn."""
        return tuple(2 * math.pi / omega if omega else math.inf for omega in self.frequencies)

    def for_length(self, limit: int) -> LayerPlan:
        """The layer where no position reaches `limit`; itself unless its scaling depends on the length."""
        if not self.length_dependent or self.scaling is None or self.base is None:
            return self
        scaling = self.scaling.for_length(limit)
        return replace(self, scaling=scaling, **_numbers(self.base, self.ladders, scaling, self.arithmetic))

    def scaled(self, scaling: Scaling) -> LayerPlan:
        """The layer with this scaling in place of its own."""
        if self.base is None:
            raise ValueError(f"a scaling changes frequencies made from a base, and this layer's {self.kind} has none")
        gains = {"rotary_gain": scaling.rotary_gain, "logit_gain": scaling.logit_gain}
        return replace(self, scaling=scaling, **gains, **_numbers(self.base, self.ladders, scaling, self.arithmetic))

    @property
    def identity(self) -> dict[str, Any]:
        """All that changes a rotated key or a score, and nothing else: what the fingerprint is of."""
        if not self.resolved:
            raise ValueError(f"{self.scaling} has no frequencies yet; call plan.for_length(limit) first")
        return {
            "kind": self.kind,
            "settings": json.loads(self.settings),
            "turns": self.turns,
            "gains": [self.rotary_gain.hex(), self.logit_gain.hex()],
            "layout": self.layout,
            "widths": [self.rotary_width, self.head_width],
            "window": self.window,
            **({"keep_first": self.keep_first} if self.keep_first else {}),
        }


@lru_cache(maxsize=64)
def for_length(layer: LayerPlan, limit: int) -> LayerPlan:
    """`layer.for_length(limit)`, remembered: every step of a generation asks for that of one limit. A function of its
    arguments alone, and kept here, since encodings keep nothing."""
    return layer.for_length(limit)


def rope_layer(
    base: float | None,
    width: int,
    scaling: Scaling | None = None,
    arithmetic: Arithmetic = "exact",
    *,
    layout: Layout,
    head_width: int | None = None,
    ladders: tuple[int, ...] = (),
    window: int | None = None,
    own: Sequence[Decimal] | None = None,
    kind: str = "rope",
    settings: str = "{}",
    sources: Sources = (),
) -> LayerPlan:
    """A layer that rotates `width` features of each head. `arithmetic="float32"` reproduces transformers' frequencies
    bit for bit and needs torch; `ladders` are given where each axis has frequencies of its own. own: the frequencies,
    where they come from no base."""
    ladders = tuple(ladders) or (width,)
    if sum(ladders) != width:
        raise ValueError(f"ladders {ladders} add up to {sum(ladders)}, the rotary width is {width}; make them equal")
    if head_width is not None and head_width < width:
        raise ValueError(f"rotary width {width} is wider than the head, {head_width}; rotate at most the whole head")
    if (base is None) == (own is None):
        raise ValueError("frequencies come from a base or are one's own; give one of them")
    if own is not None and scaling is not None:
        raise ValueError(f"a scaling ({scaling.kind}) changes the frequencies of a base, and these are one's own")
    return LayerPlan(
        kind=kind,
        settings=settings,
        base=None if base is None else float(base),
        scaling=scaling,
        arithmetic=arithmetic,
        rotary_gain=1.0 if scaling is None else scaling.rotary_gain,
        logit_gain=1.0 if scaling is None else scaling.logit_gain,
        layout=layout,
        rotary_width=width,
        head_width=head_width,
        ladders=ladders,
        window=window,
        sources=tuple(sources),
        **(_numbers(base, ladders, scaling, arithmetic) if base is not None else _fixed(own or ())),
    )


def _fixed(omegas: Sequence[Decimal | float]) -> dict[str, Any]:
    return {"frequencies": tuple(float(omega) for omega in omegas), "turns": turns(omegas)}


def _numbers(base: float, ladders: tuple[int, ...], scaling: Scaling | None, arithmetic: Arithmetic) -> dict[str, Any]:
    if scaling is not None and scaling.length_dependent and getattr(scaling, "length", None) is None:
        return {"frequencies": (), "turns": ()}
    if arithmetic == "float32":
        one = ladder32 if scaling is None else scaling.frequencies32
    else:
        one = ladder if scaling is None else scaling.frequencies
    return _fixed([omega for width in ladders for omega in one(base, width)])


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan:
    """A model's layers, and the four lengths that are often taken for one another."""

    layers: tuple[LayerPlan, ...]
    cross: LayerPlan | None = None
    """Of the attention to another text; None: it knows no positions."""
    trained: int | None = None
    """The longest text it was trained on, before any extension, where that is known: a scaling names it."""
    stated: int | None = None
    """What a config calls its longest (`max_position_embeddings`), where it does not say of what: training, or room."""
    extended: int | None = None
    """The length its scaling was chosen for."""
    table: int | None = None
    """Positions its learned table holds: a hard end."""
    length: int | None = None
    """What length-dependent scalings were resolved for."""
    sources: Sources = ()
    """Where the lengths came from."""

    @property
    def resolved(self) -> bool:
        return all(layer.resolved for layer in self.layers)

    @property
    def longest(self) -> int | None:
        """The length it is for, by what is known: extended, trained, or stated."""
        return self.extended or self.trained or self.stated

    @property
    def wavelengths(self) -> tuple[tuple[float, ...], ...]:
        """Of each layer, fastest first."""
        return tuple(layer.wavelengths for layer in self.layers)

    def for_length(self, limit: int) -> Self:
        """The plan where no position reaches `limit`; itself if nothing in it depends on the length."""
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 2**40:
            raise ValueError(f"limit {limit!r} is not an integer in [1, 2**40]; give one past the largest position")
        if not any(layer.length_dependent for layer in self.layers):
            return self
        # Equal layers are resolved once.
        resolved = {layer: layer.for_length(limit) for layer in dict.fromkeys(self.layers)}
        return replace(self, layers=tuple(resolved[layer] for layer in self.layers), length=limit)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all that changes a rotated key or a score; where values came from does not count."""
        seen: dict[LayerPlan, str] = {}
        for layer in self.layers:
            if layer not in seen:
                text = json.dumps(layer.identity, sort_keys=True, separators=(",", ":"))
                seen[layer] = hashlib.sha256(text.encode()).hexdigest()
        parts = [seen[layer] for layer in self.layers]
        if self.cross is not None:
            parts.append(json.dumps({"cross": self.cross.identity}, sort_keys=True, separators=(",", ":")))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def groups(self) -> dict[LayerPlan, list[int]]:
        """Each different layer with the numbers of the layers that are like it."""
        found: dict[LayerPlan, list[int]] = {}
        for number, layer in enumerate(self.layers):
            found.setdefault(layer, []).append(number)
        return found

    def to_dict(self) -> dict[str, Any]:
        """For JSON; `from_dict` gives the same plan back. Equal layers are written once, with their numbers."""
        return {
            "fingerprint": self.fingerprint if self.resolved else None,
            **{name: getattr(self, name) for name in ("trained", "stated", "extended", "table", "length")},
            "sources": dict(self.sources),
            **({} if self.cross is None else {"cross": _layer_to_dict(self.cross)}),
            "layers": [{"numbers": numbers, **_layer_to_dict(layer)} for layer, numbers in self.groups().items()],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        refuse_unknown(data, ("fingerprint", *(field.name for field in fields(cls))), "plan")
        if any("numbers" not in entry for entry in data.get("layers", [{}])):
            raise ValueError("plan: layers is missing, or an entry of it has no numbers; write it with to_dict()")
        numbered: dict[int, LayerPlan] = {}
        for entry in data["layers"]:
            layer = _layer_from_dict({key: value for key, value in entry.items() if key != "numbers"})
            for number in entry["numbers"]:
                if number in numbered:
                    raise ValueError(f"plan: layer {number} is described twice; keep one")
                numbered[number] = layer
        if sorted(numbered) != list(range(len(numbered))):
            raise ValueError(f"plan: layers {sorted(numbered)} leave gaps; describe 0 to {len(numbered) - 1}")
        lengths = {name: data.get(name) for name in ("trained", "stated", "extended", "table", "length")}
        sources = tuple(data.get("sources", {}).items())
        cross = None if data.get("cross") is None else _layer_from_dict(data["cross"])
        plan = cls(layers=tuple(numbered[n] for n in sorted(numbered)), cross=cross, sources=sources, **lengths)
        stated = data.get("fingerprint")
        if stated is not None and stated != plan.fingerprint:
            raise ValueError(f"plan: its numbers do not give the fingerprint {stated} it states; resolve it again")
        return plan

    def __repr__(self) -> str:
        return brief(str(self))

    def __str__(self) -> str:
        lengths = {name: getattr(self, name) for name in ("trained", "extended", "table", "length")}
        return plan_text(lengths, dict(self.sources), self.groups(), self.cross)


def _canonical(settings: str) -> str:
    try:
        given = json.loads(settings)
    except json.JSONDecodeError:
        given = None
    if not isinstance(given, dict):
        raise ValueError(f"settings {settings!r} is not a JSON object; write for example '{{\"heads\": 8}}'")
    return json.dumps(given, sort_keys=True)


def _layer_to_dict(layer: LayerPlan) -> dict[str, Any]:
    data = {field.name: getattr(layer, field.name) for field in fields(layer)}
    data["settings"] = json.loads(layer.settings)
    data["scaling"] = None if layer.scaling is None else layer.scaling.model_dump(mode="json")
    data["frequencies"] = list(layer.frequencies)
    # As text, since many readers of JSON hold numbers as doubles and would round these.
    data["turns"] = [str(turn) for turn in layer.turns]
    data["ladders"] = list(layer.ladders)
    data["sources"] = dict(layer.sources)
    if not layer.keep_first:
        del data["keep_first"]
    return data


def _layer_from_dict(data: Mapping[str, Any]) -> LayerPlan:
    refuse_unknown(data, [field.name for field in fields(LayerPlan)], "plan, one layer")
    values = dict(data)
    values["settings"] = json.dumps(values.get("settings", {}))
    if (scaling := values.get("scaling")) is not None:
        values["scaling"] = find(scaling["kind"]).model_validate(scaling)
    values["frequencies"] = tuple(values.get("frequencies", ()))
    values["turns"] = tuple(int(turn) for turn in values.get("turns", ()))
    values["ladders"] = tuple(values.get("ladders", ()))
    values["sources"] = tuple(values.get("sources", {}).items())
    return LayerPlan(**values)
