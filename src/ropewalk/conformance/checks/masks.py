"""Attention masks: C19, C20, C37."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ropewalk.conformance.checks import check
from ropewalk.conformance.findings import Findings, NotApplicable
from ropewalk.conformance.places import start_near
from ropewalk.conformance.surround import VOCABULARY
from ropewalk.conformance.target import Target


def visible(target: Target, found: Findings, q_positions: Tensor, k_positions: Tensor) -> Tensor:
    """(L, S): whether any head gives this key a share, read off values that are unit vectors."""
    H, K, S = target.spec.heads, target.spec.head_width, len(k_positions)
    q = found.normal(1, H, len(q_positions), K) / 8
    k = found.normal(1, H, S, K, more=1) / 8
    seen = []
    for first in range(0, S, K):
        v = torch.zeros(S, K)
        count = min(K, S - first)
        v[first : first + count, :count] = torch.eye(count)
        values = v[None, None].expand(1, H, S, K)
        share = target.attend(target.build(), q, k, values, q_positions[None], k_positions[None])
        seen.append(share[0, ..., :count].abs().amax(0) > 1e-30)
    return torch.cat(seen, dim=-1)


def hold_counts(found: Findings, name: str, seen: Tensor, want: Tensor, q: Tensor, why: str) -> None:
    result = found.measure(name, (seen != want).double().sum(-1), found.bound, q, dim=0)
    if not result.holds:
        row = int((seen != want).any(-1).double().argmax())
        result.why = (
            f"{why}: the query at {int(q[row])} sees {int(seen[row].sum())} keys, {int(want[row].sum())} is right"
        )


@check("C19", "causal alignment when L != S", bound=0.0, unit="keys", needs=("attend|forward",))
def alignment(target: Target, found: Findings) -> None:
    if target.spec.bidirectional:
        raise NotApplicable("this encoding looks both ways, by its own spec")
    if target.has("attend"):
        start = start_near(target.spec, 500, 12)
        for count, keys in ((3, 8), (1, 8), (8, 8), (5, 9)):
            k = torch.arange(start, start + keys)
            q = k[-count:]
            want = k[None] <= q[:, None]
            seen = visible(target, found, q, k)
            if target.spec.window is not None:  # where it ends is C20's matter
                outside = q[:, None] - k[None] >= target.spec.window
                seen, want = seen & ~outside, want & ~outside
            hold_counts(
                found, f"{count} queries, {keys} keys", seen, want, q, "the triangle is anchored at the wrong end"
            )
    if target.has("forward"):
        by_change(target, found)
    if not found.compared:
        raise NotApplicable("its window is narrower than the texts that this looks at")


def by_change(target: Target, found: Findings) -> None:
    """Of a whole model: a token changed must change what follows it, in its own chunk and in the next, and no more."""
    spec, before, count = target.spec, 5, 3
    if spec.window is not None and spec.window < before + count:
        return
    size = spec.vocabulary or VOCABULARY
    ids = torch.randint(size, (1, before + count), generator=found.generator())
    positions = torch.arange(before + count)[None]

    def last(ids: Tensor) -> Tensor:
        built: Any = target.build()
        _, cache = target.forward(built, ids[:, :before], positions[:, :before])
        return target.forward(built, ids[:, before:], positions[:, before:], cache)[0].double()[0]

    plain = last(ids)
    seen = torch.zeros(count, before + count, dtype=torch.bool)
    for j in range(before + count):
        other = ids.clone()
        other[0, j] = (other[0, j] + 1) % size
        seen[:, j] = (last(other) - plain).abs().amax(-1) > 1e-9 * plain.abs().amax()
    q = torch.arange(before, before + count)
    want = torch.arange(before + count)[None] <= q[:, None]
    hold_counts(found, "a chunk after a cache", seen, want, q, "the triangle is anchored at the wrong end")


@check("C20", "a window of W includes the token itself", bound=0.0, unit="keys", needs=("attend",))
def window(target: Target, found: Findings) -> None:
    W = target.spec.window
    if W is None:
        raise NotApplicable("no window is declared")
    length = min(2 * W + 3, 4 * target.spec.head_width)
    start = start_near(target.spec, 500, length)
    k = torch.arange(start, start + length)
    q = k[-min(length, W + 4) :]
    want = (k[None] <= q[:, None]) & (q[:, None] - k[None] < W)
    if bool((want.sum(-1) < W).all()):
        raise NotApplicable(f"a window of {W:,} is wider than the texts that this looks at")
    hold_counts(found, f"window {W}", visible(target, found, q, k), want, q, "the window is off")


@check(
    "C37",
    "packed and sharded together: documents stay apart",
    bound=2e-5,
    needs=("attend",),
)
def packed_shards(target: Target, found: Findings) -> None:
    """Two documents in one row, cut over two ranks as ring attention does; each must read as it does alone."""
    if not target.takes("attend", "documents"):
        raise NotApplicable("its attend takes no documents")
    if target.spec.bidirectional:
        raise NotApplicable("this encoding looks both ways, by its own spec")
    spec, lengths = target.spec, (6, 10)
    L = sum(lengths)
    start = start_near(spec, 300, L)
    places = torch.cat([torch.arange(start, start + length) for length in lengths])
    documents = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    q, k, v = (found.normal(1, spec.heads, L, spec.head_width, more=more) for more in range(3))
    built = target.build()

    def read(queries: Tensor, keys: Tensor, at: Tensor, of: Tensor | None) -> Tensor:
        more = {} if of is None else {"documents": (of[queries][None], of[keys][None])}
        parts = q[:, :, queries], k[:, :, keys], v[:, :, keys]
        return target.attend(built, *parts, at[queries][None], at[keys][None], **more)

    whole = torch.arange(L)
    ranks = torch.tensor([0, 1, 2, 3, 12, 13, 14, 15]), torch.arange(4, 12)
    line = torch.arange(start, start + L)
    one = read(whole, whole, line, None)
    if float((read(whole, torch.cat(ranks), line, None) - one).abs().max()) > found.bound:
        raise NotApplicable("keys of one document in another order are wrong already: see C21")
    alone = torch.cat([read(part, part, places, None) for part in whole.split(lengths)], 2)
    why = "a query sees keys of another document"
    got = read(whole, whole, places, documents)
    found.compare("packed, in one piece", got, alone, found.bound, places, dim=2, why=why)
    for rank, mine in enumerate(ranks):
        ring = torch.cat([mine, ranks[1 - rank]])
        if float((read(mine, ring, line, None) - one[:, :, mine]).abs().max()) > found.bound:
            found.note("one document cut over ranks is wrong already: see C19 and C21")
            continue
        got = read(mine, ring, places, documents)
        found.compare(
            f"packed, rank {rank} of 2", got, alone[:, :, mine], found.bound, places[mine], dim=2,
            why="cut over ranks, a query sees keys of another document, or misses some of its own",
        )  # fmt: skip
