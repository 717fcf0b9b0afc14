"""What attention sees: scores, norms, and passages that are moved as a whole: N03, N04, N05, C05, C28, C31, C32."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ropewalk.conformance import oracles
from ropewalk.conformance.checks import check
from ropewalk.conformance.findings import Findings, NotApplicable
from ropewalk.conformance.places import SHIFTS, below, settled, start_near
from ropewalk.conformance.surround import Surround, views
from ropewalk.conformance.target import Spec, Target

RELATIVE = ("rope", "alibi", "t5", "other")
SPAN = 4096
"""How far apart queries and keys are in the shift checks."""


def is_relative(spec: Spec) -> None:
    if spec.kind == "other" and not spec.relative:
        raise NotApplicable("this encoding is not relative, by its own spec")


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
        apart = torch.stack([(pair_scores(target, built, q, k, m + s, n + s) - near).abs().amax() for s in moves])
        found.measure(
            "change of q.k",
            apart / gain,
            found.bound,
            moves,
            dim=0,
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
            )


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
    spec = target.spec
    span, gain = span_of(spec), oracles.gains(spec)[0] ** 2
    try:
        built = target.build(dtype=torch.bfloat16)
    except Exception as error:
        raise NotApplicable(f"it does not build in bfloat16: {error}") from None
    H, K = spec.heads, spec.head_width
    N = max(2**18 // (H * K), 64)
    q, k = (found.normal(1, H, N, K, more=more).bfloat16() for more in range(2))
    m, n = (torch.randint(span, (N,), generator=found.generator(more)) for more in range(2))
    want = (oracles.rotate(q, m[None], spec) * oracles.rotate(k, n[None], spec)).sum(-1)[0] / math.sqrt(K)

    def error(s: int) -> float:
        return float((pair_scores(target, built, q, k, m + s, n + s) - want).square().mean().sqrt()) / gain

    near = error(0)
    first = found.measure("RMS error at the start", near, found.bounds[-1])
    first.why, first.unit = "more than storing q and k in bfloat16 costs", "on scores"
    moves = shifts(spec, span)
    ratio = torch.tensor([error(s) / near for s in moves], dtype=torch.float64)
    found.measure("RMS error, far over near", ratio, found.bound, moves, dim=0, why="the error grows with the position")
    found.note(f"RMS error near 0: {near:.2g}")


@check("N05", "rotation preserves norms", bound=3e-7, needs=("rotation",), kinds=("rope",))
def norms(target: Target, found: Findings) -> None:
    spec = target.spec
    positions = torch.tensor(below(spec, [0, 1, 257, 4095, 131_071, 1_000_000, 2**31, 2**36]))
    x = found.normal(1, spec.heads, len(positions), spec.head_width)
    after = turned(target, target.build(), x, positions)[..., : spec.rotary].norm(dim=-1)
    before = x[..., : spec.rotary].double().norm(dim=-1) * oracles.gains(spec)[0]
    found.compare(
        "|rotate(x)| / |x|",
        after / before,
        torch.ones_like(after),
        found.bound,
        positions,
        dim=2,
        why="a rotation changes no length but by the gain",
        reproduce=f"{rotated_ones(target, int(positions[-1]))}[..., : {spec.rotary}].norm(dim=-1)",
    )


@check(
    "C05",
    "whole attention scores, several far keys",
    bound=(2e-6, 2e-5),
    unit="on scores",
    needs=("rotation|bias|attend",),
    kinds=("rope", "alibi"),
)
def whole(target: Target, found: Findings) -> None:
    """Against the truth: the query far away, keys near it and far from it."""
    spec = target.spec
    H, K = spec.heads, spec.head_width
    gain = oracles.gains(spec)[0] ** 2 * oracles.gains(spec)[1]
    behind = torch.tensor([0, 1, 2, 7, 64, 511, 2048, 4000])
    for at in below(spec, [4_095, 131_071, 1_000_000, 2**31 + 1, 2**40 - 1]) or [start_near(spec, 4_095, 1)]:
        keys = within(spec, at, (at - behind).clamp(min=0).unique())
        q, k = found.normal(1, H, 1, K), found.normal(1, H, len(keys), K, more=1)
        where = torch.tensor([at])
        wants = truths(q, k, where, keys, spec)
        size = gain if spec.kind == "rope" else wants[0].abs().amax().clamp(min=1.0)
        built = target.build()
        if target.has("rotation") or (spec.kind == "alibi" and target.has("bias")):
            score = q.double() @ k.double().transpose(-1, -2)
            if target.has("rotation"):
                score = turned(target, built, q, where) @ turned(target, built, k, keys, "key").transpose(-1, -2)
            score = score / math.sqrt(K) * oracles.gains(spec)[1]
            if target.has("bias"):
                score = score + target.bias(built, where, keys).double()
            found.measure(
                f"scores at {at:,}",
                min((differences(score) - want).abs().amax() for want in wants).view(1) / size,
                found.bound,
                [at],
                dim=0,
                why="scores of one query against several keys are not the spec's",
            )
        if target.has("attend"):
            got = differences(seen_scores(target, built, q, k, where, keys))
            # A float32 softmax tells a score by its probability, and small ones are rounded coarsely.
            apart = min(torch.where(want > -12, (got - want).abs(), 0.0).amax() for want in wants).view(1) / size
            found.measure(
                f"scores of attend at {at:,}",
                apart,
                found.bounds[-1],
                [at],
                dim=0,
                why="the probabilities of one query over several keys are not the spec's",
            )


def within(spec: Spec, at: int, keys: Tensor) -> Tensor:
    """Those that a query sees through its window."""
    return keys if spec.window is None else keys[at - keys < spec.window]


def differences(score: Tensor) -> Tensor:
    """Scores less the largest of their row: all that a softmax sees."""
    return (score - score.amax(-1, keepdim=True))[0, :, 0]


def truths(q: Tensor, k: Tensor, at: Tensor, keys: Tensor, spec: Spec) -> list[Tensor]:
    """By the real frequencies; and by those of float32, where the spec lets a target have either. Which it has is told
    by the scores: queries alone can be another length, or turns apart, and the scores right."""
    found = [differences(oracles.scores(q, k, at[None], keys[None], spec))]
    if spec.kind == "rope" and spec.arithmetic == "float32":
        exact = spec.model_copy(update={"arithmetic": "exact"})
        omegas = oracles.frequencies32(exact)
        q_turned, k_turned = oracles.rotate(q, at[None], exact, omegas), oracles.rotate(k, keys[None], exact, omegas)
        score = q_turned @ k_turned.transpose(-1, -2) * oracles.gains(spec)[1] / math.sqrt(spec.head_width)
        found.append(differences(score))
    return found


def seen_scores(target: Target, built: object, q: Tensor, k: Tensor, at: Tensor, keys: Tensor) -> Tensor:
    """(1, H, L, S): logarithms of the probabilities that `attend` gives, read off values that are unit vectors."""
    H, K, S = target.spec.heads, target.spec.head_width, len(keys)
    if S > K:
        raise NotApplicable(f"{S} keys do not fit a head of {K}")
    v = torch.eye(S, K)[None, None].expand(1, H, S, K)
    share = target.attend(built, q, k, v.to(q.dtype), at[None], keys[None])[..., :S]
    return share.double().log()


@check(
    "C28", "keys are rotated exactly once", bound=1e-3, unit="on scores", needs=("rotation|attend",), kinds=("rope",)
)
def once(target: Target, found: Findings) -> None:
    spec = target.spec
    H, K = spec.heads, spec.head_width
    at = start_near(spec, 37, 1)
    some = torch.tensor(sorted({0, at // 7, at // 3, at // 2, at - 3, at - 2, at - 1, at}))
    where, keys = torch.tensor([at]), within(spec, at, some)
    q, k = found.normal(1, H, 1, K), found.normal(1, H, len(keys), K, more=1)
    scale, gain = oracles.gains(spec)[1] / math.sqrt(K), oracles.gains(spec)[0]

    def true(of_q: int, of_k: int) -> Tensor:
        a, b = oracles.rotate(q, where[None], spec, times=of_q), oracles.rotate(k, keys[None], spec, times=of_k)
        return differences(a @ b.transpose(-1, -2) * scale / gain ** (of_q + of_k - 2))

    built = target.build()
    got = {}
    if target.has("rotation"):
        score = turned(target, built, q, where) @ turned(target, built, k, keys, "key").transpose(-1, -2) * scale
        got["q.k of rotate"] = differences(score)
    if target.has("attend"):
        got["scores of attend"] = differences(seen_scores(target, built, q, k, where, keys))
    for name, score in got.items():
        result = found.compare(name, score, true(1, 1), found.bound)
        if not result.holds:
            times = [(a, b) for a in range(3) for b in range(3) if (a, b) != (1, 1)]
            best = min(times, key=lambda pair: float((score - true(*pair)).abs().amax()))
            if float((score - true(*best)).abs().amax()) < 0.05:
                result.why = f"queries look rotated {best[0]} and keys {best[1]} times"


@check(
    "C31",
    "shift probe: a passage alone scores the same anywhere",
    bound=(1e-5, 1e-4),
    unit="of the logits' size",
    needs=("rotation|bias|forward",),
    kinds=RELATIVE,
)
def moved(target: Target, found: Findings) -> None:
    spec = target.spec
    is_relative(spec)
    L = 12
    for view in views(target):
        model = view()
        ids = torch.randint(model.vocabulary, (1, L), generator=found.generator())
        start = torch.arange(L)[None]
        near = model(ids, start)[0]
        size = near.abs().amax()
        moves = shifts(spec, L)
        apart = torch.stack([(view()(ids, start + s)[0] - near).abs().amax() / size for s in moves])
        found.measure(
            f"logits, {model.name}",
            apart,
            found.bound if isinstance(model, Surround) else found.bounds[-1],
            moves,
            dim=0,
            why="the same passage reads otherwise elsewhere, though nothing stands before it",
        )


@check("C32", "filler probe: the same passage after other text", unit="nats", needs=("forward",))
def after_filler(target: Target, found: Findings) -> None:
    """Reported: what length costs a model is no error of its positions. The only bound is one the target declares."""
    (view,) = views(target)[-1:]
    model = view()
    L, generator = 16, found.generator()
    ids = torch.randint(model.vocabulary, (1, L), generator=generator)

    def loss(logits: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(logits[0, -L:-1], ids[0, 1:])

    alone = loss(model(ids, torch.arange(L)[None])[0])
    for filler in below(target.spec, [16, 64, 256], L):
        before = torch.randint(model.vocabulary, (1, filler), generator=generator)
        logits = view()(torch.cat([before, ids], 1), torch.arange(filler + L)[None])[0]
        cost = (loss(logits) - alone).abs().view(1)
        found.measure(f"cost after {filler} tokens", cost, found.bounds[0] if found.bounds else None, [filler], dim=0)
        found.note(f"{float(cost):.3g} nats after {filler}")
