"""Which features turn, and with which: C01, C02."""

from __future__ import annotations

import torch

from ropewalk.conformance import oracles
from ropewalk.conformance.checks import check
from ropewalk.conformance.checks.scores import turned
from ropewalk.conformance.findings import Findings, NotApplicable
from ropewalk.conformance.places import start_near
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


@check("C02", "features that do not turn are left untouched", bound=0.0, needs=("rotation",), kinds=("rope",))
def partial(target: Target, found: Findings) -> None:
    spec = target.spec
    if spec.rotary == spec.head_width:
        raise NotApplicable("the whole head turns")
    start = start_near(spec, 1_000, 4)
    positions = torch.arange(start, start + 3)
    x, built = found.normal(1, spec.heads, 3, spec.head_width), target.build()
    got = turned(target, built, x, positions)
    rest, still = got[..., spec.rotary :], x.double()[..., spec.rotary :]
    why = f"features from {spec.rotary} on must pass bit for bit"
    found.compare("features that do not turn", rest, still, found.bound, positions, dim=2, why=why)
