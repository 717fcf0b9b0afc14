"""What decides a score beside frequencies and gains: each layer's window, which layers do not rotate, a temperature on
the queries, and how M-RoPE shares the frequencies out among its axes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from ropewalk.plan import LayerPlan

FREQUENCIES, GAINS, WINDOWS, STILL, TEMPERATURE, SECTIONS = (
    "frequencies",
    "gains",
    "windows",
    "layers without rotation",
    "query temperature",
    "M-RoPE sections",
)
ASPECTS = (FREQUENCIES, GAINS, WINDOWS, STILL, TEMPERATURE, SECTIONS)
"""What engines are compared in, in the order of the report."""


@dataclass(frozen=True, kw_only=True)
class Besides:
    """One entry a layer, side after side."""

    windows: tuple[int | None, ...]
    """Tokens a query sees, itself among them; None: all that the longest text has."""
    still: tuple[bool, ...]
    """Whether it is an attention layer that does not rotate."""
    temperature: tuple[str | None, ...]
    sections: tuple[str | None, ...]

    def aspects(self) -> dict[str, tuple[object, ...]]:
        return {WINDOWS: self.windows, STILL: self.still, TEMPERATURE: self.temperature, SECTIONS: self.sections}

    def present(self) -> tuple[str, ...]:
        """What this checkpoint has at all."""
        return tuple(name for name, values in self.aspects().items() if any(values))

    @property
    def nothing(self) -> tuple[None, ...]:
        return (None,) * len(self.windows)


def of_layers(layers: Iterable[LayerPlan], longest: int | None, *, linear: bool) -> Besides:
    """A window that the longest text fits in is none. Where layers that do not rotate are `linear` attention, they are
    another kind of layer and not attention without positions."""
    layers = tuple(layers)
    settings = [json.loads(layer.settings) for layer in layers]
    kept = [layer.window is not None and (longest is None or layer.window < longest) for layer in layers]
    return Besides(
        windows=tuple(layer.window if keep else None for layer, keep in zip(layers, kept, strict=True)),
        still=tuple(layer.kind in ("none", "temperature") and not linear for layer in layers),
        temperature=tuple(
            json.dumps(one if layer.kind == "temperature" else one["temperature"], sort_keys=True)
            if layer.kind == "temperature" or one.get("temperature")
            else None
            for layer, one in zip(layers, settings, strict=True)
        ),
        sections=tuple(
            f"{one['sections']} {one.get('arrangement', 'blocks')}" if one.get("sections") else None for one in settings
        ),
    )
