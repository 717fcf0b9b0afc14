"""An answer depends on the positions asked for and on nothing else: C08 to C11, C21, C27."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ropewalk.conformance import diagnose, oracles
from ropewalk.conformance.checks import check
from ropewalk.conformance.checks.casts import size_of
from ropewalk.conformance.findings import Findings, NotApplicable
from ropewalk.conformance.places import below, start_near
from ropewalk.conformance.surround import VOCABULARY
from ropewalk.conformance.target import Target

ANY = ("angles|rotation|bias|forward",)
MODEL = 1e-5
"""Of the logits' size, where a whole model answers."""


def at(target: Target, built: Any, positions: Tensor) -> Tensor:
    """(B, L) -> (B, L, ...): the answer for these positions alone."""
    if target.has("angles"):
        return torch.cat(target.cos_sin(built, positions), dim=-1)
    if target.has("rotation"):
        ramp = torch.linspace(-1, 1, target.spec.head_width, dtype=torch.float32)
        x = ramp.expand(*positions.shape, target.spec.heads, -1).movedim(2, 1)
        return target.rotate(built, x, positions).movedim(1, 2)
    if target.has("bias"):
        return torch.stack([target.bias(built, row, row).movedim(0, -1) for row in positions])
    ids = positions % (target.spec.vocabulary or VOCABULARY)
    return target.forward(built, ids, positions)[0]


def long_positions(target: Target) -> Tensor:
    """A longer call than any other, farther out, small enough for a bias of all pairs."""
    spec = target.spec
    length = max(2**18 // (spec.heads * spec.head_width), 64) if target.has("angles|rotation") else 200
    length = length if spec.longest is None else min(length, spec.longest // 2)
    start = start_near(spec, 3_000, length)
    return torch.arange(start, start + length)[None]


def arange(positions: Tensor) -> str:
    """(1, L) positions in a row, as one would type them."""
    return f"torch.arange({int(positions[0, 0])}, {int(positions[0, -1]) + 1})[None]"


def typed(target: Target, positions: Tensor, fresh: bool = False) -> str:
    built = "target.build()" if fresh else "built"
    return target.line(arange(positions), built=built, length=positions.shape[1])


@check("C08", "results do not depend on earlier calls", bound=2.4e-7, needs=ANY, sides=ANY[0])
def history(target: Target, found: Findings) -> None:
    spec = target.spec
    early = torch.arange(16)[None] if (spec.longest or 17) > 16 else torch.arange(4)[None]
    later = early + start_near(spec, 100, 16)
    want = {name: at(target, target.build(), where) for name, where in (("early", early), ("later", later))}
    built = target.build()
    at(target, built, early)
    size = size_of(target, want["later"])
    # A whole model may add in another order; its logits are told apart by more than their last bits.
    bound = found.bound if target.has("angles|rotation|bias") else MODEL * float(want["later"].abs().max())
    again = {
        "the same length, elsewhere": (
            later,
            "later",
            "a table or an offset is kept under a key that leaves out where",
        ),
        "after a long call": (early, "early", "a longer call before has changed what short ones get"),
        "later, after a long call": (later, "later", "a longer call before has changed what short ones get"),
    }
    for name, (where, key, why) in again.items():
        if "long" in name:
            at(target, built, long_positions(target))
        got = at(target, built, where)
        result = found.compare(name, got, want[key], bound, where.flatten(), scale=size, why=why)
        before = long_positions(target) if "long" in name else early
        result.reproduce = f"{typed(target, before)}; print({typed(target, where)}, {typed(target, where, True)})"


@check("C09", "results do not depend on other sequences in the batch", bound=2.4e-7, needs=ANY, sides=ANY[0])
def mates(target: Target, found: Findings) -> None:
    spec = target.spec
    if not target.has("angles|rotation|forward"):
        raise NotApplicable("its bias is asked for one row at a time")
    # Rows of a matrix product may be summed in another order when there are more of them.
    bound = found.bound if target.has("angles|rotation") else MODEL
    # One token of each row is a step of decoding, for which many kernels have a path of their own.
    for L, said in ((8, ""), (1, ", one token each")):
        mine = torch.arange(L)[None] + start_near(spec, 20, 8)
        far = torch.arange(L)[None] + start_near(spec, (spec.trained or 5_000) * 2, 9)
        why = "another row of the batch, farther out, changes this one"
        want = at(target, target.build(), mine)
        size = size_of(target, want)
        for name, rows in (("first of two", [mine, far]), ("second of two", [far, mine])):
            got = at(target, target.build(), torch.cat(rows))
            row = 0 if rows[0] is mine else 1
            result = found.compare(
                f"{name}{said}", got[row : row + 1], want, bound, mine.flatten(), scale=size, why=why
            )
            both = f"torch.cat([{arange(rows[0])}, {arange(rows[1])}])"
            alone = target.line(arange(mine), built="target.build()", length=L)
            result.reproduce = (
                f"print({target.line(both, batch=2, length=L)}, {alone})   # row {row} of the first is the second"
            )


@check("C10", "positions of shape (L), (1, L), (B, L) agree", bound=2.4e-7, needs=("rotation",))
def shapes(target: Target, found: Findings) -> None:
    spec = target.spec
    B, L = 3, 6
    starts = [start_near(spec, start, L) for start in (5, 300, 131_000)]
    x = found.normal(B, spec.heads, L, spec.head_width)
    rows = torch.stack([torch.arange(start, start + L) for start in starts])
    each = torch.cat([target.rotate(target.build(), x[b : b + 1], rows[b : b + 1]) for b in range(B)])
    # Of xpos vectors grow: a feature has the rounding of the longest.
    size = torch.maximum(x.abs().amax() * oracles.gains(spec)[0], each.abs().amax())
    why = "rows of (B, L) positions are mixed up"
    got = target.rotate(target.build(), x, rows)
    found.compare("a row of positions for each row", got, each, found.bound, scale=size, why=why)
    alone = [target.rotate(target.build(), x[b : b + 1, :, :1], rows[b : b + 1, :1]) for b in range(B)]
    got = target.rotate(target.build(), x[:, :, :1], rows[:, :1])
    found.compare("one token of each row", got, torch.cat(alone), found.bound, scale=size, why=why)
    same = rows[:1].expand(B, L)
    want = target.rotate(target.build(), x, same)
    # On several axes (L, A) and (B, L) look alike, and no one is asked to tell them apart.
    for name, given in (("(1, L)", rows[:1]), ("(L)", rows[0]))[: 2 if spec.axes is None else 1]:
        try:
            got = target.rotate(target.build(), x, given)
        except Exception as error:
            found.note(f"{name} is refused: {type(error).__name__}")
            continue
        if got.shape != want.shape:
            found.require(name, False, f"positions of shape {name} give {tuple(got.shape)}, not {tuple(want.shape)}")
            continue
        found.compare(name, got, want, found.bound, scale=size, why=f"positions of shape {name} mean something else")


@check(
    "C11",
    "int32 and int64 positions agree",
    bound=2.4e-7,
    needs=("angles|rotation|bias",),
    sides="angles|rotation|bias",
)
def integers(target: Target, found: Findings) -> None:
    positions = torch.tensor([below(target.spec, [0, 1, 257, 131_071, 2**24 + 1, 2**30 + 1, 2**31 - 1])])
    far = int(positions[0, -1])
    want = at(target, target.build(), positions)
    try:
        got = at(target, target.build(), positions.int())
    except Exception as error:
        raise NotApplicable(f"int32 positions are refused: {type(error).__name__}") from None
    found.compare(
        "int32 against int64",
        got,
        want,
        found.bound,
        positions.flatten(),
        scale=size_of(target, want),
        why="a product or a difference of int32 positions wraps around",
        reproduce="print({}, {})".format(*(target.line(f"torch.tensor([[{far}]]){cast}") for cast in (".int()", ""))),
    )


@check("C21", "sharded or reordered sequences match the whole", bound=(2.4e-7, 2e-5), needs=("rotation|bias|attend",))
def shards(target: Target, found: Findings) -> None:
    spec, L = target.spec, 16
    start = start_near(spec, 2_000, L)
    whole = torch.arange(start, start + L)
    mixed = torch.randperm(L, generator=found.generator())
    zigzag = [torch.tensor([0, 1, 2, 3, 12, 13, 14, 15]), torch.arange(4, 12)]
    why = "a token's place in the tensor is taken for its position"
    if target.has("rotation"):
        x = found.normal(1, spec.heads, L, spec.head_width)
        want = target.rotate(target.build(), x, whole[None])
        size = x.abs().amax() * oracles.gains(spec)[0]
        for name, part in (("shuffled", mixed), ("rank 0 of 2", zigzag[0]), ("rank 1 of 2", zigzag[1])):
            got = target.rotate(target.build(), x[:, :, part], whole[part][None])
            found.compare(
                f"rotate, {name}", got, want[:, :, part], found.bound, whole[part], dim=2, scale=size, why=why
            )
    if target.has("bias"):
        want = target.bias(target.build(), whole, whole)
        size = want.double().abs().amax().clamp(min=1.0)
        for name, part in (("shuffled", mixed), ("rank 0 of 2", zigzag[0]), ("rank 1 of 2", zigzag[1])):
            got = target.bias(target.build(), whole[part], whole[mixed])
            pick = want[:, part][..., mixed]
            if spec.kind == "alibi":  # a row's constant is not seen by a softmax
                own = [int((mixed == p).nonzero()) for p in part]
                anchor = torch.arange(len(part)), torch.tensor(own)
                got, pick = (each - each[:, anchor[0], anchor[1]][..., None] for each in (got, pick))
                seen = whole[mixed][None] <= whole[part][:, None]
                got, pick = got * seen, pick * seen
            found.compare(f"bias, {name}", got, pick, found.bound, whole[part], scale=size, why=why)
    if target.has("attend"):
        q, k, v = (found.normal(1, spec.heads, L, spec.head_width, more=more) for more in range(3))
        want = target.attend(target.build(), q, k, v, whole[None], whole[None])
        # As many queries as keys: where the triangle of a mask is anchored is C19's matter.
        order = torch.cat(zigzag)
        places = whole[order][None], whole[mixed][None]
        got = target.attend(target.build(), q[:, :, order], k[:, :, mixed], v[:, :, mixed], *places)
        found.compare("attend, in pieces", got, want[:, :, order], found.bounds[-1], whole[order], dim=2, why=why)


@check("C27", "past the maximum length: an error or the right answer", bound=1e-3, needs=("angles|bias|forward",))
def past_the_end(target: Target, found: Findings) -> None:
    spec = target.spec
    if spec.longest is None:
        raise NotApplicable("it declares no longest position")
    if spec.length_dependent:
        raise NotApplicable("its longest position is what the scaling is resolved for, and no end")
    beyond = torch.tensor([[spec.longest - 1, spec.longest, spec.longest + 1, spec.longest + 7]])
    # A table kept for later calls must be asked twice.
    built = target.build()
    at(target, built, torch.arange(2)[None])
    try:
        got = at(target, built, beyond)
    except NotApplicable:  # an end that is the adapter's own
        raise
    except Exception as error:
        text = str(error)
        found.note(f"refused: {type(error).__name__}")
        found.require("an error", bool(text.strip()), "the error says nothing")
        return
    why = f"position {spec.longest:,} is past the end, and is answered with something else's numbers"
    if spec.kind in ("rope", "sinusoidal") and target.has("angles"):
        cos, sin = got.chunk(2, dim=-1)
        omegas, _ = diagnose.own(target, target.build())  # whether they are right is N07's matter
        errors = oracles.own_angle_errors(cos, sin, beyond, omegas)
        # Close enough to tell a right angle from a clamped or a garbled one, at float32's own precision out there.
        bound = max(found.bound, 1e-7 * spec.longest)
        shown = target.line(f"torch.tensor([[{spec.longest}]])")
        found.measure("angles past the end", errors, bound, beyond, dim=1, why=why, reproduce=shown)
    elif spec.kind == "alibi" and target.has("bias"):
        # Its own slopes, read off the first two positions: C23 looks at those.
        near = target.bias(target.build(), torch.tensor([1, 1]), torch.tensor([0, 1])).double()[:, 0]
        away = (beyond[0][:, None] - beyond[0][None]).abs().double()
        want = ((near[:, 0] - near[:, 1])[:, None, None] * away).movedim(0, -1)[None]
        own = got.diagonal(dim1=1, dim2=2).movedim(-1, 1)[:, :, None]
        seen = (beyond[0][None] <= beyond[0][:, None])[None, ..., None]
        found.compare("bias past the end", (got - own) * seen, want * seen, found.bound, beyond, why=why)
    elif spec.kind == "t5" and target.has("bias"):
        near = at(target, target.build(), beyond - beyond.min())
        found.compare("bias past the end", got, near, found.bound, beyond, why=why)
    else:
        not_another(target, found, beyond, why)


def not_another(target: Target, found: Findings, beyond: Tensor, why: str) -> None:
    """Without a truth: at least not the very answer of a position that is in range, as a clamped index gives."""
    last = int(beyond[0, 0])

    def one(position: int) -> Tensor:
        where = torch.tensor([[position]])
        if target.has("rotation|bias"):
            return at(target, target.build(), where)
        return target.forward(target.build(), torch.ones_like(where), where)[0]

    if target.has("bias") and not target.has("rotation"):
        raise NotApplicable("a bias of one position with itself says nothing of where it is")
    inside = [one(position) for position in (0, 1, 2, 7, 8, last - 1, last)]
    if all(torch.equal(inside[0], each) for each in inside):
        raise NotApplicable("its answers do not depend on the position")
    for position in beyond[0, 1:].tolist():
        got = one(position)
        found.require(f"position {position:,}", not any(torch.equal(got, each) for each in inside), why)
