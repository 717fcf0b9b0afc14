"""What a picture of RoPE is of: a checkpoint's config, a plan, an encoding, or only a base and a width.

Reads configs alone, never weights, and needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from ropewalk.checkpoints.files.hub import locate
from ropewalk.checkpoints.inspect.lengths import counted_from, scaled_layer
from ropewalk.checkpoints.resolve.read import read
from ropewalk.plan import LayerPlan, Plan, rope_layer
from ropewalk.scaling import Scaling, ladder
from ropewalk.settings import Settings

BASE, HEAD_WIDTH, TRAINED = 10_000.0, 128, 4096


class Rotation(Settings):
    """Settings of every picture of RoPE. base and head_width are for a picture without a checkpoint."""

    base: float | None = Field(default=None, gt=1, le=1e12)
    """Base of the frequencies, where no checkpoint says it; 10,000 unless given."""
    head_width: int | None = Field(default=None, ge=4, le=4096, multiple_of=2)
    """Features of a head, where no checkpoint says it; 128 unless given."""
    trained: int | None = Field(default=None, ge=2, le=2**40)
    """Trained length in tokens, in place of what the checkpoint says."""
    layer: int | None = Field(default=None, ge=0)
    """Which layer of a checkpoint; the first that rotates and sees everything unless given."""


@dataclass(frozen=True)
class Subject:
    name: str
    layer: LayerPlan
    plan: Plan
    trained: int
    stated: bool
    """Whether the config only states that length, without saying that it is what the model was trained at."""

    @property
    def length_name(self) -> str:
        """What to call that length in a sentence."""
        return "stated" if self.stated else "trained"

    @property
    def base(self) -> float:
        assert self.layer.base is not None
        return self.layer.base

    def plain(self) -> list[float]:
        """Its frequencies before any scaling, as it was trained; proportional RoPE is trained as it is."""
        if getattr(self.layer.scaling, "kind", None) == "proportional":
            return list(self.layer.frequencies)
        return [float(omega) for width in self.layer.ladders for omega in ladder(self.base, width)]

    def facts(self) -> dict[str, Any]:
        """For the data of a picture."""
        return {
            "name": self.name,
            "base": self.base,
            "rotary_width": self.layer.rotary_width,
            "trained": self.trained,
            "trained_is_stated": self.stated,
        }


def scaling_name(scaling: Scaling) -> str:
    """Without words, for pictures in any language: yarn and its factor."""
    factor = getattr(scaling, "ratio", None) or getattr(scaling, "factor", None)
    return scaling.kind if factor is None or factor == 1 else f"{scaling.kind} \u00d7{factor:g}"


def subject(thing: Any, options: Rotation) -> Subject:
    """Of a path or org/name, a plan, a layer's plan, an encoding, a model, an inspection; of the options where None."""
    if thing is None:
        return _of_options(options)
    for name in ("base", "head_width"):
        if getattr(options, name) is not None:
            raise ValueError(
                f"{name}= is for a picture without a checkpoint, which says its own; leave one of them out"
            )
    name, plan = planned(thing)
    layer = _layer(name, plan, options.layer)
    length = options.trained or counted_from(plan, scaled_layer(plan) or layer)
    if length is None:
        raise ValueError(f"{name} does not say what length it was trained at; give it: trained=8192")
    return Subject(name, layer, plan, length, stated=options.trained is None and plan.trained is None)


def planned(thing: Any) -> tuple[str, Plan]:
    """The name and the plan of whatever has one."""
    if isinstance(thing, str | Path):
        place, name = locate(thing)
        found = read(place, strict=False)
        return name or found.name, found.plan
    if isinstance(thing, Plan):
        return "plan", thing
    if isinstance(thing, LayerPlan):
        return thing.kind, Plan(layers=(thing,))
    if hasattr(thing, "layer_plan"):
        return type(thing).__name__, Plan(layers=(thing.layer_plan(),))
    if hasattr(thing, "resolved") and hasattr(thing.resolved, "plan"):
        return thing.resolved.name, thing.resolved.plan
    if isinstance(getattr(thing, "plan", None), Plan):
        return getattr(thing, "name", type(thing).__name__), thing.plan
    raise TypeError(f"{type(thing).__name__} has no plan of positions; give a path, a plan, an encoding or a model")


def _of_options(options: Rotation) -> Subject:
    if options.layer is not None:
        raise ValueError("layer= is of a checkpoint, and none is given; leave it out, or name one")
    base, width = options.base or BASE, options.head_width or HEAD_WIDTH
    layer = rope_layer(base, width, layout="half", head_width=width)
    trained = options.trained or TRAINED
    return Subject(f"RoPE(base={base:,.10g})", layer, Plan(layers=(layer,), trained=trained), trained, stated=False)


def _layer(name: str, plan: Plan, number: int | None) -> LayerPlan:
    if number is not None and number >= len(plan.layers):
        raise ValueError(f"layer={number}: {name} has layers 0 to {len(plan.layers) - 1}")
    layer = scaled_layer(plan) if number is None else plan.layers[number]
    if layer is None or layer.base is None:
        kinds = ", ".join(dict.fromkeys(one.kind for one in (plan.layers if number is None else [plan.layers[number]])))
        raise ValueError(f"nothing rotates in {name} ({kinds}), and this picture is of RoPE; try: ropewalk plot biases")
    return layer
