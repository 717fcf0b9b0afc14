"""A plan in words: one line a kind of layer and a second where it has a scaling, each value with where it came from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Protocol


class Layer(Protocol):
    """What is said of a layer."""

    @property
    def kind(self) -> str: ...
    @property
    def settings(self) -> str: ...
    @property
    def base(self) -> float | None: ...
    @property
    def frequencies(self) -> tuple[float, ...]: ...
    @property
    def scaling(self) -> Any: ...
    @property
    def arithmetic(self) -> str: ...
    @property
    def rotary_gain(self) -> float: ...
    @property
    def logit_gain(self) -> float: ...
    @property
    def layout(self) -> str | None: ...
    @property
    def rotary_width(self) -> int | None: ...
    @property
    def head_width(self) -> int | None: ...
    @property
    def window(self) -> int | None: ...
    @property
    def keep_first(self) -> int: ...
    @property
    def sources(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def resolved(self) -> bool: ...


def plan_text(
    lengths: Mapping[str, int | None],
    sources: Mapping[str, str],
    groups: Mapping[Any, list[int]],
    cross: Layer | None = None,
) -> str:
    """groups: each different layer with the numbers of the layers that are like it."""
    count = sum(map(len, groups.values()))
    said = [f"{count} layer{'s' * (count != 1)}"]
    said += [f"{name} {value:,}{_from(sources.get(name))}" for name, value in lengths.items() if value is not None]
    places = {layer: _spans(numbers) for layer, numbers in groups.items()}
    wide = max(map(len, places.values()), default=0)
    lines = [", ".join(said)]
    for layer, place in places.items():
        first, *more = layer_lines(layer)
        lines.append(f"layer{'s' * (count != 1)} {place:<{wide}}  {first}")
        lines += [f"{'':{wide + 6 + (count != 1)}}  {line}" for line in more]
    return "\n".join([*lines, *(() if cross is None else [f"cross-attention  {'  '.join(layer_lines(cross))}"])])


def layer_lines(layer: Layer) -> list[str]:
    """What a reader needs of one layer, in at most two lines."""
    sources = dict(layer.sources)
    first = [" ".join(filter(None, [_kind(layer), layer.layout, _width(layer)]))]
    if layer.base is not None:
        first.append(f"base {layer.base:,.10g}{_from(sources.get('base'))}")
    elif layer.frequencies:
        slow, fast = min(layer.frequencies), max(layer.frequencies)
        said = f"{len(layer.frequencies)} frequencies of its own, {fast:.6g} to {slow:.6g}"
        first.append(f"{said}{_from(sources.get('frequencies'))}")
    elif layer.settings != "{}":
        first.append(_settings(layer.settings))
    if layer.window is not None:
        kept = f", the first {layer.keep_first:,} kept" if layer.keep_first else ""
        first.append(f"window {layer.window:,}{kept}{_from(sources.get('window'))}")
    second = []
    if layer.scaling is not None:
        second.append(f"{layer.scaling}{_from(sources.get('scaling') or sources.get('factor'))}")
    if layer.rotary_gain != 1:
        second.append(f"gain {layer.rotary_gain:.5g}{_from(sources.get('rotary_gain'))}")
    if layer.logit_gain != 1:
        second.append(f"gain on scores {layer.logit_gain:.5g}{_from(sources.get('logit_gain'))}")
    if layer.arithmetic == "float32":
        second.append("in float32")
    if not layer.resolved:
        second.append("not resolved: for_length(limit)")
    return ["  ".join(filter(None, part)) for part in (first, second) if part]


def _kind(layer: Layer) -> str:
    """A chain that turns is named by its parts: what stands beside it is the rotation, not the settings."""
    parts = json.loads(layer.settings).get("parts") if layer.kind == "chain" and layer.layout is not None else None
    return layer.kind if parts is None else " + ".join(part["kind"] for part in parts)


def _width(layer: Layer) -> str:
    if layer.rotary_width is None:
        return ""
    return f"{layer.rotary_width}" if layer.head_width is None else f"{layer.rotary_width}/{layer.head_width}"


def _settings(text: str, most: int = 60) -> str:
    given = json.loads(text)
    said = ", ".join(f"{key} {value}" for key, value in given.items() if key != "kind" and value is not None)
    return said if len(said) <= most else said[: most - 3].rstrip(", ") + "..."


def _from(source: str | None) -> str:
    return "" if source in (None, "default") else f" [{source}]"


def _spans(numbers: list[int], most: int = 4) -> str:
    """0-4,6-10 for runs; 5,11..29 for an even step; past `most` runs the first two and how many layers in all."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    steps = {after - before for before, after in pairwise(numbers)}
    if len(runs) > 2 and len(steps) == 1:
        return f"{numbers[0]},{numbers[1]}..{numbers[-1]}"
    said = [f"{first}-{last}" if last > first else f"{first}" for first, last in runs]
    return ",".join(said) if len(said) <= most else f"{','.join(said[:2])}.. ({len(numbers)})"
