"""What a checkpoint holds beyond the tensors of the model: each is checked against what the model has, or an error.

Files repeat tied weights, and old ones hold what is computed now: frequencies of rotations, tables of sines. They are
what the weights were trained with, so where they are not ours, one of the two is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import ModuleType

import torch
from torch import Tensor

from ropewalk import positions
from ropewalk.checkpoints.errors import BadInput, few
from ropewalk.checkpoints.files.weights import Weights
from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.models import Transformer
from ropewalk.scaling import Dynamic, Linear, ladder

FREQUENCIES = "rotary_emb.inv_freq"
MOST_ROWS = 1 << 20


def check_left_over(
    left: Iterable[str],
    model: Transformer,
    weights: Weights,
    family: ModuleType,
    copies: Mapping[str, str],
    resolved: Resolved,
) -> None:
    """Every one of these names. copies: tensors that must equal another; sinusoids and spares are the family's."""
    left = sorted(left)
    sines = getattr(family, "SINUSOIDS", {})
    for name in left:
        if name in copies and copies[name] in weights.names:
            if not torch.equal(weights.read(name), weights.read(copies[name])):
                problem = f"differs from {copies[name]}, to which the config ties it"
                raise BadInput(resolved.name, name, problem, "one is wrong")
        elif name.endswith(FREQUENCIES):
            _check_frequencies(name, weights, resolved)
        elif (side := next((side for end, side in sines.items() if name.endswith(end)), None)) is not None:
            _check_sinusoids(name, weights, model, side, resolved)
        elif not any(re.fullmatch(pattern, name) for pattern in family.SPARE):
            unknown = [one for one in left if one not in copies and not one.endswith((FREQUENCIES, *sines))]
            unknown = [one for one in unknown if not any(re.fullmatch(spare, one) for spare in family.SPARE)]
            raise BadInput(resolved.name, few(unknown), "belongs to no part of the model", "is model_type right?")


def _check_frequencies(name: str, weights: Weights, resolved: Resolved) -> None:
    """Of one layer, or of all that rotate."""
    stored, layers = weights.read(name), resolved.plan.layers
    number = re.search(r"layers\.(\d+)\.", name)
    if number is not None and int(number.group(1)) >= len(layers):
        problem = f"is of layer {int(number.group(1)):,}, and the config has {len(layers):,}"
        raise BadInput(resolved.name, name, problem, "one of them is wrong")
    named = layers if number is None else [layers[int(number.group(1))]]
    readings: list[tuple[float, ...]] = []
    for layer in (
        layer.for_length(resolved.plan.trained or resolved.plan.stated or 1) for layer in dict.fromkeys(named)
    ):
        if layer.kind == "rope" and layer.base is not None and layer.rotary_width is not None:
            readings.append(layer.frequencies)
            if isinstance(layer.scaling, Linear | Dynamic):
                # Code of that time scaled positions, or the base at longer texts, and stored the plain ladder.
                readings.append(tuple(map(float, ladder(layer.base, layer.rotary_width))))
    if not any(_near(stored, reading) for reading in readings):
        problem = (
            "holds other frequencies than the config gives"
            if readings
            else "holds frequencies of a rotation, and no layer rotates"
        )
        raise BadInput(resolved.name, name, problem, "one of them is wrong")


def _near(stored: Tensor, own: tuple[float, ...]) -> bool:
    want = torch.tensor(own, dtype=torch.float64)
    if stored.shape != want.shape or not stored.is_floating_point():
        return False
    kind = torch.finfo(stored.dtype)
    # Four roundings, and the grid of numbers too small to be normal ones.
    return bool(((stored.double() - want).abs() <= 4 * kind.eps * want + kind.tiny * kind.eps).all())


def _check_sinusoids(name: str, weights: Weights, model: Transformer, side: str, resolved: Resolved) -> None:
    shape = weights.shape(name)
    if len(shape) != 2 or shape[1] != model.config.width or not 0 < shape[0] <= MOST_ROWS:
        problem = f"has shape {shape}, and a table of positions has width {model.config.width}"
        raise BadInput(resolved.name, name, problem, "one of them is wrong")
    stored = weights.read(name)
    stack = model.encoder if side == "encoder" else model.decoder
    assert stack is not None
    own = stack.kinds[0](positions.plain(shape[0]))[0]
    if not stored.is_floating_point() or float((stored.float() - own).abs().max()) > 4 * torch.finfo(stored.dtype).eps:
        raise BadInput(resolved.name, name, "is not the table of sines that the model computes", "one of them is wrong")
