"""Angles, far from position 0: N01, N02, N07, N08, N11."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.conformance import diagnose, oracles
from ropewalk.conformance.checks import check
from ropewalk.conformance.findings import Findings, NotApplicable
from ropewalk.conformance.places import EDGES, below, far, settled
from ropewalk.conformance.target import Spec, Target

KINDS = ("rope", "sinusoidal")


def call(target: Target, position: int | None) -> str:
    """The line that shows the angles at one position."""
    return target.line(f"torch.tensor([[{position}]])")


def errors_at(target: Target, positions: Tensor) -> Tensor:
    """(N, R/2) rad."""
    asked = settled(target.spec, positions[None])
    cos, sin = target.cos_sin(target.build(), asked)
    return oracles.angle_errors(cos, sin, asked, target.spec)[0, : len(positions)]


def hold_angles(target: Target, found: Findings, name: str, positions: Tensor) -> None:
    errors = errors_at(target, positions)
    near = positions <= 2**36
    for part, bound, where in ((near, found.bounds[1], "to 2^36"), (~near, found.bounds[0], "to 2^40")):
        if part.any():
            result = found.measure(f"{name} {where}", errors[part], bound, positions[part], dim=0)
            if not result.holds:
                result.why = diagnose.cause(target, target.build())
                result.reproduce = shown(target, positions[part], errors[part])


def shown(target: Target, positions: Tensor, errors: Tensor) -> str:
    """The nearest position that is off by a tenth of a radian, or else the worst."""
    worst = errors.amax(-1)
    plain = (worst > 0.1).nonzero()
    row = int(plain[0]) if len(plain) else int(worst.argmax())
    return f"{call(target, int(positions[row]))}   # off by {float(worst[row]):.2g} rad"


@check("N01", "angle at far positions", bound=(1e-6, 2.5e-7), unit="rad", needs=("angles",), kinds=KINDS)
def angle(target: Target, found: Findings) -> None:
    hold_angles(target, found, "angles", far(target.spec, found))


@check("N11", "edge positions", bound=(1e-6, 2.5e-7), unit="rad", needs=("angles",), kinds=KINDS)
def edges(target: Target, found: Findings) -> None:
    hold_angles(target, found, "angles", torch.tensor(below(target.spec, EDGES)))


@check("N02", "angles add", bound=5e-7, unit="rad", needs=("angles",), kinds=KINDS)
def sums(target: Target, found: Findings) -> None:
    spec = target.spec
    some = far(spec, found)
    some = some[: (len(some) + 1) // 2 * 2] if spec.longest is None else some[some < spec.longest // 2]
    m = some[torch.randperm(len(some), generator=found.generator(2))]
    n = some[torch.randperm(len(some), generator=found.generator(3))]
    keep = (m + n <= 2**40).nonzero()[:128, 0]
    m, n = m[keep], n[keep]
    if not len(m):
        raise NotApplicable(f"too few positions below {spec.longest}")
    asked = settled(spec, torch.cat([m, n, m + n])[None])
    cos, sin = (part[0, : 3 * len(m)].double().chunk(3) for part in target.cos_sin(target.build(), asked))
    together = torch.complex(cos[0], sin[0]) * torch.complex(cos[1], sin[1])
    apart = (together * torch.complex(cos[2], -sin[2])).angle().abs()
    result = found.measure("angle(m + n) - angle(m) - angle(n)", apart, found.bound, m + n, dim=0)
    if not result.holds:
        result.why = diagnose.cause(target, target.build())
        result.reproduce = (
            f"{call(target, result.at)}   # is not the sum of the angles at two positions that add up to it"
        )


@check("N07", "frequencies match the spec", bound=1e-6, needs=("angles|frequencies",), kinds=KINDS)
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
    """From two keys at one position, where no rotation tells them apart but for their contents."""
    spec = target.spec
    H, K = spec.heads, spec.head_width
    q, k = found.normal(1, H, 1, K), found.normal(1, H, 2, K, more=1)
    v = torch.eye(2, K)[None, None].expand(1, H, 2, K)
    where = torch.full((1, 2), below(spec, [5, 1])[0])
    share = target.attend(target.build(), q, k, v, where[:, :1], where)[0, :, 0, :2].double()
    plain = oracles.scores(q, k, where[:, :1], where, spec.model_copy(update={"scaling": None}))[0, :, 0]
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
