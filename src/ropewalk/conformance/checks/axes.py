"""Positions on several axes: N12, C36."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ropewalk.conformance import diagnose, oracles
from ropewalk.conformance.checks import check
from ropewalk.conformance.checks.schedules import decodes, ids_for, same
from ropewalk.conformance.findings import Findings, NotApplicable
from ropewalk.conformance.places import SINGLE, below
from ropewalk.conformance.surround import Pass
from ropewalk.conformance.target import Spec, Target


@check(
    "N12",
    "on several axes each pair turns by its own",
    bound=1e-6,
    unit="rad",
    needs=("angles",),
    kinds=("rope",),
    sides="angles",
    declares="sections",
)
def own_axis(target: Target, found: Findings) -> None:
    """Its own frequencies, read where all axes are the same: N07 looks at those."""
    spec, built = target.spec, target.build()
    axes = spec.axes or 1
    omegas, _ = diagnose.own(target, built)
    by_pair = torch.tensor(oracles.axis_of(spec))
    grids = {
        "a grid": grid(spec)[None],
        # As many rows and tokens as axes, so that no dimension can be taken for another without being seen.
        "far apart": scattered(spec, found, axes, axes),
        "one token of each row": scattered(spec, found, axes + 1, 1, more=1),
    }
    for name, positions in grids.items():
        cos, sin = target.cos_sin(built, positions)
        asked = positions[..., by_pair]
        errors = oracles.own_angle_errors(cos, sin, asked, omegas)
        single = SINGLE * asked.double() * diagnose.as_tensor(omegas).abs()
        result = found.measure(name, errors, found.bound, asked, float32=single)
        if not result.holds:
            result.why = cause(target, built, omegas, by_pair)


def grid(spec: Spec) -> Tensor:
    """(L, A): text, the cells of a grid, and text that continues past its largest index."""
    sides = [1] * max(len(spec.sections or ()) - 2, 0) + [3, 5][-len(spec.sections or ()) :]
    cells = torch.cartesian_prod(*(torch.arange(side) for side in sides)).view(-1, len(sides))
    before, after = torch.arange(4), torch.arange(2) + 4 + max(sides)
    return torch.cat([before[:, None].expand(-1, len(sides)), cells + 4, after[:, None].expand(-1, len(sides))])


def scattered(spec: Spec, found: Findings, rows: int, length: int, more: int = 0) -> Tensor:
    """(B, L, A) with no two numbers alike."""
    generator = found.generator(more)
    count = rows * length * (spec.axes or 1)
    step = max(below(spec, [2**24, 131_071, 4_095, 511, 63])[0] // count, 1)
    each = torch.arange(count) * step + torch.randint(step, (count,), generator=generator)
    return each[torch.randperm(count, generator=generator)].view(rows, length, -1)


def cause(target: Target, built: Any, omegas: oracles.Truth, by_pair: Tensor) -> str:
    """Which axis each pair follows, found by moving one axis at a time."""
    axes = target.spec.axes or 1
    steps = torch.eye(axes, dtype=torch.int64)[:, None]  # (A, 1, A): one row for each axis
    cos, sin = target.cos_sin(built, steps)
    moved = torch.atan2(sin.double(), cos.double())[:, 0]  # (A, R/2)
    want = diagnose.as_tensor(omegas)
    follows = (moved - want).abs() < (moved.abs() + want) / 4
    idle = [axis for axis in range(axes) if bool((by_pair == axis).any()) and not bool(follows[axis].any())]
    if idle:
        return f"axis {idle[0]} of {axes} turns nothing: it is not read"
    wrong = [pair for pair in range(len(by_pair)) if not bool(follows[by_pair[pair], pair])]
    if not wrong:
        return "each pair follows its axis at 1, and not in a batch or far away"
    pair = wrong[0]
    other = [axis for axis in range(axes) if bool(follows[axis, pair])]
    said = f"axis {other[0]}" if other else "no axis alone"
    arrangement = f"sections {target.spec.sections}, {target.spec.arrangement}"
    return f"pair {pair} turns by {said}, the spec says axis {int(by_pair[pair])} ({arrangement})"


@check(
    "C36",
    "after a grid, decoding continues past its largest index",
    bound=1e-4,
    unit="of the logits' size",
    needs=("forward",),
    kinds=("rope",),
    declares="sections",
)
def after_a_grid(target: Target, found: Findings) -> None:
    """Against its own decoding with positions given: what its angles are is N12's matter."""
    spec = target.spec
    whole = grid(spec)
    if (spec.axes or 1) < 2 or not below(spec, [len(whole) + 4]):
        raise NotApplicable(f"a grid needs two axes and {len(whole) + 4} positions")

    def view() -> Pass:
        return Pass(target, target.build(), vocabulary=spec.vocabulary or 64)

    model = view()
    ids = ids_for(model, found, len(whole) + 3)
    if not decodes(view, ids[:, :9], None, found):
        return
    why = "the next position is taken from the number of tokens, or from one axis, and not from the largest index"
    for before, places in (("a grid", whole[:-2]), ("text after a grid", whole)):
        after = torch.arange(3)[None] + int(places.max()) + 1
        for name, cuts in (("decoding", [0, 1, 2, 3]), ("a chunk", [0, 3])):
            got, want = (continued(view(), ids, places, after, cuts, given) for given in (False, True))
            same(found, f"{name} after {before}", got, want, after, why, model)


def continued(model: Pass, ids: Tensor, places: Tensor, after: Tensor, cuts: list[int], given: bool) -> Tensor:
    """The logits of three tokens after a text with a grid in it, their positions given or left to the model."""
    start, pieces = len(places), []
    _, cache = model(ids[:, :start], places[None])
    for first, last in pairwise(cuts):
        where = after[:, first:last] if given else None
        logits, cache = model(ids[:, start + first : start + last], where, None, cache)
        pieces.append(logits)
    return torch.cat(pieces, 1)
