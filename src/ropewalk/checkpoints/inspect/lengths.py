"""Frequencies against lengths: which pairs never complete a turn in training, and what a scaling would make of N.

A pair whose wavelength exceeds the trained length has shown the model only part of the circle. Past that length it
turns to angles never seen, unless a scaling slows it: that is all that scalings of RoPE are for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.inspect.overrides import overrides
from ropewalk.checkpoints.inspect.pasted import MODEL, Override
from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.plan import LayerPlan, Plan
from ropewalk.scaling import NTK, Dynamic, Linear, Llama3, LongRoPE, Scaling, YaRN, ladder

MOST = 4096
"""The largest factor of a scaling."""
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
    """On cos and sin."""
    logit_gain: float
    """On every score."""
    first: int | None
    """The fastest pair it changes; None where it changes none."""
    first_wavelength: float | None
    past: int
    """Pairs that turn past every angle they were trained on at that length."""
    overrides: tuple[Override, ...] = ()
    """What to paste for each engine; none for leaving it as it is."""


@dataclass(frozen=True, kw_only=True)
class Reach:
    """What it takes to serve texts of a length."""

    to: int
    start: int | None = None
    """The length that factors count from."""
    words: tuple[str, ...] = ()
    """What to know first; all there is to say where there are no stretches."""
    stretches: tuple[Stretch, ...] = ()
    measured: bool = True
    """Whether `ropewalk extend` can measure which is best."""
    model: str = MODEL
    """As it is written in a command."""


def waves(plan: Plan) -> tuple[Waves, ...]:
    """For each different ladder of frequencies, within the length that factors count from; none where that is not
    known."""
    scaled = scaled_layer(plan)
    if scaled is None or (length := counted_from(plan, scaled)) is None:
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


def reach(resolved: Resolved, to: int, model: str = MODEL) -> Reach:
    """What each scaling would do to reach `to` tokens from the trained length, and what to paste for it."""
    plan, where = resolved.plan, resolved.where
    if not 1 <= to <= 2**40:
        raise BadInput(where, "--to", f"{to:,} is not a length", "give the number of tokens to serve, up to 2**40")
    layer = scaled_layer(plan)
    if layer is None or layer.base is None:
        return Reach(to=to, words=(_without_rotation(plan),))
    if (start := counted_from(plan, layer)) is None:
        return _untold(resolved, layer, to, model)
    name = "trained" if plan.trained else "stated"
    if to <= start:
        at = dict(plan.sources).get(name)
        said = f"{to:,} is within the {name} length, {start:,}{f' [{at}]' if at else ''}: no scaling is needed"
        doubt = "." if plan.trained else " if it was trained that far, which the config does not say."
        measured = f"Whether one helps all the same is measured: ropewalk extend {model} --to {to} --text PATH"
        return Reach(to=to, words=(said + doubt, *([measured] if to == start and _extends(plan, to) else [])))
    if to > MOST * start:
        problem = f"{to:,} is more than {MOST:,} times the {name} length, {start:,}"
        raise BadInput(where, "--to", problem, f"give a length up to {MOST * start:,}")
    if getattr(layer.scaling, "kind", None) == "proportional":
        return Reach(to=to, words=("Its full layers have proportional RoPE, which no scaling here extends.",))
    found = [_stretch("none", None, layer, start, to)]
    for name, scaling in candidates(plan, layer, start, to).items():
        try:
            one = _stretch(name, scaling, layer, start, to)
        except ValueError:
            continue  # a scaling that has no frequencies for such a width or base is no candidate
        found.append(replace(one, overrides=overrides(resolved, scaling, to, model)))
    words = tuple(_to_know(plan, start, to))
    measured = _extends(plan, to)
    return Reach(to=to, start=start, words=words, stretches=tuple(found), measured=measured, model=model)


def _extends(plan: Plan, to: int) -> bool:
    """Whether `ropewalk extend` goes to this length: not to one below what the config states."""
    return plan.longest is None or to >= plan.longest


def counted_from(plan: Plan, layer: LayerPlan) -> int | None:
    """The length that factors count from: the trained one, or the stated one of a model that nothing has scaled."""
    if plan.trained is not None or isinstance(layer.scaling, Linear):
        return plan.trained
    return plan.stated


def scaled_layer(plan: Plan) -> LayerPlan | None:
    """A layer that sees everything, or one that rotates at all."""
    turning = [layer for layer in plan.layers if layer.base is not None]
    return next((layer for layer in turning if layer.window is None), turning[0] if turning else None)


def candidates(plan: Plan, layer: LayerPlan, start: int, to: int) -> dict[str, Scaling]:
    """Each scaling from a length to `to`, in place of the one there is; settings of the same kind stay. None for
    proportional RoPE, of which some pairs do not turn."""
    factor, now = to / start, layer.scaling
    if getattr(now, "kind", None) == "proportional":
        return {}
    found: dict[str, Scaling] = {
        "linear": Linear(factor=factor),
        "ntk": NTK(factor=factor),
        "dynamic": Dynamic(factor=factor, trained=start, length=to),
        "yarn": as_before(now, YaRN(factor=factor, trained=start)),
        "llama3": as_before(now, Llama3(factor=factor, trained=start)),
    }
    if isinstance(now, LongRoPE) and plan.extended is not None and to <= plan.extended:
        found["longrope"] = now.for_length(to)
    return found


def as_before(now: Scaling | None, scaling: Scaling) -> Scaling:
    """A scaling with the settings of the checkpoint's own, where both are YaRN, or both Llama 3's: DeepSeek's gain on
    scores is one, and gpt-oss's ramp without rounding."""
    if isinstance(now, Llama3) and isinstance(scaling, Llama3):
        return scaling.model_copy(update={"low": now.low, "high": now.high})
    if not (isinstance(now, YaRN) and isinstance(scaling, YaRN)):
        return scaling
    given = now.attention_factor
    # A gain that only repeats the formula for the old factor goes with it.
    repeated = given is not None and math.isclose(given, YaRN(factor=now.factor, trained=scaling.trained).rotary_gain)
    lengths = {"factor": scaling.factor, "trained": scaling.trained}
    return YaRN.model_validate({**dict(now), **lengths, "attention_factor": None if repeated else given})


def _without_rotation(plan: Plan) -> str:
    kinds = {layer.kind for layer in plan.layers}
    if any(layer.frequencies for layer in plan.layers):
        return "The frequencies are the model's own and come from no base, so no scaling applies: choose others."
    if plan.table is not None:
        ends = f"the learned table ends at {plan.table:,} positions"
        return f"Nothing rotates here, so no scaling applies: {ends}. Split longer texts, or train a longer table."
    if kinds & {"alibi", "t5"}:
        name = "ALiBi" if "alibi" in kinds else "T5's bias"
        return f"Nothing rotates here, so no scaling applies: {name} is defined at any distance."
    return "Nothing rotates here, so no scaling applies."


def _untold(resolved: Resolved, layer: LayerPlan, to: int, model: str) -> Reach:
    """No trained length, so only a linear scaling that is there already can be carried on."""
    plan, now = resolved.plan, layer.scaling
    unknown = f"{resolved.where} does not say what length the model was trained at"
    if plan.extended is None or not isinstance(now, Linear):
        return Reach(to=to, words=(f"{unknown}, so no factor can be computed.",))
    if to <= plan.extended:
        said = f"{to:,} is within the length it is extended to, {plan.extended:,} by {now}: no change is needed."
        return Reach(to=to, words=(said,))
    factor = now.factor * to / plan.extended
    if factor > MOST:
        return Reach(to=to, words=(f"{unknown}, and linear x{factor:,.0f} is past {MOST:,}.",))
    scaling = Linear(factor=factor)
    one = _stretch("linear", scaling, layer, round(plan.extended / now.factor), to)
    words = f"{unknown}; {now} reaches {plan.extended:,}, so only its factor can be raised."
    return Reach(to=to, words=(words,), stretches=(replace(one, overrides=overrides(resolved, scaling, to, model)),))


def _to_know(plan: Plan, start: int, to: int) -> list[str]:
    found = []
    if plan.trained is None:
        found.append(
            f"{start:,} is what the config states; where the model was trained at less, the factors must be larger."
        )
    if plan.extended is not None and to <= plan.extended:
        found.append(
            f"{to:,} is within the length it is extended to already, {plan.extended:,}; these would replace it."
        )
    windows = [layer.window for layer in plan.layers if layer.base is not None]
    widest = max((window or to for window in windows), default=to)
    if widest <= start:
        found.append(
            f"Every layer that rotates sees at most {widest:,} tokens: where the engine keeps to that window, no "
            "distance grows with the text, and no scaling is needed."
        )
    return found


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
        factor=1.0 if scaling is None else _factor(scaling) or to / trained,
        gain=1.0 if scaling is None else scaling.rotary_gain,
        logit_gain=1.0 if scaling is None else scaling.logit_gain,
        first=moved[0] if moved else None,
        first_wavelength=2 * math.pi / plain[moved[0]] if moved else None,
        past=len(past),
    )


def _factor(scaling: Scaling) -> float | None:
    """LongRoPE's is of the length its lists are made for, as its gain is, whatever length is asked."""
    return getattr(scaling, "ratio", None) or getattr(scaling, "factor", None)
