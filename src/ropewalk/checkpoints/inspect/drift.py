"""Where one checkpoint's positions drifted from another's, value by value, with the source of each value."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.plan import LayerPlan, Plan

LENGTHS = ("trained", "stated", "extended", "table")
FIELDS = ("kind", "base", "rotary_gain", "logit_gain", "layout", "rotary_width", "head_width", "window")


@dataclass(frozen=True, kw_only=True)
class Drift:
    side: str
    field: str
    layers: tuple[int, ...]
    """Empty for a value of the whole model."""
    ours: Any
    theirs: Any
    source: str
    """Where the first checkpoint states it."""


def drifts(ours: Resolved, theirs: Resolved) -> tuple[Drift, ...]:
    found: list[Drift] = []
    for side in dict.fromkeys([*ours.plans, *theirs.plans]):
        one, other = ours.plans.get(side), theirs.plans.get(side)
        if one is None or other is None:
            missing = ["absent" if plan is None else f"{len(plan.layers)} layers" for plan in (one, other)]
            found.append(Drift(side=side, field="side", layers=(), ours=missing[0], theirs=missing[1], source=""))
        else:
            found += _of_plans(side, one, other)
    return tuple(found)


def _of_plans(side: str, one: Plan, other: Plan) -> list[Drift]:
    found = []
    sources = dict(one.sources)
    for name in LENGTHS:
        mine, yours = getattr(one, name), getattr(other, name)
        if mine != yours:
            found.append(Drift(side=side, field=name, layers=(), ours=mine, theirs=yours, source=sources.get(name, "")))
    if len(one.layers) != len(other.layers):
        counts = len(one.layers), len(other.layers)
        found.append(Drift(side=side, field="layers", layers=(), ours=counts[0], theirs=counts[1], source=""))
        return found
    places: dict[tuple[str, str, str, str], list[int]] = {}
    values: dict[tuple[str, str, str, str], tuple[Any, Any]] = {}
    for number, (mine, yours) in enumerate(zip(one.layers, other.layers, strict=True)):
        left, right = _flat(mine, yours), _flat(yours, mine)
        for name in dict.fromkeys([*left, *right]):
            if left.get(name) != right.get(name):
                key = (name, repr(left.get(name)), repr(right.get(name)), _source(mine, name))
                places.setdefault(key, []).append(number)
                values[key] = (left.get(name), right.get(name))
    for key, numbers in places.items():
        found.append(
            Drift(
                side=side,
                field=key[0],
                layers=tuple(numbers),
                ours=values[key][0],
                theirs=values[key][1],
                source=key[3],
            )
        )
    return found


def _flat(layer: LayerPlan, other: LayerPlan) -> dict[str, Any]:
    """Scalings of one kind are compared by their settings, others by name."""
    values = {name: getattr(layer, name) for name in FIELDS}
    values |= {f"settings.{name}": value for name, value in json.loads(layer.settings).items()}
    scaling = layer.scaling
    if scaling is None:
        return {name: value for name, value in values.items() if value is not None}
    if type(scaling) is type(other.scaling):
        values |= {f"scaling.{name}": value for name, value in scaling.model_dump(mode="json").items()}
    else:
        values["scaling"] = str(scaling)
    return {name: value for name, value in values.items() if value is not None}


def _source(layer: LayerPlan, name: str) -> str:
    sources = dict(layer.sources)
    return sources.get(name.partition(".")[2] or name) or sources.get(name.partition(".")[0], "")
