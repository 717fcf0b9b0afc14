"""Biases on scores: N09, C22 to C26."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.conformance import oracles
from ropewalk.conformance.checks import check
from ropewalk.conformance.checks.scores import anchored, differences, seen_scores, within
from ropewalk.conformance.findings import Findings, NotApplicable
from ropewalk.conformance.places import SINGLE, below, start_near
from ropewalk.conformance.target import Spec, Target

FAR = (255, 4_095, 131_071, 2**24 + 4_099, 2**31 + 7)
"""Queries whose bias is looked at."""
FLAT = "its table holds the same number for every bucket; build it with random weights"
DISTANCES = (0, 1, 2, 3, 15, 16, 17, 127, 128, 129, 255, 256, 257, 1000, 2049, 4095, 65_537, 1_000_003, 2**24 - 1)


@check("N09", "biases are exact", bound=2.4e-7, unit="of the bias", needs=("bias",), kinds=("alibi",))
def exact(target: Target, found: Findings) -> None:
    """Distance times its own slope, which is read off the first two positions: C23 looks at slopes."""
    spec, built = target.spec, target.build()
    slopes = -anchored(target, built, twice(1), torch.tensor([0]), 0)[:, 0]  # (H, 1)
    for at in below(spec, FAR) or [start_near(spec, 255, 1)]:
        keys = torch.tensor(sorted(at - d for d in DISTANCES if d <= at))
        want = -slopes * (at - keys).double()
        size = want.abs().clamp(min=torch.finfo(torch.float32).tiny)
        apart = (anchored(target, built, twice(at), keys, 0)[:, 0] - want).abs() / size
        result = found.measure(
            f"bias of the query at {at:,}",
            apart,
            found.bound,
            at - keys,
            dim=1,
            float32=SINGLE * at / (at - keys).clamp(min=1).double(),
        )
        if not result.holds:
            d = result.at or 0
            result.why = f"off at a distance of {d:,}; what is called position here is a distance"
            result.reproduce = f"target.bias(built, torch.tensor([{at}]), torch.tensor([{at - d}, {at}]))"


def twice(at: int) -> Tensor:
    """One query, and itself again: what one query alone gets is C26's matter."""
    return torch.tensor([at, at])


def in_buckets(target: Target, found: Findings, built: Any, at: int, keys: Tensor) -> None:
    """Each distance has the very number of its bucket: those at one distance known to be in it."""
    spec = target.spec
    wanted = oracles.buckets_of(keys - at, spec)
    known: dict[int, int] = {}
    reach = 2 * spec.farthest
    around = range(-reach, reach + 1) if spec.bidirectional else range(-reach, 1)
    for ahead in sorted(around, key=abs):
        known.setdefault(int(oracles.buckets_of(torch.tensor(ahead), spec)), ahead)
    # Sample distances are asked for where they are short, so that a wrong far one cannot vouch for itself.
    middle = start_near(spec, 4 * reach, reach)
    one = torch.tensor(list(known.values()))
    table = target.bias(built, twice(middle), middle + one)[:, 0].double()
    columns = {bucket: table[:, n] for n, bucket in enumerate(known)}
    if (table == table[:, :1]).all():
        raise NotApplicable(FLAT)
    alike = [(a, b) for a in columns for b in columns if a < b and torch.equal(columns[a], columns[b])]
    if alike:
        a, b = (known[bucket] for bucket in alike[0])
        found.require("buckets differ", False, f"distances {a} and {b} have one number, and should be in two buckets")
        return
    got = target.bias(built, twice(at), keys)[:, 0].double()
    want = torch.stack([columns[int(bucket)] for bucket in wanted], dim=-1)
    result = found.compare(f"bias of the query at {at:,}", got, want, 0.0, (keys - at).abs(), dim=1)
    if not result.holds:
        result.why = f"distance {result.first_position:,} is in the wrong bucket; what is called position is a distance"
        result.reproduce = f"target.bias(built, torch.tensor([{at}]), torch.tensor([{at - (result.at or 0)}]))"


@check("C22", "tensor-parallel head slices match the whole", bound=2.4e-7, needs=("rotation|bias",))
def heads(target: Target, found: Findings) -> None:
    spec, built = target.spec, target.build()
    H = spec.heads
    if H < 2:
        raise NotApplicable("there is one head")
    first, count = H // 2, H - H // 2
    start = start_near(spec, 1_000, 6)
    positions = torch.arange(start, start + 5)
    why = "heads on the second of two ranks get other heads' positions"
    if target.has("bias"):
        if not target.takes("bias", "heads"):
            raise NotApplicable("its bias takes no heads=(first, count), so that a rank's share cannot be asked for")
        whole = target.bias(built, positions, positions)
        part = target.bias(built, positions, positions, heads=(first, count))
        size = whole.double().abs().amax().clamp(min=1.0)
        found.compare("bias", part, whole[first:], found.bound, scale=size, why=why)
    if target.has("rotation"):
        x = found.normal(1, H, 5, spec.head_width)
        whole = target.rotate(built, x, positions[None])
        part = target.rotate(built, x[:, first:].contiguous(), positions[None])
        found.compare("rotate", part, whole[:, first:], found.bound, dim=2, scale=x.abs().amax(), why=why)
        if spec.kind == "rope":
            alike = target.rotate(built, x[:, :1].expand_as(x).contiguous(), positions[None])
            one = alike[:, :1].expand_as(alike)
            said = "some heads are rotated otherwise than the first"
            found.compare("every head the same", alike, one, found.bound, dim=1, scale=x.abs().amax(), why=said)


@check(
    "C23", "ALiBi's slopes, 1 to 128 heads", bound=1e-6, unit="of the slope", needs=("slopes|bias",), kinds=("alibi",)
)
def alibi_slopes(target: Target, found: Findings) -> None:
    if target.has("slopes"):
        for count in range(1, 129):
            got = torch.tensor([float(slope) for slope in target.function("slopes")(count)], dtype=torch.float64)
            want = torch.tensor(oracles.slopes(count), dtype=torch.float64)
            result = found.compare(f"slopes of {count} heads", got, want, found.bound, scale=want)
            if not result.holds:
                result.why = slope_cause(got, want, count)
                result.reproduce = f"target.slopes({count})"
    if target.has("bias"):
        built, want = target.build(), torch.tensor(oracles.slopes(target.spec.heads), dtype=torch.float64)
        # Their sign is C24's matter.
        got = anchored(target, built, twice(1), torch.tensor([0]), 0)[:, 0, 0].abs()
        result = found.compare("slopes of the bias", got, want, found.bound, scale=want)
        if not result.holds:
            result.why = slope_cause(got, want, target.spec.heads)
            result.reproduce = "target.bias(built, torch.tensor([1]), torch.tensor([0, 1]))"


def slope_cause(got: Tensor, want: Tensor, count: int) -> str:
    if torch.allclose(got, want, rtol=2**-8, atol=0):
        return (
            f"the slopes of {count} heads are right but for rounding, up to {float((got / want - 1).abs().max()):.1g}"
        )
    if torch.allclose(got.sort().values, want.sort().values, rtol=1e-5, atol=0):
        return f"the slopes of {count} heads are right and in another order"
    plain = torch.tensor([2.0 ** (-8 * h / count) for h in range(1, count + 1)], dtype=torch.float64)
    if torch.allclose(got, plain, rtol=1e-5, atol=0):
        return f"2^(-8h/{count}) was taken as it stands, though {count} is no power of two"
    return f"the slopes of {count} heads are not the paper's"


@check("C24", "ALiBi's sign and scale order", bound=1e-3, unit="on scores", needs=("bias|attend",), kinds=("alibi",))
def alibi_order(target: Target, found: Findings) -> None:
    near, far = (start_near(target.spec, at, 1) for at in (40, 131_071))
    ordered(target, found, near)
    # Far out a narrow bias is rounded, which is no matter of its sign; `attend` is compared with it as it is.
    if far != near and target.has("attend"):
        ordered(target, found, far, signs=False)


def ordered(target: Target, found: Findings, at: int, *, signs: bool = True) -> None:
    spec, built = target.spec, target.build()
    keys = within(spec, at, torch.tensor(sorted({at, at - 1, at - 2, at - 5, at - 11, max(at - 30, 0)})))
    where = torch.tensor([at])
    if target.has("bias") and signs:
        bias = anchored(target, built, twice(at), keys, 0)[:, 0]
        rises = bool((bias.diff(dim=-1) > 0).all()) and bool((bias <= 0).all())
        found.require("nearer keys are favoured", rises, "the bias does not fall with distance: its sign is wrong")
    if target.has("attend"):
        q, k = (found.normal(1, spec.heads, len(keys), spec.head_width, more=more) for more in range(2))
        want = q[:, :, -1:].double() @ k.double().transpose(-1, -2) / math.sqrt(spec.head_width)
        own = (
            target.bias(built, twice(at), keys)[:, :1] if target.has("bias") else oracles.alibi(spec.heads, where, keys)
        )
        want = differences(want + own.double())
        got = differences(seen_scores(target, built, q, k, keys)[:, :, -1:])
        apart = torch.where(want > -12, (got - want).abs(), 0.0)
        found.measure(
            "q.k / sqrt(K) + bias",
            apart,
            found.bound,
            why="the bias is not added after 1/sqrt(K)",
        )


@check("C25", "T5's buckets, one-way and two-way", bound=0.0, needs=("buckets|bias",), kinds=("t5",))
def t5_buckets(target: Target, found: Findings) -> None:
    spec = target.spec
    if target.has("buckets"):
        for two_way in (False, True):
            ahead = torch.arange(-4 * spec.farthest, 4 * spec.farthest + 1 if two_way else 1)
            want = oracles.buckets_of(ahead, spec.model_copy(update={"bidirectional": two_way}))
            got = torch.as_tensor(target.function("buckets")(ahead, two_way))
            way = "two-way" if two_way else "one-way"
            result = found.compare(f"buckets, {way}", got, want, found.bound, ahead.abs(), dim=0)
            if not result.holds:
                result.reproduce = f"target.buckets(torch.tensor([-{result.first_position}]), {two_way})"
    if target.has("bias"):
        by_table(target, found)
        reach = 4 * spec.farthest
        middle = start_near(spec, 3 * reach, reach)
        reach = min(reach, middle)
        keys = torch.arange(middle - reach, middle + (reach if spec.bidirectional else 0) + 1)
        in_buckets(target, found, target.build(), middle, torch.tensor(below(spec, keys.tolist())))
        for at in below(spec, FAR):
            in_buckets(target, found, target.build(), at, torch.tensor(sorted(at - d for d in DISTANCES if d <= at)))
        if target.has("attend"):
            for at in dict.fromkeys(start_near(spec, at, 1) for at in (300, 131_071)):
                in_attention(target, found, at)


def in_attention(target: Target, found: Findings, at: int) -> None:
    """Its own bias in the scores that `attend` sees, which T5 does not divide by sqrt(K) and others do."""
    spec, built = target.spec, target.build()
    K = spec.head_width
    behind = torch.tensor([0, 1, 2, 5, 9, 17, 40, 200][: max(K, 2)])
    keys = within(spec, at, (at - behind).clamp(min=0).unique())
    q, k = (found.normal(1, spec.heads, len(keys), K, more=more) / K**0.25 for more in range(2))
    scores = q[:, :, -1:].double() @ k.double().transpose(-1, -2)
    bias = target.bias(built, twice(at), keys)[:, :1].double()
    got = differences(seen_scores(target, built, q, k, keys)[:, :, -1:])
    wanted = [differences(scores * scale + bias) for scale in (1.0, 1 / math.sqrt(K))]
    apart = min(
        (torch.where(want > -12, (got - want).abs(), 0.0) for want in wanted), key=lambda one: float(one.amax())
    )
    why = "the bias of attend is another than its own, or is scaled with q.k"
    found.measure(f"q.k + bias of the query at {at:,}", apart, 1e-3, at - keys, dim=1, why=why)


def bucket_tables(spec: Spec, built: nn.Module) -> list[nn.Parameter]:
    """One of them is T5's; where there are several it is not known which."""
    sizes = {(spec.buckets, spec.heads), (spec.heads, spec.buckets)}
    return [parameter for parameter in built.parameters() if tuple(parameter.shape) in sizes]


def flat(spec: Spec, built: object) -> bool:
    """Whether T5's table gives every distance the same number, as one that is filled with zeros does."""
    tables = bucket_tables(spec, built) if spec.kind == "t5" and isinstance(built, nn.Module) else []
    return bool(tables) and all(bool((table == table.flatten()[0]).all()) for table in tables)


def by_table(target: Target, found: Findings) -> None:
    """Which row of its table each distance reads: a bias alone does not tell buckets that changed places."""
    spec, built = target.spec, target.build()
    tables = bucket_tables(spec, built) if isinstance(built, nn.Module) else []
    if len(tables) != 1 or spec.buckets == spec.heads:
        found.note("its table is not known: buckets that changed places are not seen")
        return
    table = tables[0] if tables[0].shape[0] == spec.buckets else tables[0].T
    table.data.copy_(torch.arange(spec.buckets)[:, None].expand_as(table))
    middle = start_near(spec, 2 * spec.farthest, 2 * spec.farthest)
    ahead = torch.arange(-min(2 * spec.farthest, middle), 2 * spec.farthest if spec.bidirectional else 1)
    got = target.bias(built, twice(middle), middle + ahead)[:, 0].double()
    # Up to one factor, that of implementations that scale their bias.
    got = got / got.abs().amax().clamp(min=1e-30)
    want = oracles.buckets_of(ahead, spec).double()
    want = (want / want.amax()).expand_as(got)
    found.compare("the row of its table", got, want, 1e-6, ahead.abs(), dim=1, why="a distance reads another row")


@check("C26", "decoding uses the right row of the bias", bound=2.4e-7, needs=("bias",))
def decoding(target: Target, found: Findings) -> None:
    spec = target.spec
    start = start_near(spec, 0, 40)
    positions = torch.arange(start, start + 40)
    whole = target.bias(target.build(), positions, positions)
    built, rows = target.build(), []
    for n in range(30, 40):
        row = target.bias(built, positions[n : n + 1], positions[: n + 1])
        if row.shape[-2:] != (1, n + 1):
            raise ValueError(f"the bias of one query on {n + 1} keys has shape {tuple(row.shape)}, not (H, 1, {n + 1})")
        rows.append(row)
        size = whole.double().abs().amax().clamp(min=1.0)
        why = "one query alone is taken for the first of the sequence, or the bias depends on how many there are"
        own, full = (
            part - part[..., n : n + 1] if spec.kind == "alibi" else part for part in (row[:, 0], whole[:, n, : n + 1])
        )
        apart = ((own - full).double().abs() / size).amax().view(1)
        found.measure(
            f"query {n} alone",
            apart,
            found.bound,
            [int(positions[n])],
            dim=0,
            why=why,
            reproduce=f"target.bias(built, torch.tensor([{n}]), torch.arange({n + 1}))",
        )
