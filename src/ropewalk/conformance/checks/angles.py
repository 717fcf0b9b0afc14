"""Angles, far from position 0, and what they are multiplied by: N01, N07, N08, N13, C39."""

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
    sides="angles",
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
    if spec.length_dependent:
        return
    # A step of decoding, for which many kernels have a path of their own. Each of an instance of its own: what earlier
    # calls do is C08's matter.
    alone = positions[:: max(len(positions) // 24, 1)]
    waves = [target.cos_sin(target.build(), p.view(1, 1)) for p in alone]
    cos, sin = (torch.cat([wave[n][0] for wave in waves]) for n in (0, 1))
    errors = oracles.own_angle_errors(cos[None], sin[None], alone[None], omegas)[0]
    single = SINGLE * alone[:, None].double() * diagnose.as_tensor(omegas).abs()
    for part, bound in ((alone <= 2**36, found.bounds[1]), (alone > 2**36, found.bounds[0])):
        if part.any():
            result = found.measure("one token alone", errors[part], bound, alone[part], dim=0, float32=single[part])
            if not result.holds and not result.float32:
                result.why = "a token asked for alone is not where it is among others"


@check(
    "N07",
    "frequencies match the spec",
    bound={"relative": 1e-6, "angle": 1e-6},
    needs=("angles|frequencies",),
    kinds=KINDS,
    sides="angles",
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
    elif target.has("frequencies") and spec.arrangement == "axial":
        found.note("frequencies(config) was not asked: a config has no key for a ladder of each axis")
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
    "N08",
    "attention scaling factors (mscale) are right",
    bound=1e-6,
    needs=("angles|frequencies",),
    kinds=KINDS,
    sides="angles",
)
def gain(target: Target, found: Findings) -> None:
    spec = target.spec
    rotary, logit = oracles.gains(spec) if spec.kind == "rope" else (1.0, 1.0)
    if target.has("angles"):
        positions = torch.tensor(below(spec, [1, 7, 4095, 131_071]))
        cos, sin = target.cos_sin(target.build(), settled(spec, positions[None]))
        size = torch.hypot(cos.double(), sin.double())[0, : len(positions)]
        if "cos_sin" not in target.offers and float(size.amax() - size.amin()) > 1e-4:
            raise NotApplicable("its rotation has no one gain: see N05")
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


def logit_gain(target: Target, found: Findings, at: int | None = None) -> float:
    """From two keys at one position, where no rotation tells them apart but for their contents. As many queries as
    keys: where the triangle of a mask is anchored is C19's matter."""
    spec = target.spec
    H, K = spec.heads, spec.head_width
    q, k = found.normal(1, H, 2, K), found.normal(1, H, 2, K, more=1)
    v = torch.eye(2, K)[None, None].expand(1, H, 2, K)
    where = torch.full((1, 2), below(spec, [5, 1])[0] if at is None else at)
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


def read(target: Target, config: dict[str, object], **length: int) -> tuple[Tensor, float | None]:
    """What a target's own reader makes of a config."""
    given = target.function("frequencies")(dict(config), **length)
    gain = None
    if isinstance(given, tuple) and len(given) == 2 and not isinstance(given[0], (int, float)):
        given, gain = given
    return torch.as_tensor(list(map(float, given)), dtype=torch.float64), None if gain is None else float(gain)


@check(
    "N13",
    "a temperature by position is applied, each step where it belongs",
    bound=1e-6,
    needs=("rotate_query|attend",),
    kinds=("rope", "other"),
    declares="temperature",
)
def heat(target: Target, found: Findings) -> None:
    """Read off the length of a query over that of the same vector as a key, and off what attention makes of it."""
    spec = target.spec
    positions = torch.tensor(heated_at(spec))
    if target.has("rotate_query", "rotate_key"):
        L, built = len(positions), target.build()
        # Rows at other positions, and one token of each row: the factor belongs to a token, not to a place in a row.
        rows = torch.stack([positions, positions.flip(0)])
        for name, where in (("a row forwards, a row backwards", rows), ("one token of each row", positions[:, None])):
            x = found.normal(len(where), spec.heads, where.shape[1], spec.head_width)
            turned, kept = (target.rotate(built, x, where, role).double() for role in ("query", "key"))
            q, k = turned.norm(dim=-1), kept.norm(dim=-1)
            got = (q / k).mean(1)
            apart = (turned / q[..., None] - kept / k[..., None]).norm(dim=-1)
            said = "queries are turned otherwise than keys, besides the temperature"
            found.measure(f"directions, {name}", apart, found.bound, where[:, None].expand_as(apart), why=said)
            want = oracles.temperature(where, spec)
            result = found.measure(f"{name}, {L} positions", (got / want - 1).abs(), found.bound, where)
            if not result.holds:
                result.why = heated_by(spec, got, where)
    if target.has("attend"):
        got = torch.tensor([logit_gain(target, found, int(m)) for m in positions], dtype=torch.float64)
        want = oracles.temperature(positions, spec) * oracles.gains(spec)[1]
        errors = (got / want - 1).abs()
        # Two logarithms of float32 probabilities stand between a score and what is seen of it.
        result = found.measure("its attention", errors, 20 * found.bound, positions, dim=0)
        if not result.holds:
            result.why = heated_by(spec, got / oracles.gains(spec)[1], positions)


def heated_at(spec: Spec) -> list[int]:
    """Before, at and after the first steps, where the forms differ, and far away."""
    T = 0 if spec.temperature is None else spec.temperature.trained
    edges = [n * T + off for n in (1, 2, 3, 8) for off in (-2, -1, 0, 1)]
    return sorted(set(below(spec, [0, 1, *edges, 131_071, 1_000_000, 2**31 + 5])))


def heated_by(spec: Spec, got: Tensor, positions: Tensor) -> str:
    """What the factors look like."""
    if bool(((got - 1).abs() < 1e-4).all()):
        return "the temperature is missing: every factor is 1"
    heat = spec.temperature
    assert heat is not None
    for form in ("llama4", "ministral", "log-n"):
        other = spec.model_copy(update={"temperature": heat.model_copy(update={"form": form})})
        if form != heat.form and bool(((got / oracles.temperature(positions, other) - 1).abs() < 1e-4).all()):
            return f"the steps are those of {form}, the spec says {heat.form}"
    if got.ndim == 2 and got.shape[0] > 1 and bool(((got - got[:1]).abs() < 1e-6).all()):
        return "every row has the factors of the first one's positions"
    return f"queries are multiplied by {float(got.flatten()[-1]):.6g} at {int(positions.flatten()[-1]):,}"


@check(
    "C39",
    "at exactly the trained length a scaling has not begun",
    bound=1e-6,
    unit="rad",
    needs=("angles|frequencies",),
    kinds=("rope",),
)
def at_the_edge(target: Target, found: Findings) -> None:
    """Of L positions, 0 to L - 1, and of one more: as frequencies make the angle at the last of them."""
    spec = target.spec
    if not spec.length_dependent or spec.trained is None:
        raise NotApplicable("its spec declares no scaling that depends on the length")
    L = spec.trained
    for length in (L, L + 1):
        here = spec.model_copy(update={"longest": length})
        why = f"at length {length:,}, of {L:,} trained, the frequencies are those of the other side"
        if target.takes("frequencies", "length"):
            given = read(target, rope_parameters(spec), length=length)[0]
            errors = torch.stack([(given - diagnose.as_tensor(t)).abs() * (length - 1) for t in oracles.truths(here)])
            single = SINGLE * (length - 1) * given.abs()
            result = found.measure(
                f"frequencies(config), length {length:,}", errors.amin(0), found.bound, float32=single
            )
            result.why = why
        if target.has("angles") and (spec.longest == length or (spec.per_call and (spec.longest or L + 2) > length)):
            positions = torch.tensor([[*below(here, [1, 2, 7, L // 2]), length - 1]])
            cos, sin = target.cos_sin(target.build(), positions)
            omegas = diagnose.as_tensor(oracles.frequencies(here))
            single = SINGLE * positions[..., None].double() * omegas.abs()
            errors = oracles.angle_errors(cos, sin, positions, here)
            result = found.measure(f"angles, length {length:,}", errors, found.bound, positions, float32=single)
            result.why, result.reproduce = (
                why,
                target.line(f"torch.tensor({positions.tolist()})", length=positions.shape[1]),
            )
    if not found.compared:
        raise NotApplicable(
            f"it is resolved for {spec.longest:,} positions alone: declare per_call, or give frequencies a `length`"
        )
