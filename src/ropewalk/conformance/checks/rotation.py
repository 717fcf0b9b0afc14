"""Which features turn, and with which, also of keys that are moved and of a second rotation: C01, C02, C35, C40."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.conformance import diagnose, oracles
from ropewalk.conformance.checks import check
from ropewalk.conformance.checks.scores import norm_keeping, turned
from ropewalk.conformance.findings import Findings, NotApplicable
from ropewalk.conformance.places import SINGLE, below, start_near
from ropewalk.conformance.target import Target, pair_features

SEEN = 1e-3
"""A sine that tells which way a pair turns, whatever its angle exactly is."""


@check("C01", "layout matches the spec", bound=1e-4, unit="of the length", needs=("rotation",), kinds=("rope",))
def layout(target: Target, found: Findings) -> None:
    """By which features mix at position 1, and which way: not by how much, which is N07's and N08's matter."""
    spec, built = target.spec, target.build()
    K, H, R = spec.head_width, spec.heads, spec.rotary
    first, second = pair_features(spec.layout, R)
    x = torch.eye(K)[:, None, None].expand(K, H, 1, K).contiguous()
    out = target.rotate(built, x, torch.ones(K, 1, dtype=torch.int64))[:, 0, 0].double()  # (feature in, feature out)
    foreign = out[:R].clone()
    foreign[torch.arange(R), torch.arange(R)] = 0
    foreign[first, second] = 0
    foreign[second, first] = 0
    result = found.compare(
        "what a feature gives to others than its partner",
        foreign,
        torch.zeros_like(foreign),
        found.bound,
        scale=out[:R].norm(dim=-1, keepdim=True).clamp(min=1e-30),
    )
    name, unit = "rotate" if target.has("rotate") else "rotate_query", f"torch.eye({K})[:1]"
    result.reproduce = f"target.{name}(built, {unit}.expand(1, {H}, 1, -1), torch.tensor([[1]]))"
    if not result.holds:
        giver = int(foreign.abs().amax(-1).argmax())
        partner = second[first == giver] if giver in first else first[second == giver]
        result.why = f"feature {giver} turns with {int(foreign[giver].abs().argmax())}, not with {int(partner)}"
        flipped = "pairs" if spec.layout == "half" else "half"
        a, b = pair_features(flipped, R)
        if (
            R > 2
            and bool((out[a, b].abs() > SEEN)[: R // 4].any())
            and not bool((out[first, second].abs() > SEEN)[1:].any())
        ):
            result.why += f": the layout is {flipped}, the spec says {spec.layout}"
    sines = torch.tensor([float(omega) for omega in oracles.frequencies(spec)]).sin()
    turning = sines > SEEN
    right = (out[first, second] > 0) & (out[second, first] < 0) if result.holds else torch.ones_like(turning)
    found.require(
        "(a, b) -> (a cos - b sin, b cos + a sin)",
        bool(right[turning].all()),
        "it turns the other way, or some of what should turn does not",
        result.reproduce,
    )


@check(
    "C02",
    "features that do not turn are left untouched",
    bound=0.0,
    needs=("rotation",),
    kinds=("rope",),
    sides="rotation",
)
def partial(target: Target, found: Findings) -> None:
    spec = target.spec
    if spec.rotary == spec.head_width:
        raise NotApplicable("the whole head turns")
    start = start_near(spec, 1_000, 4)
    positions = torch.arange(start, start + 3)
    x, built = found.normal(1, spec.heads, 3, spec.head_width), target.build()
    got = turned(target, built, x, positions, norm_keeping(spec))
    rest, still = got[..., spec.rotary :], x.double()[..., spec.rotary :]
    why = f"features from {spec.rotary} on must pass bit for bit"
    found.compare("features that do not turn", rest, still, found.bound, positions, dim=2, why=why)


@check("C35", "moved keys are the keys made there", bound=1e-6, unit="of the length", needs=("rotation", "move"))
def moves(target: Target, found: Findings) -> None:
    """Against its own rotation there: as when the start of a text is dropped and the rest takes its place."""
    spec = target.spec
    places = below(spec, [9, 64, 300, 2_047, 4_000]) or [start_near(spec, 9, 1)]
    end = spec.longest or 2**40
    start = torch.tensor([places, places])
    k = found.normal(2, spec.heads, len(places), spec.head_width)
    built = target.build()
    if not adds(target, built, k, start, found.bound):
        raise NotApplicable("its rotations do not add: see N01 and N05")
    for name, by in (("back by 1, by 7", (-1, -7)), ("on by 5, back by 9", (5, -9)), ("on by 3, by 1,000", (3, 1_000))):
        delta = torch.tensor(by)[:, None].expand_as(start)
        delta = torch.where(start + delta < end, delta, 0)
        got = target.move(built, target.rotate(built, k, start, "key"), delta)
        want = target.rotate(built, k, start + delta, "key")
        single = SINGLE * (2 * start + 2 * delta.abs())[:, None, :, None].double().expand_as(want)
        why = "a key that was moved is not the key that would have been made there"
        at = (start + delta)[:, None, :, None].expand_as(want)
        found.compare(name, got, want, found.bound, at, scale=want.double().abs().amax(), why=why, float32=single)


def adds(target: Target, built: object, k: Tensor, start: Tensor, bound: float) -> bool:
    """Whether rotating on by 5 what was rotated already is one rotation, in its own code: what `move` relies on."""
    if target.spec.kind != "rope":
        return True
    step = start.clamp(max=5)
    once = target.rotate(built, k, start - step, "key") / oracles.gains(target.spec)[0]
    both = target.rotate(built, once.to(k.dtype), step, "key")
    want = target.rotate(built, k, start, "key")
    R = target.spec.rotary
    apart = (both - want)[..., :R].double().abs() / want.double().abs().amax()
    return bool((apart <= 4 * bound + SINGLE * 4 * start[:, None, :, None]).all())


@check(
    "C40",
    "a second rotation of a layer is as its own spec says",
    bound=1e-4,
    unit="of the length",
    needs=("rotate_indexer",),
    declares="indexer",
)
def second(target: Target, found: Findings) -> None:
    """Which features turn together, by how much, and that the others stay: of the indexer, whatever the layer does."""
    side = target.indexer()
    layout(side, found)
    if side.spec.rotary != side.spec.head_width:
        partial(side, found)
    omega, reach = diagnose.estimate(side, side.build())
    result = found.measure("its frequencies", diagnose.frequency_errors(omega, reach, side.spec), found.bound)
    if not result.holds:
        result.why, result.unit = diagnose.cause(side, side.build()), "of the frequency"
    for each in found.compared:
        each.reproduce = each.reproduce and each.reproduce.replace("target.rotate(", "target.rotate_indexer(")
