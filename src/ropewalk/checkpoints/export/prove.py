"""Whether a written checkpoint is the one it was made from: tensors, positions and logits, read back by our own reader.

Every tensor, brought back into the source's layout, is the source's bit for bit (rounded, where that was asked for).
Both models run over the same tokens, near position 0 and at the end of the length they are made for, in float32, with
one block of weights in memory at a time, so a model need not fit. Where layout and rounding are the same, logits are
equal bit for bit. Where the layout is another, the terms of each score are added in another order, and the difference
is that of float32 sums. Where weights were rounded, the source is rounded likewise and compared with what was written,
and what the rounding itself does to logits is stated beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ropewalk.checkpoints.errors import plain
from ropewalk.checkpoints.export.permute import relaid
from ropewalk.checkpoints.load.stream import Checkpoint, Rounding, rotation
from ropewalk.plan import LayerPlan, Plan
from ropewalk.positions import Positions

TOKENS = 128
"""In each of the two texts."""
FARTHEST = 2**20
"""Positions past this are not run, however long a model claims to read."""
REORDERED = 1e-4
"""The most that another order of float32 sums may move a logit, as a share of the largest logit (at least 1)."""
ROUNDED = {"float16": 0.02, "bfloat16": 0.15}
"""The most that rounding may move logits, root mean square over that of the logits themselves."""


class NotProven(ValueError):
    """What was written is not what was read; it has been removed."""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What was compared, and how far apart it is."""

    tensors: int
    parameters: int
    dtype: str
    layouts: tuple[str, str]
    """Before and after."""
    frequency_ulps: float
    """The largest difference of a frequency, in units in the last place of float32."""
    lengths: dict[str, int | None]
    tokens: int
    farthest: int
    """The largest position that was run."""
    difference: float
    """The largest difference of a logit; 0: equal bit for bit."""
    rounding: float | None = None
    """What rounding weights did to logits, root mean square over that of the logits; None: nothing was rounded."""
    tokenizer: str | None = None
    """What of it was compared; None: the source has none."""
    metadata: str | None = None
    """What else was carried over, read back and found equal: chat templates, special tokens, licence, ..."""
    left_out: tuple[str, ...] = ()
    """What the source says and the other format has no place for."""
    notes: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        return self.difference == 0

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "exact": self.exact}

    def __str__(self) -> str:
        ulps = "identical" if self.frequency_ulps == 0 else f"within {self.frequency_ulps:.2g} ulp"
        said = ", ".join(f"{name} {length:,}" for name, length in self.lengths.items() if length is not None)
        layout = self.layouts[0] if self.layouts[0] == self.layouts[1] else " -> ".join(self.layouts)
        logits = "equal bit for bit" if self.exact else f"within {self.difference:.2g} (different summation order)"
        lines = [
            f"tensors    {self.tensors:,} equal bit for bit, {self.parameters:,} numbers, {self.dtype}"
            + (f", layout {layout}" if self.layouts[1] != "-" else ""),
            f"positions  {ulps}" + (f"; {said}" if said else ""),
            f"logits     {logits}, {self.tokens} tokens at positions up to {self.farthest:,}",
        ]
        if self.tokenizer is not None:
            lines.append(f"tokenizer  {self.tokenizer}")
        if self.metadata is not None:
            lines.append(f"metadata   {self.metadata}")
        if self.left_out:
            lines.append(f"left out   {', '.join(plain(one, 100) for one in self.left_out)}")
        if self.rounding is not None:
            lines.append(f"rounding   {self.dtype} rounding changes the logits by {self.rounding:.2g} relative")
        return "\n".join([*lines, *(f"note       {note}" for note in self.notes)])


@dataclass(frozen=True, kw_only=True)
class Text:
    """Tokens, and where they stand."""

    tokens: Tensor
    at: Positions


def texts(checkpoint: Checkpoint) -> list[Text]:
    """One text from position 0; one that begins there and goes on at the end of the length the model is made for.

    They are rows of one batch, unless frequencies depend on the length: then each has its own.
    """
    vocabulary = checkpoint.model.config.vocabulary
    plan = checkpoint.resolved.plan
    end = plan.longest or 4096
    tables = [plan.table for plan in checkpoint.model.plans.values() if plan.table is not None]
    end = min(end, FARTHEST, *tables)
    count = min(TOKENS, end)
    tokens = torch.randint(vocabulary, (2, count), generator=torch.Generator().manual_seed(20_231_104))
    index = torch.stack([torch.arange(count), _far(count, end)])
    at = Positions(index, index, torch.zeros_like(index), end)
    if not any(layer.length_dependent for plan in checkpoint.resolved.plans.values() for layer in plan.layers):
        return [Text(tokens=tokens, at=at)]
    rows = [(slice(0, 1), count), (slice(1, 2), end)]
    return [Text(tokens=tokens[row], at=at.rows(row)._replace(limit=limit)) for row, limit in rows]


def _far(count: int, end: int) -> Tensor:
    near = count // 2
    return torch.cat([torch.arange(near), torch.arange(end - (count - near), end)])


def logits(checkpoint: Checkpoint, text: Text, change: Rounding | None = None) -> Tensor:
    """(B, L, vocabulary) in float32, with one block in memory at a time."""
    model = checkpoint.model
    # What lies outside of blocks is there for the whole pass: token table, output map, last norm.
    outside = {ours: checkpoint.parameter(ours, change) for ours in checkpoint.found if ".blocks." not in ours}
    model.load_state_dict(outside, strict=False, assign=True)
    # Blocks come into the same memory one after the other: new memory for each would scatter, and add up.
    room: dict[str, Tensor] = {}
    hooks = [
        hook
        for side in model.config.sides
        for number, block in enumerate(getattr(model, side).blocks)
        for hook in _visiting(checkpoint, block, f"{side}.blocks.{number}.", change, room)
    ]
    source = text.tokens if model.encoder is not None and model.decoder is not None else None
    try:
        with torch.no_grad():
            return model(text.tokens, text.at, source=source, source_at=None if source is None else text.at)
    finally:
        for hook in hooks:
            hook.remove()
        _emptied(model)


def _visiting(
    checkpoint: Checkpoint, block: nn.Module, prefix: str, change: Rounding | None, room: dict[str, Tensor]
) -> list[Any]:
    def enter(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        for name in module.state_dict():
            room[name] = checkpoint.parameter(prefix + name, change, room.get(name))
        module.load_state_dict({name: room[name] for name in module.state_dict()}, assign=True)

    def leave(module: nn.Module, arguments: tuple[Any, ...], output: Tensor) -> None:
        _emptied(module)

    return [block.register_forward_pre_hook(enter), block.register_forward_hook(leave)]


def _emptied(module: nn.Module) -> None:
    empty = {name: torch.empty_like(value, device="meta") for name, value in module.state_dict().items()}
    module.load_state_dict(empty, assign=True)


def compare_tensors(source: Checkpoint, written: Checkpoint, change: Rounding | None = None) -> None:
    """Each tensor bit for bit, with one of each in memory; an error naming the first that differs."""
    names = source.names if written.gguf else (*source.names, *source.rest())
    if missing := set(names) ^ set(written.names if written.gguf else written.weights.names):
        raise NotProven(f"{min(missing)} is in one of the two and not in the other")
    before, after = source.rotated(), written.rotated()
    for name in names:
        one, two = source.weights.read(name), written.weights.read(name)
        if change is not None:
            one = change(name, one)
        if name in after:
            was, now = rotation(before[name].layer), rotation(after[name].layer)
            two = relaid(two, now.layout, was.layout, heads=after[name].heads, rotary_width=now.width)
        if one.shape != two.shape or not torch.equal(one, two.to(one.dtype)):
            raise NotProven(f"{name} read back is not the source's")


def compare_plans(before: Mapping[str, Plan], after: Mapping[str, Plan]) -> tuple[float, tuple[str, ...]]:
    """The largest difference of a frequency in ulps of float32, and what one of the two does not say. Else an error."""
    if before.keys() != after.keys():
        raise NotProven(f"the plan has sides {', '.join(before)}, read back it has {', '.join(after)}")
    worst, notes = 0.0, []
    for side, plan in before.items():
        other = after[side]
        for name in ("trained", "extended", "table"):
            one, two = getattr(plan, name), getattr(other, name)
            if one is not None and two is not None and one != two:
                raise NotProven(f"the {name} length is {one:,}, read back it is {two:,}")
            if (one is None) != (two is None):
                said = f"{one or two:,} in the {'source' if two is None else 'written file'}"
                notes.append(f"the {name} length, {said}, is not stated in the other")
        if len(plan.layers) != len(other.layers):
            raise NotProven(f"the plan has {len(plan.layers)} layers, read back it has {len(other.layers)}")
        lengths = {limit for limit in (TOKENS, plan.trained or plan.stated, plan.extended) if limit is not None}
        for limit in sorted(lengths):
            pairs = dict.fromkeys(zip(plan.for_length(limit).layers, other.for_length(limit).layers, strict=True))
            worst = max(worst, *(_compare_layers(one, two) for one, two in pairs))
    return worst, tuple(dict.fromkeys(notes))


def _compare_layers(one: LayerPlan, two: LayerPlan) -> float:
    for field in ("kind", "settings", "rotary_width", "head_width", "window"):
        if getattr(one, field) != getattr(two, field):
            raise NotProven(f"{field} is {getattr(one, field)}, read back it is {getattr(two, field)}")
    for field in ("rotary_gain", "logit_gain"):
        if _ulps(getattr(one, field), getattr(two, field)) > 1:
            raise NotProven(f"{field} is {getattr(one, field)!r}, read back it is {getattr(two, field)!r}")
    if len(one.frequencies) != len(two.frequencies):
        raise NotProven(f"{len(one.frequencies)} frequencies, read back {len(two.frequencies)}")
    if one.turns == two.turns:
        return 0.0
    worst = max(_ulps(a, b) for a, b in zip(one.frequencies, two.frequencies, strict=True))
    if worst > 1:
        raise NotProven(f"a frequency is {worst:.3g} ulp of float32 from the source's; at most 1 is allowed")
    return worst


def _ulps(one: float, two: float) -> float:
    return abs(one - two) / float(np.spacing(np.float32(max(abs(one), abs(two), 1e-30))))


def compare_logits(before: Tensor, after: Tensor, *, reordered: bool) -> float:
    """The largest difference; an error where it is more than the order of sums explains."""
    if torch.equal(before, after):
        return 0.0
    worst = float((before - after).abs().max())
    bound = REORDERED * max(1.0, float(before.abs().max())) if reordered else 0.0
    if not worst <= bound:
        why = f"{bound:.2g} is what another order of sums may do" if reordered else "they must be equal bit for bit"
        raise NotProven(f"logits read back differ by {worst:.3g}; {why}")
    return worst


def compare_rounding(before: Tensor, after: Tensor, dtype: str) -> float:
    """How far rounded weights move logits: root mean square of the difference over that of the logits."""
    size = float(before.double().square().mean().sqrt())
    moved = float((before.double() - after.double()).square().mean().sqrt()) / max(size, 1e-30)
    if not moved <= ROUNDED.get(dtype, math.inf):
        raise NotProven(
            f"rounding to {dtype} changes the logits by {moved:.2g} relative; export float32, or bfloat16 for its range"
        )
    return moved
