"""The layers of a resolved plan as a TransformerConfig writes them."""

from __future__ import annotations

import json
from typing import Any

from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.plan import LayerPlan, Plan


def layers_of(resolved: Resolved) -> dict[str, Any]:
    """`encoding`, `window` and `layers` of the config."""
    sides = resolved.plans
    if len(sides) == 1:
        (plan,) = sides.values()
        return _stack(plan)
    encoder, decoder = _stack(sides["encoder"]), _stack(sides["decoder"])
    return {
        "encoding": decoder["encoding"],
        "window": decoder["window"],
        "layers": {"encoder": _apart(encoder, decoder), "decoder": decoder["layers"]},
    }


def encoding_of(layer: LayerPlan) -> dict[str, Any]:
    """The encoding's config."""
    settings = json.loads(layer.settings)
    if layer.kind != "rope":
        return {"kind": layer.kind, **settings}
    if beyond := [key for key, value in settings.items() if value and key != "arrangement"]:
        raise ValueError(f"RoPE with {', '.join(beyond)} does not load; inspect reads it")
    return {
        "kind": "rope",
        "base": layer.base,
        "layout": layer.layout,
        "rotary_width": layer.rotary_width,
        "scaling": None if layer.scaling is None else layer.scaling.model_dump(),
        "arithmetic": layer.arithmetic,
    }


def _stack(plan: Plan) -> dict[str, Any]:
    groups = plan.groups()
    if len(groups) == 1:
        (layer,) = groups
        return {"encoding": encoding_of(layer), "window": layer.window, "layers": len(plan.layers)}
    names = dict(zip(groups, _names(list(groups)), strict=True))
    kinds = {names[layer]: {"encoding": encoding_of(layer), "window": layer.window} for layer in groups}
    pattern = _shortest([names[layer] for layer in plan.layers])
    common = max(groups, key=lambda layer: len(groups[layer]))
    layers = {"count": len(plan.layers), "pattern": pattern, "kinds": kinds}
    return {"encoding": encoding_of(common), "window": common.window, "layers": layers}


def _apart(stack: dict[str, Any], other: dict[str, Any]) -> Any:
    """The layers of a stack that does not have the model's encoding."""
    if not isinstance(stack["layers"], int) or all(stack[key] == other[key] for key in ("encoding", "window")):
        return stack["layers"]
    kind = {"encoding": stack["encoding"], "window": stack["window"]}
    return {"count": stack["layers"], "pattern": ["all"], "kinds": {"all": kind}}


def _names(layers: list[LayerPlan]) -> list[str]:
    """local and global by the window, none where nothing tells positions; numbered where that is not enough."""
    said = ["none" if layer.kind == "none" else "global" if layer.window is None else "local" for layer in layers]
    return [name if said.count(name) == 1 else f"{name}{said[:n].count(name) + 1}" for n, name in enumerate(said)]


def _shortest(names: list[str]) -> list[str]:
    """The shortest pattern that, repeated and cut, gives these."""
    for length in range(1, len(names)):
        if all(name == names[number % length] for number, name in enumerate(names)):
            return names[:length]
    return names
