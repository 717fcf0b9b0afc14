"""Which keys a few queries can reach, found from the bounds of blocks of keys: never a comparison of every pair.

A block of 128 keys is left out where the smallest and largest order and segment in it show that no query sees a key of
it. What a query sees of the keys that are left, the rule decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ropewalk.attention.rule import Rule
from ropewalk.positions import PAD, Positions

BLOCK = 128

Keys = slice | Tensor
"""Places of keys: a range, or a tensor of places where it has gaps."""


class Bounds(NamedTuple):
    """Smallest and largest order and segment of the tokens of each block, (B, blocks); padding counts for none."""

    first: Tensor
    last: Tensor
    low: Tensor
    high: Tensor


class Part(NamedTuple):
    """Some queries of a sequence and the keys that any of them can see."""

    queries: slice
    keys: Keys
    count: int
    """How many keys."""

    @property
    def pairs(self) -> int:
        return (self.queries.stop - self.queries.start) * self.count


def bounds(at: Positions, block: int = BLOCK) -> Bounds:
    far = torch.iinfo(torch.int64).max // 4
    fill = (-at.shape[1]) % block
    segment = F.pad(at.segment, (0, fill), value=PAD).unflatten(1, (-1, block))
    order = F.pad(at.order, (0, fill)).unflatten(1, (-1, block))
    token = segment != PAD
    return Bounds(
        torch.where(token, order, far).amin(-1),
        torch.where(token, order, -far).amax(-1),
        torch.where(token, segment, far).amin(-1),
        torch.where(token, segment, PAD).amax(-1),
    )


def may_see(rule: Rule, q: Bounds, k: Bounds) -> Tensor:
    """(B, blocks of queries, blocks of keys), False only where no query of the one sees a key of the other."""
    q, k = Bounds(*(part[:, :, None] for part in q)), Bounds(*(part[:, None, :] for part in k))
    may = (k.low <= q.high) & (q.low <= k.high) & (k.high != PAD) & (q.high != PAD)
    if rule.causal:
        may = may & (k.first <= q.last)
    if rule.window is not None:
        near = (q.first - k.last < rule.window) & (k.first - q.last < rule.window)
        may = may & (near | (k.first < rule.keep_first))
    return may


def parts(rule: Rule, q: Positions, k: Positions, most: int, fewest: int) -> Iterator[Part]:
    """Queries in turn with the keys they can see: at most `most` pairs, unless `fewest` queries have more. Queries that
    see nothing are left out."""
    length, found, start = q.shape[1], bounds(k), 0
    # Under a window, more queries at once would be compared with ever more keys that they do not see.
    longest = length if rule.window is None else max(rule.window, BLOCK, fewest)
    step = min(length, longest)
    while start < length:
        part = _part(rule, q, slice(start, min(start + step, length)), found, k.shape[1])
        if part.pairs > most and step > fewest:
            step = max(fewest, min(step // 2, most // part.count))
            continue
        if part.count:
            yield part
        start += step
        step = min(2 * step, longest)


def _part(rule: Rule, q: Positions, queries: slice, found: Bounds, keys: int) -> Part:
    own = bounds(q.take(queries), queries.stop - queries.start)
    blocks = may_see(rule, own, found).flatten(0, 1).any(0).nonzero()[:, 0]
    if len(blocks) == 0:
        return Part(queries, slice(0, 0), 0)
    first, last = int(blocks[0]) * BLOCK, min((int(blocks[-1]) + 1) * BLOCK, keys)
    if len(blocks) == -(-(last - first) // BLOCK):
        return Part(queries, slice(first, last), last - first)
    places = (blocks[:, None] * BLOCK + torch.arange(BLOCK, device=blocks.device)).flatten()
    places = places[places < keys]
    return Part(queries, places, len(places))
