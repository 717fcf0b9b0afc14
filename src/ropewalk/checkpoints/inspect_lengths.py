"""Frequencies against lengths: which pairs never complete a turn in training, and what a scaling would make of N.

A pair whose wavelength exceeds the trained length has shown the model only part of the circle. Past that length it
turns to angles never seen, unless a scaling slows it: that is all that scalings of RoPE are for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ropewalk.checkpoints.errors import BadInput
from ropewalk.plan import LayerPlan, Plan
from ropewalk.scaling import NTK, Dynamic, Linear, Llama3, Scaling, YaRN, ladder

SLACK = 1 + 1e-9
"""Angles equal but for rounding are equal."""


@dataclass(frozen=True, kw_only=True)
class Waves:
    """How the pairs of some layers turn within the trained length, before any scaling."""

    layers: tuple[int, ...]
    pairs: int
    turning: int
    """Pairs with a frequency above 0."""
    unfinished: int
    """Pairs that turn and never complete a turn within the trained length."""
    longest: float
    """The slowest pair's wavelength, in tokens."""


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """What one scaling would do to reach a length."""

    scaling: str
    factor: float
    gain: float
    first: int | None
    """The fastest pair it changes; None where it changes none."""
    first_wavelength: float | None
    past: int
    """Pairs that turn past every angle they were trained on at that length."""


def waves(plan: Plan) -> tuple[Waves, ...]:
    """For each different ladder of frequencies, within the trained length, or the stated one where that is all there
    is; none without either."""
    length = plan.trained or plan.stated
    if length is None:
        return ()
    found: dict[tuple[Any, ...], list[int]] = {}
    kept: dict[tuple[Any, ...], LayerPlan] = {}
    for number, layer in enumerate(plan.layers):
        if layer.base is not None:
            same = (layer.base, layer.ladders, getattr(layer.scaling, "fraction", None))
            found.setdefault(same, []).append(number)
            kept.setdefault(same, layer)
    return tuple(_waves(kept[same], tuple(numbers), length) for same, numbers in found.items())


def _waves(layer: LayerPlan, numbers: tuple[int, ...], trained: int) -> Waves:
    omegas = _trained_frequencies(layer)
    turning = [omega for omega in omegas if omega > 0]
    return Waves(
        layers=numbers,
        pairs=len(omegas),
        turning=len(turning),
        unfinished=sum(omega * trained < 2 * math.pi for omega in turning),
        longest=2 * math.pi / min(turning),
    )


def _trained_frequencies(layer: LayerPlan) -> tuple[float, ...]:
    """Before a scaling stretched them; proportional RoPE is trained as it is."""
    assert layer.base is not None
    if getattr(layer.scaling, "kind", None) == "proportional":
        return layer.frequencies
    return tuple(float(omega) for width in layer.ladders for omega in ladder(layer.base, width))


def stretches(plan: Plan, to: int, where: str) -> tuple[Stretch, ...]:
    """What each scaling would do on the layers that see everything, from the trained length to `to`; nothing where `to`
    lies within a length that is stated, and may be the trained one."""
    layer = next((one for one in plan.layers if one.base is not None and one.window is None), None)
    layer = layer or next((one for one in plan.layers if one.base is not None), None)
    if layer is None or layer.base is None:
        raise BadInput(where, "--to", "nothing rotates here, so there is no scaling to try", "leave --to out")
    trained = plan.trained or plan.stated
    if trained is None:
        raise BadInput(where, "--to", "the config does not say what length the model was trained at", "leave --to out")
    if plan.trained is None and 0 < to <= trained:
        return ()
    if not trained < to <= 4096 * trained:
        known = "trained" if plan.trained else "stated"
        raise BadInput(
            where,
            "--to",
            f"{to:,} is not above the {known} length {trained:,} and at most 4096 times it",
            "give the length you want to serve, in tokens",
        )
    factor = to / trained
    candidates: dict[str, Scaling | None] = {
        "none": None,
        "linear": Linear(factor=factor),
        "ntk": NTK(factor=factor),
        "dynamic": Dynamic(factor=factor, trained=trained, length=to),
        "yarn": YaRN(factor=factor, trained=trained),
        "llama3": Llama3(factor=factor, trained=trained),
    }
    found = []
    for name, scaling in candidates.items():
        try:
            found.append(_stretch(name, scaling, layer, trained, to))
        except ValueError:
            continue  # a scaling that has no frequencies for such a width or base is no candidate
    return tuple(found)


def _stretch(name: str, scaling: Scaling | None, layer: LayerPlan, trained: int, to: int) -> Stretch:
    assert layer.base is not None
    plain = [float(omega) for width in layer.ladders for omega in ladder(layer.base, width)]
    changed = plain
    if scaling is not None:
        changed = [float(omega) for width in layer.ladders for omega in scaling.frequencies(layer.base, width)]
    moved = [place for place, (one, other) in enumerate(zip(plain, changed, strict=True)) if one > other * SLACK]
    past = [
        place
        for place, (one, other) in enumerate(zip(plain, changed, strict=True))
        if one * trained < 2 * math.pi and other * to > one * trained * SLACK
    ]
    return Stretch(
        scaling=name,
        factor=1.0 if scaling is None else to / trained,
        gain=1.0 if scaling is None else scaling.rotary_gain,
        first=moved[0] if moved else None,
        first_wavelength=2 * math.pi / plain[moved[0]] if moved else None,
        past=len(past),
    )
