"""What attention sees: scores, norms, and passages that are moved as a whole: N03, N04, N05, C05, C31, C32."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ropewalk.conformance import oracles
from ropewalk.conformance.checks import check
from ropewalk.conformance.findings import Findings, NotApplicable
from ropewalk.conformance.places import SHIFTS, SINGLE, below, settled, start_near
from ropewalk.conformance.surround import VOCABULARY
from ropewalk.conformance.target import Spec, Target, pair_features

RELATIVE = ("rope", "alibi", "t5", "other")
NOISE = 2e-6
"""On scores of spread 1, what float32 costs: see N03."""
SPAN = 4096
"""How far apart queries and keys are in the shift checks."""


def is_relative(spec: Spec) -> None:
    if spec.kind == "other" and not spec.relative:
        raise NotApplicable("this encoding is not relative, by its own spec")
    if spec.temperature is not None:
        raise NotApplicable("scores grow with the position of the query, by the temperature of its own spec")


def span_of(spec: Spec) -> int:
    return SPAN if spec.longest is None else max(min(SPAN, spec.longest // 4), 2)


def shifts(spec: Spec, room: int) -> list[int]:
    found = below(spec, SHIFTS, room)
    if not found:
        raise NotApplicable(f"no room to move anything below {spec.longest} positions")
    return found


def turned(target: Target, built: object, x: Tensor, positions: Tensor, role: str = "query") -> Tensor:
    """x (1, H, L, K) at (L,) positions, in float64."""
    asked = settled(target.spec, positions[None])
    more = asked.shape[1] - x.shape[2]
    padded = torch.cat([x, x[:, :, :more]], dim=2) if more else x
    return target.rotate(built, padded, asked, role)[:, :, : x.shape[2]].double()  # type: ignore[arg-type]


def norm_keeping(spec: Spec) -> str:
    """Of queries and keys those that a temperature leaves alone."""
    return "query" if spec.temperature is None else "key"


def rotated_ones(target: Target, position: int, role: str = "query") -> str:
    name = "rotate" if target.has("rotate") else f"rotate_{role}"
    x = f"torch.ones(1, {target.spec.heads}, 1, {target.spec.head_width})"
    return f"target.{name}(built, {x}, torch.tensor([[{position}]]))"


def moving(target: Target) -> str:
    """A line that shows two scores that should be one."""
    far = below(target.spec, SHIFTS, SPAN)[-1:] or [1]
    pairs = [(rotated_ones(target, s + 9), rotated_ones(target, s, "key")) for s in (0, *far)]
    return f"print({', '.join(f'({q} * {k}).sum(-1)' for q, k in pairs)})"


def pair_scores(target: Target, built: object, q: Tensor, k: Tensor, m: Tensor, n: Tensor) -> Tensor:
    """(H, N): of query i against key i alone."""
    both = turned(target, built, q, m, "query") * turned(target, built, k, n, "key")
    return both.sum(-1)[0] / math.sqrt(target.spec.head_width)


@check(
    "N03",
    "scores are shift-invariant (float32)",
    bound=2e-6,
    unit="on scores",
    needs=("rotation|bias",),
    kinds=RELATIVE,
)
def shift(target: Target, found: Findings) -> None:
    spec = target.spec
    is_relative(spec)
    span, built = span_of(spec), target.build()
    generator = found.generator()
    gain = oracles.gains(spec)[0] ** 2
    if target.has("rotation"):
        N, H, K = 64, spec.heads, spec.head_width
        q, k = found.normal(1, H, N, K), found.normal(1, H, N, K, more=1)
        m, n = (torch.randint(span, (N,), generator=generator) for _ in range(2))
        near = pair_scores(target, built, q, k, m, n)
        moves = shifts(spec, span)
        apart = torch.stack([(pair_scores(target, built, q, k, m + s, n + s) - near).abs() for s in moves])
        found.measure(
            "change of q.k",
            apart / gain,
            found.bound,
            moves,
            dim=0,
            float32=torch.stack([single(spec, q, k, m + s, n + s) for s in moves]),
            why="the score of two tokens changes when both move by the same distance",
            reproduce=moving(target),
        )
    if target.has("bias"):
        q = torch.tensor([span - 1, span // 2])
        k = torch.tensor(sorted({0, 1, span // 3, span // 2, span - 2, span - 1}))
        near = anchored(target, built, q, k, 0)
        for s in shifts(spec, span):
            apart = (anchored(target, built, q, k, s) - near).abs().amax() / near.abs().amax().clamp(min=1.0)
            found.measure(
                f"change of the bias at {s:,}",
                apart.view(1),
                found.bound,
                [s],
                dim=0,
                why="the bias depends on where the pair is, not on its distance",
                reproduce=f"target.bias(built, torch.tensor([{s}]), torch.tensor([{s - 1}]))   # is that at 1, 0",
                float32=SINGLE * (s + span) / 2 if spec.kind == "alibi" else 0.0,
            )


def single(spec: Spec, q: Tensor, k: Tensor, m: Tensor, n: Tensor) -> Tensor:
    """(H, N): how far scores may be off where angles are float32 products, each pair of features by its own."""
    if spec.kind != "rope":
        return torch.zeros(spec.heads, len(m), dtype=torch.float64)
    first, second = pair_features(spec.layout, spec.rotary)
    sizes = [torch.hypot(x[0][..., first].double(), x[0][..., second].double()) for x in (q, k)]
    omegas = torch.tensor([float(omega) for omega in oracles.frequencies(spec)], dtype=torch.float64)
    off = SINGLE * (m + n).double()[:, None] * omegas
    return (sizes[0] * sizes[1] * off).sum(-1) / math.sqrt(spec.head_width)


def anchored(target: Target, built: object, q: Tensor, k: Tensor, by: int) -> Tensor:
    """The bias, each row less what it adds for its own position: a softmax does not see a row's constant."""
    bias = target.bias(built, q + by, torch.cat([k, q]) + by).double()
    own = torch.stack([bias[:, i, len(k) + i] for i in range(len(q))], dim=1)
    return (bias[..., : len(k)] - own[..., None]) * (k[None] <= q[:, None])


@check(
    "N04",
    "scores are shift-invariant (bfloat16)",
    bound={"ratio": 1.5, "RMS error": 1e-2},
    unit="times",
    needs=("rotation",),
    kinds=("rope",),
)
def shift_in_bfloat16(target: Target, found: Findings) -> None:
    """Against its own float32: what is wrong there too is told by others."""
    spec = target.spec
    is_relative(spec)
    span, gain = span_of(spec), oracles.gains(spec)[0] ** 2
    try:
        built = target.build(dtype=torch.bfloat16)
    except Exception as error:
        raise NotApplicable(f"it does not build in bfloat16: {error}") from None
    H, K = spec.heads, spec.head_width
    N, wide = max(2**18 // (H * K), 64), target.build()
    q, k = (found.normal(1, H, N, K, more=more).bfloat16() for more in range(2))
    m, n = (torch.randint(span, (N,), generator=found.generator(more)) for more in range(2))

    def error(s: int) -> float:
        want = pair_scores(target, wide, q.float(), k.float(), m + s, n + s)
        return float((pair_scores(target, built, q, k, m + s, n + s) - want).square().mean().sqrt()) / gain

    near = error(0)
    first = found.measure("RMS error at the start", near, found.bounds[-1])
    first.why, first.unit = "more than storing q and k in bfloat16 costs", "on scores"
    moves = shifts(spec, span)
    # A target that answers in float32 has no error at the start: any other is then more than 1.5 times that.
    ratio = torch.tensor([max(error(s), NOISE) / max(near, NOISE) for s in moves], dtype=torch.float64)
    found.measure("RMS error, far over near", ratio, found.bound, moves, dim=0, why="the error grows with the position")
    found.note(f"RMS error near 0: {near:.2g}")


@check("N05", "rotation preserves norms", bound=3e-7, needs=("rotation",), kinds=("rope",))
def norms(target: Target, found: Findings) -> None:
    """Up to one factor for all vectors and positions: which it is, is N08's matter."""
    spec = target.spec
    positions = torch.tensor(below(spec, [0, 1, 257, 4095, 131_071, 1_000_000, 2**31, 2**36]))
    x = found.normal(1, spec.heads, len(positions), spec.head_width)
    after = turned(target, target.build(), x, positions, norm_keeping(spec))[..., : spec.rotary].norm(dim=-1)
    ratio = after / x[..., : spec.rotary].double().norm(dim=-1)
    found.compare(
        "|rotate(x)| / |x|, over its median",
        ratio / ratio.median(),
        torch.ones_like(after),
        found.bound,
        positions,
        dim=2,
        why="a rotation changes all lengths by one factor, or none",
        reproduce=f"{rotated_ones(target, int(positions[-1]))}[..., : {spec.rotary}].norm(dim=-1)",
    )


@check(
    "C05", "attention scores: rotated once, scaled by 1/sqrt(K)", bound=2e-5, unit="on scores", needs=("attend",),
    kinds=("rope",),
)  # fmt: skip
def whole(target: Target, found: Findings) -> None:
    """What `attend` makes of one query and several keys, against its own rotation of them, each once."""
    spec = target.spec
    H, K = spec.heads, spec.head_width
    scale = oracles.gains(spec)[1] / math.sqrt(K)
    size = oracles.gains(spec)[0] ** 2 * oracles.gains(spec)[1]
    behind = torch.tensor([0, 1, 2, 7, 64, 511, 2048, 4000])
    for at in below(spec, [37, 4_095, 131_071, 1_000_000]) or [start_near(spec, 4_095, 1)]:
        keys = within(spec, at, (at - behind).clamp(min=0).unique())
        # As many queries as keys: where the triangle of a mask is anchored is C19's matter.
        q, k = found.normal(1, H, len(keys), K), found.normal(1, H, len(keys), K, more=1)
        built = target.build()

        def scores(
            of_q: int, of_k: int, q: Tensor = q, k: Tensor = k, keys: Tensor = keys, built: object = built
        ) -> Tensor:
            """With so many rotations of each."""
            for _ in range(of_q):
                q = turned(target, built, q.float(), keys)
            for _ in range(of_k):
                k = turned(target, built, k.float(), keys, "key")
            return differences(q.double()[:, :, -1:] @ k.double().transpose(-1, -2) * scale)

        want = (
            scores(1, 1)
            if target.has("rotation")
            else differences(oracles.scores(q, k, keys[None], keys[None], spec)[:, :, -1:])
        )
        got = differences(seen_scores(target, built, q, k, keys)[:, :, -1:])
        # A float32 softmax tells a score by its probability, and small ones are rounded coarsely.
        seen = want > -12
        result = found.measure(
            f"scores of attend at {at:,}",
            torch.where(seen, (got - want).abs(), 0.0).amax().view(1) / size,
            found.bound,
            [at],
            dim=0,
            why="the probabilities of one query over several keys are not those of q.k / sqrt(K) times the spec's gain",
            float32=0.0 if target.has("rotation") else SINGLE * 2 * at * math.sqrt(K),
        )
        if not result.holds and target.has("rotation"):
            times = [(a, b) for a in range(3) for b in range(3) if (a, b) != (1, 1)]
            near = [(float(torch.where(seen, (got - scores(*pair)).abs(), 0.0).amax()), pair) for pair in times]
            if min(near)[0] < 0.05:
                result.why = f"queries look rotated {min(near)[1][0]} and keys {min(near)[1][1]} times"


def within(spec: Spec, at: int, keys: Tensor) -> Tensor:
    """Those that a query sees through its window."""
    return keys if spec.window is None else keys[at - keys < spec.window]


def differences(score: Tensor) -> Tensor:
    """Scores less the largest of their row: all that a softmax sees."""
    return (score - score.amax(-1, keepdim=True))[0, :, 0]


def seen_scores(target: Target, built: object, q: Tensor, k: Tensor, at: Tensor) -> Tensor:
    """(1, H, L, S): logarithms of the probabilities that `attend` gives, read off values that are unit vectors."""
    H, K, S = target.spec.heads, target.spec.head_width, len(at)
    if S > K:
        raise NotApplicable(f"{S} keys do not fit a head of {K}")
    v = torch.eye(S, K)[None, None].expand(1, H, S, K)
    share = target.attend(built, q, k, v.to(q.dtype), at[None], at[None])[..., :S]
    return share.double().log()


@check(
    "C31",
    "shift probe: a passage alone scores the same anywhere",
    bound=1e-4,
    unit="of the logits' size",
    needs=("forward",),
    kinds=RELATIVE,
)
def moved(target: Target, found: Findings) -> None:
    """Of a whole model: N03 has seen to its rotation or bias."""
    spec = target.spec
    is_relative(spec)
    L = 12
    ids = torch.randint(spec.vocabulary or VOCABULARY, (1, L), generator=found.generator())
    start = torch.arange(L)[None]
    near = target.forward(target.build(), ids, start)[0].double()
    moves = shifts(spec, L)
    apart = [(target.forward(target.build(), ids, start + s)[0].double() - near).abs().amax() for s in moves]
    found.measure(
        "logits",
        torch.stack(apart) / near.abs().amax(),
        found.bound,
        moves,
        dim=0,
        why="the same passage reads otherwise elsewhere, though nothing stands before it",
        # A rule of thumb, not a measurement: two layers and a softmax make more of the error of a score.
        float32=torch.tensor(moves).double() * 4 * SINGLE if spec.kind in ("rope", "alibi") else 0.0,
    )


@check("C32", "filler probe: the same passage after other text", unit="nats", needs=("forward",))
def after_filler(target: Target, found: Findings) -> None:
    """Reported: what length costs a model is no error of its positions. The only bound is one the target declares."""
    size = target.spec.vocabulary or VOCABULARY
    L, generator = 16, found.generator()
    ids = torch.randint(size, (1, L), generator=generator)

    def loss(logits: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(logits[0, -L:-1], ids[0, 1:])

    alone = loss(target.forward(target.build(), ids, torch.arange(L)[None])[0].double())
    for filler in below(target.spec, [16, 64, 256], L):
        text = torch.cat([torch.randint(size, (1, filler), generator=generator), ids], 1)
        logits = target.forward(target.build(), text, torch.arange(filler + L)[None])[0].double()
        cost = (loss(logits) - alone).abs().view(1)
        found.measure(f"cost after {filler} tokens", cost, found.bounds[0] if found.bounds else None, [filler], dim=0)
        found.note(f"{float(cost):.3g} nats after {filler}")
