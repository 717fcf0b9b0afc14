"""Other frequencies and gains in a transformers model: its rotary modules stay, with the numbers of a plan in them.

Every rotary module of transformers 5 computes cos and sin from a buffer `inv_freq` and a factor `attention_scaling`, or
from one of each for every layer type, and knows by itself which form its model wants: both halves, one half, complex
numbers. So the numbers are put in and the modules kept. Dynamic and longrope modules recompute their buffer in every
pass; they are told that they are of the default type. A gain on scores (DeepSeek's mscale_all_dim) stands in the
attention modules, as `scaling`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from ropewalk.checkpoints.engines import ratio
from ropewalk.plan import LayerPlan, Plan

AGREES = 1e-5
"""Largest relative difference between a module's numbers and those its config should have given it."""


class ChangedNumbers(NamedTuple):
    """The numbers of one rotary module, or of one layer type in it, that were replaced."""

    name: str
    apart: float
    """The largest factor between old and new frequencies."""
    rotary_gain: float
    logit_gain: float

    def __str__(self) -> str:
        gains = f"gain {self.rotary_gain:.6g} on cos and sin, {self.logit_gain:.6g} on scores"
        return f"{self.name}: frequencies up to {self.apart:.3g}x apart from before, {gains}"


class _Table(NamedTuple):
    """One set of numbers in a module, and the layers that use it."""

    name: str
    module: nn.Module
    prefix: str
    layers: tuple[int, ...]


def set_numbers(model: nn.Module, own: Plan, plan: Plan) -> tuple[list[ChangedNumbers], Callable[[], None]]:
    """Puts the numbers of `plan` into a model whose config resolves to `own`; returns what changed, and what undoes it.

    Nothing is changed where that cannot be done whole.
    """
    _comparable(own, plan)
    tables = list(_tables(model, own))
    covered = {number for table in tables for number in table.layers}
    missing = [number for number, layer in enumerate(own.layers) if layer.turns and number not in covered]
    if missing:
        raise ValueError(f"{type(model).__name__} has no rotary module with inv_freq for layer {missing[0]}")
    attentions = _attentions(model)
    gains = {number: plan.layers[number].logit_gain / own.layers[number].logit_gain for number in sorted(covered)}
    for number, gain in gains.items():
        if gain != 1 and number not in attentions:
            raise ValueError(
                f"layer {number} has no attention module with `scaling` to put a gain of {gain:g} on scores"
            )
    changes, undo = [], []
    for table in tables:
        was, new = own.layers[table.layers[0]], plan.layers[table.layers[0]]
        undo.append(_put(table, new))
        label = f"{table.name} ({table.prefix.rstrip('_')})" if table.prefix else table.name
        changes.append(ChangedNumbers(label, ratio(was.frequencies, new.frequencies), new.rotary_gain, new.logit_gain))
    for number, gain in gains.items():
        if gain != 1:
            undo.append(_restorer(attentions[number], scaling=attentions[number].scaling))
            attentions[number].scaling *= gain

    def undone() -> None:
        for step in undo:
            step()

    return changes, undone


def _comparable(own: Plan, plan: Plan) -> None:
    if len(own.layers) != len(plan.layers):
        raise ValueError(f"the plan has {len(plan.layers)} layers and the model {len(own.layers)}; give a plan of it")
    for number, (was, new) in enumerate(zip(own.layers, plan.layers, strict=True)):
        for field in ("kind", "rotary_width", "window"):
            if getattr(was, field) != getattr(new, field):
                raise ValueError(
                    f"layer {number}: the plan has {field} {getattr(new, field)} and the model {getattr(was, field)}; "
                    "only frequencies and gains can be changed"
                )
        if was.turns and not new.turns:
            raise ValueError(f"layer {number}: the plan's scaling depends on the length; call plan.for_length(N) first")


def _tables(model: nn.Module, own: Plan) -> Iterator[_Table]:
    """A vision or audio part may have rotary modules of its own: those of the text config are meant."""
    config: Any = model.config.get_text_config()  # type: ignore[union-attr]
    turning = [number for number, layer in enumerate(own.layers) if layer.turns]
    for name, module in model.named_modules():
        if type(getattr(module, "config", None)) is not type(config):
            continue
        for key, _ in module.named_buffers(recurse=False):
            prefix = key.removesuffix("inv_freq")
            if key == "inv_freq":
                layers = turning
            else:  # one for each layer type; original_inv_freq and long_inv_freq are of none
                types = dict(enumerate(getattr(config, "layer_types", None) or ()))
                layers = [number for number in turning if number in types and key == f"{types[number]}_inv_freq"]
            if layers:
                table = _Table(name, module, prefix, tuple(layers))
                _as_planned(table, own)
                yield table


def _as_planned(table: _Table, own: Plan) -> None:
    """The numbers at hand must be those of the config: else the plan is not this model's, or it was changed before."""
    if len({own.layers[number].turns for number in table.layers}) > 1:
        raise ValueError(f"{table.name}: one module serves layers of different frequencies; nothing was changed")
    layer = own.layers[table.layers[0]]
    # A module that recomputes inv_freq for long texts keeps what it was built with beside it.
    now = getattr(table.module, f"{table.prefix}inv_freq")
    held = getattr(table.module, f"{table.prefix}original_inv_freq", now).double()
    wanted = torch.tensor(layer.frequencies, dtype=torch.float64, device=held.device)
    gain = float(getattr(table.module, f"{table.prefix}attention_scaling"))
    if held.shape != wanted.shape or not torch.allclose(held, wanted, rtol=AGREES, atol=0):
        raise ValueError(
            f"{table.name}: its frequencies are not those of its config. If it was patched before, call undo() on the "
            "result of that; if it was cast, load it with from_pretrained(dtype=...)"
        )
    if abs(gain - layer.rotary_gain) > AGREES:
        raise ValueError(f"{table.name}: its gain is {gain:g}, and that of its config {layer.rotary_gain:g}")


def _put(table: _Table, layer: LayerPlan) -> Callable[[], None]:
    module, prefix = table.module, table.prefix
    names = [f"{prefix}{name}" for name in ("inv_freq", "original_inv_freq", "long_inv_freq")]
    held = {name: getattr(module, name) for name in names if hasattr(module, name)}
    undo = _restorer(
        module,
        **held,
        **{f"{prefix}attention_scaling": getattr(module, f"{prefix}attention_scaling")},
        **({"rope_type": module.rope_type} if hasattr(module, "rope_type") else {}),
    )
    new = torch.tensor(layer.frequencies, dtype=torch.float32, device=held[names[0]].device)
    for name in names[:2]:
        if name in held:
            module.register_buffer(name, new.clone(), persistent=False)
    if names[2] in held:
        delattr(module, names[2])
    setattr(module, f"{prefix}attention_scaling", layer.rotary_gain)
    if hasattr(module, "rope_type"):
        kinds: Any = module.rope_type
        module.rope_type = {**kinds, prefix.rstrip("_"): "default"} if isinstance(kinds, dict) else "default"  # type: ignore[assignment]
    return undo


def _restorer(module: nn.Module, **values: Any) -> Callable[[], None]:
    def restore() -> None:
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                module.register_buffer(name, value, persistent=False)
            else:
                setattr(module, name, value)

    return restore


def _attentions(model: nn.Module) -> dict[int, Any]:
    """Attention modules by the number of their layer."""
    modules: list[Any] = [module for module in model.modules() if isinstance(getattr(module, "scaling", None), float)]
    return {module.layer_idx: module for module in modules if isinstance(getattr(module, "layer_idx", None), int)}
