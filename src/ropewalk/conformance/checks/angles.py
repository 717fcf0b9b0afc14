"""Angles, far from position 0: N01, N07, N08."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.conformance import diagnose, oracles
from ropewalk.conformance.checks import check
from ropewalk.conformance.findings import Findings, NotApplicable
from ropewalk.conformance.places import SINGLE, below, far, settled
from ropewalk.conformance.target import Spec, Target

KINDS = ("rope", "sinusoidal")


def call(target: Target, position: int | None) -> str:
    """The line that shows the angles at one position."""
    return target.line(f"torch.tensor([[{position}]])")


def shown(target: Target, positions: Tensor, errors: Tensor) -> str:
    """The nearest position that is off by a tenth of a radian, or else the worst."""
    worst = errors.amax(-1)
    plain = (worst > 0.1).nonzero()
    row = int(plain[0]) if len(plain) else int(worst.argmax())
    return f"{call(target, int(positions[row]))}   # off by {float(worst[row]):.2g} rad"


@check(
    "N01",
    "angles are position times frequency, near and far",
    bound=(1e-6, 2.5e-7),
    unit="rad",
    needs=("angles",),
    kinds=KINDS,
)
def angle(target: Target, found: Findings) -> None:
    """Whatever the frequencies are: N07 looks at those."""
    spec, built, positions = target.spec, target.build(), far(target.spec, found)
    asked = settled(spec, positions[None])
    cos, sin = target.cos_sin(built, asked)
    omegas, _ = diagnose.own(target, built)
    errors = oracles.own_angle_errors(cos, sin, asked, omegas)[0, : len(positions)]
    single = SINGLE * positions[:, None].double() * diagnose.as_tensor(omegas).abs()
    near = positions <= 2**36
    for part, bound, where in ((near, found.bounds[1], "to 2^36"), (~near, found.bounds[0], "to 2^40")):
        if part.any():
            result = found.measure(f"angles {where}", errors[part], bound, positions[part], dim=0, float32=single[part])
            if not result.holds:
                rounded = "the product of position and frequency is rounded" if result.float32 else None
                result.why = diagnose.collapsed(target, built) or rounded or "angles are not position times frequency"
                result.reproduce = shown(target, positions[part], errors[part])


@check(
    "N07",
    "frequencies match the spec",
    bound={"relative": 1e-6, "angle": 1e-6},
    needs=("angles|frequencies",),
    kinds=KINDS,
)
def frequencies(target: Target, found: Findings) -> None:
    spec = target.spec
    if target.has("angles"):
        built = target.build()
        omega, reach = diagnose.estimate(target, built)
        result = found.measure(
            "frequencies read off the angles", diagnose.frequency_errors(omega, reach, spec), found.bound
        )
        if not result.holds:
            result.why = diagnose.cause(target, built)
            result.reproduce = f"{call(target, 1)}   # the angles at 1 are the frequencies"
        else:
            far_off(target, found, built)
    if target.has("frequencies") and spec.length_dependent:
        found.note("frequencies(config) was not asked: a config does not say which length it is to be resolved for")
    elif target.has("frequencies"):
        config = rope_parameters(spec)
        given = read(target, config)[0]
        errors = diagnose.frequency_errors(given, 2**40, spec)
        result = found.measure("frequencies(config)", errors, found.bound)
        if not result.holds:
            result.reproduce = f"target.frequencies({config!r})"
            guesses = diagnose.mistakes(spec)
            near = (says for guess, says in guesses if torch.allclose(given, guess, rtol=1e-4, atol=0))
            result.why = next(near, None)


def far_off(target: Target, found: Findings, built: object) -> None:
    """A frequency that is nearly right adds up: what it makes of the last power of two that can be asked for."""
    omegas, reach = diagnose.own(target, built)
    apart = [oracles.apart(omegas, truth, reach) for truth in oracles.truths(target.spec)]
    result = found.measure(
        "their error at the farthest position",
        torch.stack(apart).amin(0)[None],
        found.bounds[-1],
        [reach],
        dim=0,
        why="the frequencies have relative errors as float32 powers do, which add up with the position",
        reproduce=f"{call(target, reach)}",
        float32=SINGLE * reach * diagnose.as_tensor(omegas).abs()[None],
    )
    result.unit = "rad"


@check(
    "N08", "attention scaling factors (mscale) are right", bound=1e-6, needs=("angles|frequencies",), kinds=("rope",)
)
def gain(target: Target, found: Findings) -> None:
    spec = target.spec
    rotary, logit = oracles.gains(spec)
    if target.has("angles"):
        positions = torch.tensor(below(spec, [1, 7, 4095, 131_071]))
        cos, sin = target.cos_sin(target.build(), settled(spec, positions[None]))
        size = torch.hypot(cos.double(), sin.double())[0, : len(positions)]
        result = found.measure("gain on cos and sin", (size / rotary - 1).abs(), found.bound, positions, dim=0)
        if not result.holds:
            result.why = said(float(size.flatten()[0]), rotary)
            result.reproduce = f"{call(target, result.at)}   # cos^2 + sin^2 is {rotary**2:.6g}"
    if target.has("frequencies"):
        given = read(target, rope_parameters(spec))[1]
        if given is not None:
            why = said(given, rotary)
            found.measure("gain of frequencies(config)", abs(given / rotary - 1), found.bound, why=why)
    if logit != 1 and target.has("attend"):
        measured = logit_gain(target, found)
        why = f"scores are multiplied by {measured:.6g}, the spec says {logit:.6g}"
        # Two logarithms of float32 probabilities stand between a score and what is seen of it.
        found.measure("gain on every score", abs(measured / logit - 1), 20 * found.bound, why=why)
    elif logit != 1:
        found.note(f"the gain {logit:.4g} on every score was not looked at: the target offers no attend")
    if not found.compared:
        raise NotApplicable("frequencies(config) states no gain")


def said(got: float, want: float) -> str:
    if abs(got - want**2) < 1e-4 and want != 1:
        return f"the gain {want:.6g} was applied twice: {got:.6g}"
    if abs(got - 1) < 1e-4:
        return f"the gain {want:.6g} is missing"
    return f"the gain is {got:.6g}, the spec's is {want:.6g}"


def logit_gain(target: Target, found: Findings) -> float:
    """From two keys at one position, where no rotation tells them apart but for their contents. As many queries as
    keys: where the triangle of a mask is anchored is C19's matter."""
    spec = target.spec
    H, K = spec.heads, spec.head_width
    q, k = found.normal(1, H, 2, K), found.normal(1, H, 2, K, more=1)
    v = torch.eye(2, K)[None, None].expand(1, H, 2, K)
    where = torch.full((1, 2), below(spec, [5, 1])[0])
    share = target.attend(target.build(), q, k, v, where, where)[0, :, -1, :2].double()
    plain = oracles.scores(q, k, where, where, spec.model_copy(update={"scaling": None}))[0, :, -1]
    rotary = oracles.gains(spec)[0]
    got, want = share.log() @ torch.tensor([1.0, -1.0]).double(), plain @ torch.tensor([1.0, -1.0]).double()
    best = want.abs().argmax()
    return float(got[best] / want[best]) / rotary**2


def rope_parameters(spec: Spec) -> dict[str, object]:
    """What a config.json would say of this spec; an input, not a truth."""
    plain: dict[str, object] = {"rope_type": "default", "rope_theta": float(spec.base)}
    found = plain if spec.scaling is None else dict(spec.scaling.to_hf(spec.base, spec.rotary))
    found["head_dim"] = spec.head_width
    if spec.rotary != spec.head_width:
        found["partial_rotary_factor"] = spec.rotary / spec.head_width
    longest = spec.longest if spec.scaling is None else spec.scaling.longest or spec.longest
    if longest is not None:
        found["max_position_embeddings"] = longest
    return found


def read(target: Target, config: dict[str, object]) -> tuple[Tensor, float | None]:
    """What a target's own reader makes of a config."""
    given = target.function("frequencies")(dict(config))
    gain = None
    if isinstance(given, tuple) and len(given) == 2 and not isinstance(given[0], (int, float)):
        given, gain = given
    return torch.as_tensor(list(map(float, given)), dtype=torch.float64), None if gain is None else float(gain)
