"""The truth, from the papers' equations, in integers and decimals of 80 digits (265 bits).

    omega_i = b^(-2i/R)                     turns_i = round(omega_i / 2 pi * 2^256)           RoPE, arXiv 2104.09864
    angle(p, i) = 2 pi (p turns_i mod 2^256) / 2^256

Nothing here comes from the rest of ropewalk: a scaling is read for its settings alone. `frequencies32` is the float32
arithmetic that transformers ships, for targets that are checked against checkpoints trained on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ropewalk.conformance.target import Spec, pair_features

DIGITS = 80
TURN = 2**256

Truth = tuple[Decimal, ...]


def _context() -> Any:
    return localcontext(Context(prec=DIGITS))


@cache
def pi() -> Decimal:
    """By Machin's formula, 16 atan(1/5) - 4 atan(1/239), in integers."""
    unit = 10 ** (DIGITS + 10)

    def atan_inverse(x: int) -> int:
        total = term = unit // x
        n = 1
        while term:
            term //= -x * x
            n += 2
            total += term // n
        return total

    with _context():
        return Decimal(4 * (4 * atan_inverse(5) - atan_inverse(239))) / unit


def ladder(base: float | Decimal, width: int) -> Truth:
    with _context():
        log = Decimal(base).ln()
        return tuple((-2 * i * log / width).exp() for i in range((width + 1) // 2))


def length_of(spec: Spec) -> int:
    """The length that a length-dependent scaling is resolved for."""
    length = getattr(spec.scaling, "length", None) or spec.longest
    if length is None:
        raise ValueError(f"{spec.scaling} depends on the length; give the target's spec `longest`")
    return length


def frequencies(spec: Spec) -> Truth:
    """The real numbers, fastest first."""
    width, scaling = spec.rotary, spec.scaling
    if spec.frequencies is not None:
        return spec.frequencies
    if spec.sections is not None and spec.arrangement == "axial":
        return tuple(omega for count in spec.sections for omega in ladder(spec.base, 2 * count))
    if scaling is None:
        return ladder(spec.base, width)
    rule = _RULES[scaling.kind]
    with _context():
        return tuple(rule(scaling, spec, width))


def _linear(scaling: Any, spec: Spec, width: int) -> list[Decimal]:
    return [omega / Decimal(scaling.factor) for omega in ladder(spec.base, width)]


def _stretched(spec: Spec, width: int, factor: Decimal) -> list[Decimal]:
    """NTK-aware, arXiv 2309.00071 section 3.1: the fastest stays, the slowest is divided by the factor."""
    log = factor.ln()
    return [omega * (-2 * i * log / (width - 2)).exp() for i, omega in enumerate(ladder(spec.base, width))]


def _ntk(scaling: Any, spec: Spec, width: int) -> list[Decimal]:
    return _stretched(spec, width, Decimal(scaling.factor))


def _dynamic(scaling: Any, spec: Spec, width: int) -> list[Decimal]:
    length, factor = length_of(spec), Decimal(scaling.factor)
    if length <= scaling.trained:
        return list(ladder(spec.base, width))
    return _stretched(spec, width, factor * length / scaling.trained - (factor - 1))


def _yarn(scaling: Any, spec: Spec, width: int) -> list[Decimal]:
    plain, factor = ladder(spec.base, width), Decimal(scaling.factor)
    fast, slow = Decimal(scaling.beta_fast), Decimal(scaling.beta_slow)
    if scaling.ramp == "paper":
        return [_by_parts(omega, factor, scaling.trained, slow, fast) for omega in plain]

    def index(rotations: Decimal) -> Decimal:
        return width * (scaling.trained / (2 * pi() * rotations)).ln() / (2 * Decimal(spec.base).ln())

    first, last = index(fast), index(slow)
    if scaling.truncate:
        first, last = first.to_integral_value(ROUND_FLOOR), last.to_integral_value(ROUND_CEILING)
    first, last = max(first, Decimal(0)), min(last, Decimal(width - 1))
    span = last - first or Decimal("0.001")
    ramp = [min(max((i - first) / span, Decimal(0)), Decimal(1)) for i in range(width // 2)]
    return [omega * (1 - share) + omega / factor * share for omega, share in zip(plain, ramp, strict=True)]


def _by_parts(omega: Decimal, factor: Decimal, trained: int, low: Decimal, high: Decimal) -> Decimal:
    """Equations 17 to 20 of arXiv 2309.00071, with b and not b' in r."""
    rotations = trained * omega / (2 * pi())
    if low == high:
        return omega if rotations > low else omega / factor
    kept = min(max((rotations - low) / (high - low), Decimal(0)), Decimal(1))
    return (1 - kept) * omega / factor + kept * omega


def _llama3(scaling: Any, spec: Spec, width: int) -> list[Decimal]:
    factor, low, high = (Decimal(value) for value in (scaling.factor, scaling.low, scaling.high))
    return [_by_parts(omega, factor, scaling.trained, low, high) for omega in ladder(spec.base, width)]


def _longrope(scaling: Any, spec: Spec, width: int) -> list[Decimal]:
    divisors = scaling.long if length_of(spec) > scaling.trained else scaling.short
    return [omega / Decimal(by) for omega, by in zip(ladder(spec.base, width), divisors, strict=True)]


def _proportional(scaling: Any, spec: Spec, width: int) -> list[Decimal]:
    turning = int(scaling.fraction * width // 2)
    return [w / Decimal(scaling.factor) if i < turning else Decimal(0) for i, w in enumerate(ladder(spec.base, width))]


_RULES = {
    "linear": _linear,
    "ntk": _ntk,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "llama3": _llama3,
    "longrope": _longrope,
    "proportional": _proportional,
}


def gains(spec: Spec) -> tuple[float, float]:
    """On cos and sin, and on every score."""
    s = spec.scaling
    if s is None or s.kind not in ("yarn", "longrope"):
        return 1.0, 1.0
    if s.kind == "longrope":
        given, ratio = s.attention_factor, s.factor or (s.extended or s.trained) / s.trained
        grown = math.sqrt(1 + math.log(ratio) / math.log(s.trained)) if ratio > 1 else 1.0
        return (grown if given is None else given), 1.0

    def grown_by(weight: float) -> float:
        return 1.0 if s.factor <= 1 else 1 + weight * math.log(s.factor) / 10

    if s.dialect == "deepseek":
        ratio = grown_by(1.0 if s.mscale is None else s.mscale) / grown_by(s.mscale_all_dim or 0.0)
    elif s.mscale and s.mscale_all_dim:
        ratio = grown_by(s.mscale) / grown_by(s.mscale_all_dim)
    else:
        ratio = grown_by(1.0)
    on_scores = grown_by(s.mscale_all_dim or 0.0) ** 2 if s.dialect == "deepseek" else 1.0
    return (ratio if s.attention_factor is None else s.attention_factor), on_scores


def frequencies32(spec: Spec) -> Truth:
    """What the float32 arithmetic of transformers 5 makes of the same equations on a CPU."""
    if spec.frequencies is not None:
        return spec.frequencies
    if spec.sections is not None and spec.arrangement == "axial":
        plain = {"sections": None, "arrangement": "blocks"}
        own = [spec.model_copy(update={**plain, "rotary_width": 2 * count}) for count in spec.sections if count]
        return tuple(omega for axis in own for omega in frequencies32(axis))
    width = spec.rotary
    s: Any = spec.scaling
    kind = None if s is None else s.kind
    even = torch.arange(0, width, 2, dtype=torch.int64, device="cpu").to(torch.float32)
    base: Any = spec.base
    if kind == "ntk":
        base = float(Decimal(spec.base) * Decimal(s.factor) ** (Decimal(width) / (width - 2)))
    if kind == "dynamic":
        within = length_of(spec) <= s.trained
        length: Any = s.trained if within else torch.tensor(length_of(spec), dtype=torch.float32, device="cpu")
        base = spec.base * ((s.factor * length / s.trained) - (s.factor - 1)) ** (width / (width - 2))
    if kind == "proportional":
        turning = int(s.fraction * width // 2)
        moving = 1.0 / spec.base ** (even[:turning] / width) / s.factor
        return _exactly([*moving.tolist(), *[0.0] * (width // 2 - turning)])
    periods = base ** (even / width)
    if kind == "linear":
        return _exactly((1.0 / periods / s.factor).tolist())
    if kind == "longrope":
        divisors = s.long if length_of(spec) > s.trained else s.short
        return _exactly((1.0 / (torch.tensor(divisors, dtype=torch.float32, device="cpu") * periods)).tolist())
    if kind == "llama3":
        omega = 1.0 / periods
        wavelength = 2 * math.pi / omega
        kept = (s.trained / wavelength - s.low) / (s.high - s.low)
        mixed = (1 - kept) * omega / s.factor + kept * omega
        slow, fast = wavelength > s.trained / s.low, wavelength < s.trained / s.high
        return _exactly(torch.where(slow, omega / s.factor, torch.where(fast, omega, mixed)).tolist())
    if kind == "yarn":
        return _exactly(_yarn32(s, spec, periods))
    return _exactly((1.0 / periods).tolist())


def _yarn32(s: Any, spec: Spec, periods: Tensor) -> list[float]:
    width = spec.rotary
    first, last = (
        width * math.log(s.trained / (r * 2 * math.pi)) / (2 * math.log(spec.base)) for r in (s.beta_fast, s.beta_slow)
    )
    if s.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, width - 1)
    last = last + 0.001 if first == last else last
    each = torch.arange(width // 2, dtype=torch.float32, device="cpu")
    kept = 1 - torch.clamp((each - first) / (last - first), 0, 1)
    return (1.0 / (s.factor * periods) * (1 - kept) + 1.0 / periods * kept).tolist()


def _exactly(values: Sequence[float]) -> Truth:
    return tuple(Decimal(value) for value in values)


def truths(spec: Spec) -> tuple[Truth, ...]:
    """The frequencies a target may have: the real ones, and those of float32 where its spec says so."""
    exact = frequencies(spec)
    published = getattr(spec.scaling, "ramp", None) == "paper"
    return (exact,) if spec.arithmetic == "exact" or published else (frequencies32(spec), exact)


def turns(omegas: Truth) -> tuple[int, ...]:
    with localcontext(Context(prec=DIGITS + 20)):
        return tuple(int((omega * TURN / (2 * pi())).to_integral_value()) for omega in omegas)


def angles(positions: Tensor | Sequence[int], omegas: Truth) -> Tensor:
    """(...) integers -> (..., R/2) float64 angles in [-pi, pi)."""
    where = torch.as_tensor(positions)
    fractions = turns(omegas)
    half = TURN // 2
    values = [[((p * t + half) % TURN - half) / TURN for t in fractions] for p in where.flatten().tolist()]
    return (torch.tensor(values, dtype=torch.float64) * (2 * math.pi)).view(*where.shape, len(omegas))


def axis_of(spec: Spec) -> list[int]:
    """Which axis turns each pair; interleaved as Qwen3-VL has it: each axis but the first takes every third pair, as
    many as its section says, and the first has the rest."""
    if spec.sections is None or spec.arrangement != "interleaved":
        return [axis for axis, count in enumerate(spec.sections or (spec.rotary // 2,)) for _ in range(count)]
    found = [0] * (spec.rotary // 2)
    for axis in (1, 2):
        for pair in range(axis, min(3 * spec.sections[axis], len(found)), 3):
            found[pair] = axis
    return found


def temperature(positions: Tensor, spec: Spec) -> Tensor:
    """What queries there are multiplied by, in float64."""
    heat = spec.temperature
    if heat is None:
        return torch.ones(positions.shape, dtype=torch.float64)
    if heat.form == "log-n":
        values = [max(1.0, math.log(m + 1) / math.log(heat.trained)) for m in positions.flatten().tolist()]
    else:
        ahead = 1 if heat.form == "llama4" else 0
        steps = [(m + ahead) // heat.trained for m in positions.flatten().tolist()]
        values = [1 + heat.strength * math.log(1 + step) for step in steps]
    return torch.tensor(values, dtype=torch.float64).view(positions.shape)


def apart(ones: Truth, others: Truth, position: int) -> Tensor:
    """(R/2,): how many rad two sets of frequencies are apart at a position."""
    with _context():
        return torch.tensor([float(abs(a - b) * position) for a, b in zip(ones, others, strict=True)]).double()


def angle_errors(cos: Tensor, sin: Tensor, positions: Tensor, spec: Spec) -> Tensor:
    """(B, L, R/2): how far the angle of each (cos, sin) is from the nearest true one, in rad; gains do not matter."""
    cos, sin = cos.double(), sin.double()
    found = []
    for omegas in truths(spec):
        want = angles(positions, omegas)
        across, along = sin * want.cos() - cos * want.sin(), cos * want.cos() + sin * want.sin()
        found.append(torch.atan2(across, along).abs())
    errors = torch.stack(found).amin(0)
    # A zero vector has no angle, and atan2 would call that right.
    return torch.where((cos == 0) & (sin == 0), math.pi, errors).nan_to_num(math.inf)


def own_angle_errors(cos: Tensor, sin: Tensor, positions: Tensor, omegas: Truth) -> Tensor:
    """(B, L, R/2): the same against position times these frequencies, whatever they are. Positions (B, L), or
    (B, L, R/2) where each pair has its own."""
    cos, sin = cos.double(), sin.double()
    want = angles(positions, omegas)
    if positions.ndim == 3:
        want = want.diagonal(dim1=-2, dim2=-1)
    across, along = sin * want.cos() - cos * want.sin(), cos * want.cos() + sin * want.sin()
    errors = torch.atan2(across, along).abs()
    return torch.where((cos == 0) & (sin == 0), math.pi, errors).nan_to_num(math.inf)


def rotate(x: Tensor, positions: Tensor, spec: Spec, omegas: Truth | None = None, *, times: int = 1) -> Tensor:
    """x (B, H, L, K) turned as the spec says, in float64, the gain included."""
    first, second = pair_features(spec.layout, spec.rotary)
    angle = times * angles(positions, frequencies(spec) if omegas is None else omegas)[:, None]
    gain = gains(spec)[0] ** abs(times)
    cos, sin = gain * angle.cos(), gain * angle.sin()
    turned = x.double().clone()
    a, b = x.double()[..., first], x.double()[..., second]
    turned[..., first], turned[..., second] = a * cos - b * sin, b * cos + a * sin
    return turned


def scores(q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor, spec: Spec) -> Tensor:
    """(B, H, L, S) in float64: what attention's softmax gets, before any mask. Positions (B, L) and (B, S)."""
    scale = gains(spec)[1] / math.sqrt(spec.head_width)
    if spec.kind == "rope":
        q, k = rotate(q, q_positions, spec), rotate(k, k_positions, spec)
    result = q.double() @ k.double().transpose(-1, -2) * scale
    if spec.kind == "alibi":
        rows = zip(q_positions, k_positions, strict=True)
        result = result + torch.stack([alibi(spec.heads, q_row, k_row) for q_row, k_row in rows])
    return result


def slopes(heads: int) -> list[float]:
    """ALiBi's, arXiv 2108.12409: 2^(-8h/n), h = 1 .. n; between two powers of two as the authors' code has it."""
    power = 1 << (heads.bit_length() - 1)
    with _context():
        log = Decimal(2).ln()
        whole = [(-8 * h * log / power).exp() for h in range(1, power + 1)]
        finer = [(-8 * h * log / (2 * power)).exp() for h in range(1, 2 * power + 1)]
        return [float(slope) for slope in whole + finer[0::2][: heads - power]]


def alibi(heads: int, q_positions: Tensor, k_positions: Tensor) -> Tensor:
    """(H, L, S) float64: -m_h |i - j|."""
    apart = (q_positions[:, None] - k_positions[None]).abs().double()
    return -torch.tensor(slopes(heads), dtype=torch.float64)[:, None, None] * apart


def bucket(ahead: int, buckets: int = 32, farthest: int = 128, bidirectional: bool = False) -> int:
    """T5's bucket of key position - query position (arXiv 1910.10683), by integers: no logarithm rounds."""
    count, start = (buckets // 2, buckets // 2 if ahead > 0 else 0) if bidirectional else (buckets, 0)
    apart = abs(ahead) if bidirectional else max(-ahead, 0)
    exact = count // 2
    if apart < exact:
        return start + apart
    steps, step = count - exact, 0
    # ln(d/e) / ln(f/e) * n >= step + 1   is   d^n e^(step + 1) >= f^(step + 1) e^n
    far = min(apart, farthest)
    while step < steps - 1 and far**steps * exact ** (step + 1) >= farthest ** (step + 1) * exact**steps:
        step += 1
    return start + exact + step


def buckets_of(ahead: Tensor, spec: Spec) -> Tensor:
    """The bucket of each distance, for a spec of kind t5."""
    known = {d: bucket(d, spec.buckets, spec.farthest, spec.bidirectional) for d in set(ahead.flatten().tolist())}
    return torch.tensor([known[d] for d in ahead.flatten().tolist()]).view(ahead.shape)
