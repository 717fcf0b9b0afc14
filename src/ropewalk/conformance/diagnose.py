"""Guesses at the cause: wrong frequencies are compared with those that well-known mistakes give."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Context, Decimal, localcontext
from typing import Any

import torch
from torch import Tensor

from ropewalk.conformance import oracles
from ropewalk.conformance.places import below, settled
from ropewalk.conformance.target import Spec, Target

REACH = 2**17
DRIFT = 1 / 32
"""Of a turn; narrow cos and sin are off by a tenth of it."""
ALIKE = 0.05
"""rad"""
EXACT = 5e-7
"""rad at the last of the positions that frequencies are read off, which are powers of two: no product rounds there, so
that what is left of a right frequency is the rounding of cos and sin."""


def own(
    target: Target, built: Any, dtype: torch.dtype = torch.float32, reach: int = 2**40
) -> tuple[oracles.Truth, int]:
    """The frequencies a target really has, read off its angles at 1, 2, 4, ... less that at 0, and the last of these
    positions.

    Each angle tells the frequency twice as finely as the one before, which says which turn it is in. Decimals, since a
    float64 is off by 1e-4 rad at 2^40. A target that counts positions from 1 has the right frequencies.
    """
    spec = target.spec
    positions = below(spec, [2**n for n in range(reach.bit_length())])
    cos, sin = target.cos_sin(built, settled(spec, torch.tensor([[0, *positions]])), dtype)
    waves = torch.complex(cos[0, : len(positions) + 1].double(), sin[0, : len(positions) + 1].double())
    steps = (waves[1:] * waves[:1].conj()).angle() / (2 * torch.pi)
    # An angle that is not twice the one before tells nothing of a frequency: positions were clamped or wrapped. Where
    # nothing turns before it, they are wrong from the start, and so is what is read off all of them.
    drift = (steps[1:] - 2 * steps[:-1] + 0.5).remainder(1.0) - 0.5
    wrong = (drift.abs().amax(-1) > DRIFT).nonzero()
    last = int(wrong[0]) + 1 if len(wrong) else len(positions)
    last = last if bool(steps[:last].any()) else len(positions)
    positions, parts = positions[:last], steps[:last].nan_to_num(0.0).tolist()
    found = []
    with localcontext(Context(prec=oracles.DIGITS)):
        for pair in zip(*parts, strict=True):
            turns = Decimal(pair[0])
            for part, position in zip(pair[1:], positions[1:], strict=True):
                turns = (Decimal(part) + (turns * position - Decimal(part)).to_integral_value()) / position
            found.append(turns * 2 * oracles.pi())
    return tuple(found), positions[-1]


def estimate(target: Target, built: Any, dtype: torch.dtype = torch.float32) -> tuple[Tensor, int]:
    """The same as floats, as far as near positions tell them."""
    omegas, reach = own(target, built, dtype, REACH)
    return as_tensor(omegas), reach


def frequency_errors(omega: Tensor, reach: int, spec: Spec) -> Tensor:
    """How far each is from the nearest true one, relative to it, or to 1/reach where it is slower than can be seen."""
    found = []
    for truth in oracles.truths(spec):
        want = as_tensor(truth)
        found.append((omega - want).abs() / want.clamp(min=1 / reach))
    return torch.stack(found).amin(0).nan_to_num(torch.inf)


def as_tensor(truth: oracles.Truth) -> Tensor:
    return torch.tensor([float(omega) for omega in truth], dtype=torch.float64)


def cause(target: Target, built: Any, dtype: torch.dtype = torch.float32) -> str | None:
    """What a target's angles look like, if they look like a known mistake."""
    spec = target.spec
    try:
        omega, reach = estimate(target, built, dtype)
    except Exception:  # whatever kept it from answering has been told by the check itself
        return None

    def alike(guess: Tensor) -> bool:
        """Within what cos and sin, rounded as they may be, tell of the angle at the farthest position looked at."""
        return float(((omega - guess).abs() * reach).nan_to_num(torch.inf).max()) < ALIKE

    truths = [as_tensor(truth) for truth in oracles.truths(spec)]
    if any(alike(truth) for truth in truths):
        off = float(frequency_errors(omega, reach, spec).max())
        if dtype == torch.float32 and min(float((omega - truth).abs().max()) for truth in truths) * reach > EXACT:
            return f"the frequencies have relative errors up to {off:.1g}, as float32 powers do" if off < 1e-6 else None
        return collapsed(target, built, dtype) or "the frequencies are right; the product with the position is not"
    return next((says for guess, says in mistakes(spec) if alike(guess)), None)


def collapsed(target: Target, built: Any, dtype: torch.dtype = torch.float32) -> str | None:
    """Positions that a float of fewer bits cannot tell apart."""
    for first, name in ((256, "bfloat16"), (2048, "float16"), (2**24, "float32"), (2**31 - 1, "int32")):
        if not below(target.spec, [2 * first + 2]):
            return None
        pair = settled(target.spec, torch.tensor([[first, first + 1, 2 * first]]))
        cos, sin = (part[0, :3].double() for part in target.cos_sin(built, pair, dtype))
        if torch.equal(cos[0], cos[1]) and torch.equal(sin[0], sin[1]):
            if torch.equal(cos[0], cos[2]) and torch.equal(sin[0], sin[2]):
                return f"every position from {first:,} on, or before it, has one answer: positions are clamped"
            return f"positions {first:,} and {first + 1:,} are one and the same: they were rounded to {name}"
    return None


def mistakes(spec: Spec) -> Iterator[tuple[Tensor, str]]:
    true = as_tensor(oracles.frequencies(spec))
    for dtype in (torch.bfloat16, torch.float16):
        name = str(dtype).removeprefix("torch.")
        yield true.float().to(dtype).double(), f"the frequencies were rounded to {name}, as .to(dtype) does"
    yield torch.zeros_like(true), "nothing turns"
    yield 2 * true, "everything is turned twice"
    if spec.scaling is not None:
        yield _of(spec, scaling=None), "the frequencies are plain RoPE's: the scaling was not applied"
    if spec.base != 10_000:
        yield _of(spec, base=10_000.0), f"the frequencies are those of base 10,000, not {spec.base:,g}"
    if spec.rotary != spec.head_width:
        plain = as_tensor(oracles.ladder(spec.base, spec.head_width))[: spec.rotary // 2]
        yield plain, f"the exponent's denominator is the head width {spec.head_width}, not {spec.rotary}"
    yield from _of_scaling(spec)


def _of_scaling(spec: Spec) -> Iterator[tuple[Tensor, str]]:
    scaling: Any = spec.scaling
    factor = getattr(scaling, "factor", None)
    if scaling is None or not factor or factor == 1:
        return
    true, plain = (as_tensor(oracles.frequencies(s)) for s in (spec, spec.model_copy(update={"scaling": None})))
    kind = scaling.kind
    if factor**2 <= 4096:
        yield _of(spec, scaling=scaling.model_copy(update={"factor": factor**2})), "the factor was applied twice"
    yield plain / factor, f"every frequency is divided by {factor:g}, as linear scaling does"
    if kind in ("yarn", "llama3"):
        divided = plain / factor
        yield plain + divided - true, f"the ramp of {kind} is upside down: fast frequencies are divided, slow ones kept"
    if kind == "yarn":
        swapped = {"beta_fast": scaling.beta_slow, "beta_slow": scaling.beta_fast}
        for change, says in (
            ({"ramp": "paper" if scaling.ramp == "code" else "code"}, "the other ramp of YaRN is used: see ramp"),
            ({"truncate": not scaling.truncate}, f"truncate={scaling.truncate} was not read"),
            (swapped, "beta_fast and beta_slow are swapped"),
        ):
            yield _of(spec, scaling=scaling.model_copy(update=change)), says


def _of(spec: Spec, **changes: Any) -> Tensor:
    return as_tensor(oracles.frequencies(spec.model_copy(update=changes)))
