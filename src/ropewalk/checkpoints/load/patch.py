"""A transformers model with exact positions: its rotary modules replaced by one that has nothing to round.

    patched = ropewalk.patch(model)              model is changed in place; print(patched) says what changed
    patched = ropewalk.patch(model, plan=plan)   the frequencies and gains of another plan, for any rotary module
    patched.undo()

transformers keeps frequencies in a float buffer, which `.to(bfloat16)` rounds and `to_empty` leaves undefined, and
multiplies positions in float32, off by 7.6e-3 rad at 128k. Here the plan that its config resolves to holds the float32
frequencies of training as exact numbers, and angles come from integers.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ropewalk.amounts import brief
from ropewalk.checkpoints.load.rotary_numbers import ChangedNumbers, set_numbers
from ropewalk.checkpoints.resolve.hf import resolve
from ropewalk.phase import cos_sin, phase
from ropewalk.plan import LayerPlan, Plan

NEAR = 64
"""Positions at which the old module, built afresh, must say the same: there float32 is still exact enough to tell."""
AGREES = 2e-5


class ExactRotary(nn.Module):
    """A rotary module as transformers has them, returning cos and sin of both halves or of every pair; no buffers."""

    def __init__(self, layers: Mapping[str | None, LayerPlan], *, paired: bool) -> None:
        super().__init__()
        self.layers, self.paired = dict(layers), paired

    @torch.no_grad()
    def forward(self, x: Tensor, position_ids: Tensor, layer_type: str | None = None) -> tuple[Tensor, Tensor]:
        if position_ids.ndim != 2:
            raise ValueError(
                f"position_ids has shape {tuple(position_ids.shape)}; one integer a token, (B, L), is read"
            )
        layer = self.layers[layer_type]
        cos, sin = (self._both(part) * layer.rotary_gain for part in cos_sin(phase(position_ids, layer.turns)))
        return cos.to(x.dtype), sin.to(x.dtype)

    def _both(self, part: Tensor) -> Tensor:
        return part.repeat_interleave(2, dim=-1) if self.paired else torch.cat([part, part], dim=-1)

    def extra_repr(self) -> str:
        return ", ".join(f"{len(layer.turns)} exact frequencies" for layer in self.layers.values())


@dataclass(frozen=True, kw_only=True)
class ReplacedModule:
    """One module that was replaced."""

    name: str
    was: str
    position: int
    """The last position of the model's length."""
    error: float
    """Radians by which the old module was off by then, at most."""

    def __str__(self) -> str:
        was = f"{self.was} was off by {self.error:.2g} rad by position {self.position:,}"
        return f"{self.name}: {was}; now exact, no buffers"


@dataclass(frozen=True, kw_only=True, repr=False)
class Patched:
    """What `patch` changed in a model, and the plan it has now."""

    plan: Plan
    changes: tuple[ReplacedModule | ChangedNumbers, ...]
    undo: Callable[[], None]
    """Makes the model what it was."""

    def __str__(self) -> str:
        return "\n".join([*map(str, self.changes), str(self.plan)])

    def __repr__(self) -> str:
        return brief(str(self))


def patch(model: nn.Module, *, length: int | None = None, plan: Plan | None = None) -> Patched:
    """Gives a transformers model exact positions, in place, from the plan its config resolves to.

    length: what positions stay below, for scalings that depend on it (dynamic, longrope); fixed from then on.
    plan: other frequencies and gains for the same layers. They are put into the model's own rotary modules, which
    multiply in float32, so that every architecture of transformers is reached.
    """
    config = getattr(model, "config", None)
    if config is None or not hasattr(config, "to_dict"):
        raise ValueError(f"{type(model).__name__} has no transformers config; pass a model of transformers")
    own = resolve(config.to_dict(), name=type(model).__name__, where="model.config", arithmetic="float32").plan
    if plan is not None:
        new = plan if length is None else plan.for_length(length)
        # A module whose numbers depend on the length is built with those of short texts.
        changed, undo = set_numbers(model, own.for_length(2), new)
        return Patched(plan=new, changes=tuple(changed), undo=undo)
    return _made_exact(model, own, length)


def _made_exact(model: nn.Module, plan: Plan, length: int | None) -> Patched:
    if not plan.resolved:
        if length is None:
            raise ValueError(f"{type(model).__name__}'s scaling depends on the length: patch(model, length=N)")
        plan = plan.for_length(length)
    # A vision part may have rotary modules of its own: those of the text config are meant.
    text = type(model.config.get_text_config())  # type: ignore[union-attr]
    rotary = {name: module for name, module in model.named_modules() if _is_rotary(module)}
    found = {name: module for name, module in rotary.items() if type(getattr(module, "config", None)) is text}
    if not found:
        if any(isinstance(module, ExactRotary) for module in model.modules()):
            raise ValueError(f"{type(model).__name__} is already patched: its positions are exact; nothing was changed")
        raise ValueError(f"{type(model).__name__} has no rotary module that returns cos and sin; nothing was changed")
    reach = length or plan.longest or 2048
    changes, exact = [], {}
    for name, module in found.items():
        exact[name] = _exact(name, module, plan, model)
        error = max(_error(module, exact[name], kind, reach - 1) for kind in exact[name].layers)
        changes.append(ReplacedModule(name=name, was=type(module).__name__, position=reach - 1, error=error))
    for name, module in exact.items():  # only when all of them are known to agree
        model.set_submodule(name, module)

    def undo() -> None:
        for name, module in found.items():
            model.set_submodule(name, module)

    return Patched(plan=plan, changes=tuple(changes), undo=undo)


def _is_rotary(module: nn.Module) -> bool:
    named = type(module).__name__.endswith("RotaryEmbedding")
    return named and {"x", "position_ids"} <= set(inspect.signature(module.forward).parameters)


def _exact(name: str, module: nn.Module, plan: Plan, model: nn.Module) -> ExactRotary:
    by_type = "layer_type" in inspect.signature(module.forward).parameters
    turning = [number for number, layer in enumerate(plan.layers) if layer.turns]
    if not turning:
        raise ValueError(f"{name}: the plan has no layer that rotates; nothing was changed")
    layers: dict[str | None, LayerPlan] = {None: plan.layers[turning[0]]}
    if by_type:
        types: list[str] = model.config.get_text_config().layer_types  # type: ignore[union-attr]
        layers = {types[number]: plan.layers[number] for number in turning}
    elif len({plan.layers[number].turns for number in turning}) > 1:
        raise ValueError(f"{name}: one module serves layers of different frequencies; nothing was changed")
    fresh = _fresh(module)
    worst = math.inf
    for paired in (False, True):
        candidate = ExactRotary(layers, paired=paired)
        worst = min(worst, max(_distance(fresh, candidate, kind, plan.length) for kind in layers))
        if worst <= AGREES:
            return candidate
    raise ValueError(
        f"{name}: below position {NEAR} a new {type(module).__name__} differs from the plan by {worst:.2g}; "
        "nothing was changed. Please report the config"
    )


def _fresh(module: nn.Module) -> nn.Module:
    """The module as its class builds it: the one at hand may have been cast."""
    return type(module)(module.config).float()  # type: ignore[call-arg]


def _call(module: nn.Module, positions: Tensor, kind: str | None) -> tuple[Tensor, Tensor]:
    x = torch.zeros(1, 1, 1, device=positions.device)
    return module(x, positions[None]) if kind is None else module(x, positions[None], kind)


def _distance(fresh: nn.Module, exact: ExactRotary, kind: str | None, length: int | None) -> float:
    # A module that changes with the longest position it sees is asked about the length the plan was resolved for.
    positions = torch.cat([torch.arange(NEAR), torch.tensor([length - 1] if length else [])]).long()
    old, new = ([part[:, :NEAR] for part in _call(module, positions, kind)] for module in (fresh, exact))
    if old[0].shape != new[0].shape:
        return math.inf
    return max(float((a - b).abs().max()) for a, b in zip(old, new, strict=True))


def _error(module: nn.Module, exact: ExactRotary, kind: str | None, position: int) -> float:
    """Radians between the module's angles and the exact ones, at most, over the last positions up to this one."""
    where = torch.arange(max(0, position + 1 - NEAR), position + 1, device=next(iter(module.buffers())).device)
    old, new = _call(module, where, kind), _call(exact, where, kind)
    angles = [torch.atan2(sin.double(), cos.double()) for cos, sin in (old, new)]
    apart = (angles[0] - angles[1]).abs() % (2 * math.pi)
    return float(torch.minimum(apart, 2 * math.pi - apart).max())
