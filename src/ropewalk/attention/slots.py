"""Where the keys of a cache sit: the positions of its slots, shared by all layers that keep the same tokens.

Layers of one rule hold keys of the same tokens in the same slots. So where the next tokens go, and which keys they see,
is worked out once a pass, by the first of these layers, and the others follow.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple, Self

import torch
from torch import Tensor

from ropewalk.attention.rule import Rule, Seen
from ropewalk.positions import PAD, Positions
from ropewalk.torch_private import assert_in_graph, can_assert, watched

Where = slice | tuple[Tensor, Tensor]
"""Slots to write: the same for every row, or (rows, slots)."""

NONE = -(2**62)
"""An order below every order of a token, which may be negative."""


class Lost(NamedTuple):
    """What a ring has overwritten, in each row: (B,) int64."""

    order: Tensor
    """The largest order in the document that lost a key last; NONE where none did."""
    segment: Tensor
    """That document; PAD where there is none."""
    least: Tensor
    most: Tensor
    """Of all documents that lost keys the smallest and the largest number."""

    @classmethod
    def nothing(cls, batch: int, device: torch.device | str | None) -> Lost:
        order, segment, least = (
            torch.full((batch,), value, dtype=torch.int64, device=device) for value in (NONE, PAD, -NONE)
        )
        return cls(order, segment, least, segment)


class Slots:
    def __init__(
        self,
        batch: int,
        capacity: int,
        *,
        limit: int,
        rule: Rule,
        slack: int = 0,
        axes: int | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        self.rule, self.limit = rule, limit
        window = rule.window if rule.causal and not rule.keep_first else None
        # Only keys within the window are seen again, so a ring of that size loses nothing; `slack` more of them let the
        # newest be taken back (a rejected draft), which moves the window back.
        self.ring = window is not None and window + slack < capacity
        self.capacity = window + slack if self.ring and window is not None else capacity
        count = self.capacity + 1  # the last takes what is padding and is never read
        self.index = torch.zeros(
            (batch, count) if axes is None else (batch, count, axes), dtype=torch.int64, device=device
        )
        self.order = torch.zeros(batch, count, dtype=torch.int64, device=device)
        self.segment = torch.full((batch, count), PAD, dtype=torch.int64, device=device)
        self.written = torch.zeros(batch, dtype=torch.int64, device=device)
        """Tokens written to each row since it was last in order: the next goes to this slot, modulo the capacity."""
        self.level: int | None = 0
        """The same number where it is known on the host to be one for all rows; None where it is not."""
        self.filled = 0
        """Slots that any row uses, at most: a host integer, so that reading needs no synchronisation."""
        self.lost = Lost.nothing(batch, device)
        self.layers = 1
        """That keep these positions: what changes the positions must be done to all of them."""
        self.turn = 0
        """Which of them takes its tokens next; 0 between passes. Not a count of passes: a compiled step is given every
        number that changes from pass to pass, and inductor (torch 2.13) loses the names of such that are compared."""
        # Of the pass under way: its tokens, the keys they see, where they go, and how many old keys stand before them.
        self.queries: Positions | None = None
        self.keys: Positions | None = None
        self.seen: Seen | None = None
        self.where: Where = slice(0)
        self.before: int | None = None

    def check(self, at: Positions) -> None:
        """Refuses tokens that cannot come after those here, and changes nothing."""
        if at.limit != self.limit:
            new = at.shape[1]
            index = "cache.next[:, None]" if new == 1 else f"cache.next[:, None] + torch.arange({new})"
            raise ValueError(
                f"positions of limit {at.limit} cannot join a cache of limit {self.limit}: one generation, one limit. "
                f"With a cache, say where the tokens are: at=positions.explicit({index}, limit={self.limit})"
            )
        new = at.shape[1]
        if not self.ring and self.filled + new > self.capacity and not self._room(at):
            raise ValueError(
                f"{new} keys do not fit: {self.filled} of {self.capacity} slots are used; "
                "allocate a larger capacity, or crop or evict first"
            )
        if self.ring and new and self.filled == self.capacity:
            self._refuse_lost(at)

    def advance(self, at: Positions) -> None:
        """Makes room for these tokens, the next of every layer."""
        self.check(at)
        new = at.shape[1]
        every = at.expanded(len(self.written))
        # A ring may overwrite, with the last of these tokens, keys that the first of them still see.
        self.before = self.filled if self.ring and new > 1 else None
        joined = None if self.before is None else self.read().join(every)
        self._write(every, full=at.is_plain)
        self.queries, self.keys = at, self.read() if joined is None else joined
        self.seen = None if torch.compiler.is_compiling() else Seen(at, self.keys, self.rule)

    def _room(self, at: Positions) -> bool:
        """Whether these tokens fit. `filled` counts places, padding among them, and needs no device; only where that is
        too many are the tokens of each sequence counted, which waits for one."""
        if watched(at.segment):
            return False
        return int((self.written + (at.segment != PAD).sum(dim=1)).max()) <= self.capacity

    def read(self) -> Positions:
        n = self.filled
        return Positions(self.index[:, :n], self.order[:, :n], self.segment[:, :n], self.limit)

    @property
    def next(self) -> Tensor:
        """(B,) the order of the token that comes next in each row, its largest and one more; 0 in an empty row."""
        held = self.segment != PAD
        return torch.where(held.any(dim=1), torch.where(held, self.order, NONE).amax(dim=1) + 1, 0)

    def without(self, gone: Tensor) -> Tensor:
        """The segments of the slots without the keys where this (B, slots) mask, over some slots or all, is True; for
        `evict`. Refuses what a ring could not answer for, and changes nothing."""
        where = torch.zeros_like(self.segment, dtype=torch.bool)
        where[:, : gone.shape[1]] = gone
        segment = self.segment.masked_fill(where, PAD)
        self._refuse_reaching_back(segment, self.order, self.lost.order)
        return segment

    def evict(self, segment: Tensor) -> Tensor:
        """Keeps the keys that are left in these segments; returns the new order of slots: those that are left, as they
        were written, from the first on."""
        self.segment = segment
        slots = torch.arange(self.capacity, device=self.order.device)
        # In a ring that has come round, the oldest key sits where the next would be written.
        first = torch.where(self.written > self.capacity, self.written % self.capacity, 0)
        age = (slots - first[:, None]) % self.capacity
        left = self.segment[:, : self.capacity] != PAD
        place = torch.where(left, age, age + self.capacity).argsort(dim=1)
        place = torch.cat([place, torch.full_like(place[:, :1], self.capacity)], dim=1)
        row = torch.arange(len(place), device=place.device)[:, None]
        self.index, self.order, self.segment = (part[row, place] for part in (self.index, self.order, self.segment))
        self.written = left.sum(dim=1)
        counts = self.written.tolist()
        self.filled = max(counts, default=0)
        self.level = self.filled if len(set(counts)) == 1 else None
        return place

    def steps(self, delta: int | Tensor, start: int) -> tuple[Tensor, Lost]:
        """How far each slot's key moves where those at order `start` and after do, and `lost` then; for `move`."""
        delta = torch.as_tensor(delta, device=self.order.device)
        moved = (self.segment != PAD) & (self.order >= start)
        step = torch.where(moved, delta[:, None] if delta.ndim else delta, 0)
        self._refuse_leaving(moved, step)
        self._refuse_crossing(self.order[moved], (self.order + step)[moved])
        lost = self.lost.order
        lost = torch.where((lost >= start) & (lost > NONE), lost + delta, lost)
        self._refuse_reaching_back(self.segment, self.order + step, lost)
        return step, self.lost._replace(order=lost)

    def _refuse_leaving(self, moved: Tensor, step: Tensor) -> None:
        """Keys moved before position 0 or past the limit: no token could be numbered after them."""
        index = self.index[moved] + (step[moved] if self.index.ndim == 2 else step[moved][:, None])
        order = self.order[moved] + step[moved]
        if not len(order):
            return
        smallest, largest = min(int(index.min()), int(order.min())), int(index.max())
        if smallest < 0 or largest >= self.limit:
            far = smallest if smallest < 0 else largest
            raise ValueError(
                f"this shift moves a key to position {far:,}, outside [0, {self.limit:,}), the cache's limit; shift by "
                "less, drop those keys first, or allocate the cache with a larger limit"
            )

    def _refuse_crossing(self, before: Tensor, after: Tensor) -> None:
        kept = self.rule.keep_first
        if kept and bool(((before < kept) != (after < kept)).any()):
            raise ValueError(
                f"this shift moves keys into or out of orders below {kept}, which stay visible past the window "
                f"(keep_first): shift those after them alone, start={kept} or more, and by no more than lies between"
            )

    def move(self, step: Tensor, lost: Lost) -> None:
        self.index = self.index + (step if self.index.ndim == 2 else step[..., None])
        self.order, self.lost = self.order + step, lost

    def select(self, rows: Tensor) -> Self:
        other = copy(self)
        other.layers = 1
        for name in ("index", "order", "segment", "written"):
            setattr(other, name, getattr(self, name).index_select(0, rows))
        other.lost = Lost(*(part.index_select(0, rows) for part in self.lost))
        return other

    def _write(self, at: Positions, *, full: bool) -> None:
        """`full`: none of these places is padding. Looked up where that costs no synchronisation."""
        new, token = at.shape[1], at.segment != PAD
        if not new:
            self.where = slice(0)
            return
        known = full or (at.segment.device.type == "cpu" and not torch.compiler.is_compiling() and bool(token.all()))
        level = self.level if known else None
        if level is not None and (not self.ring or (new == 1 and level < self.capacity)):
            self.where = slice(level, level + new)
            for held, given in zip((self.index, self.order, self.segment), at[:3], strict=True):
                held[:, self.where] = given
            self.written = self.written + new
        else:
            self._scatter(at, token)
        self.level = None if level is None else level + new
        self.filled = min(self.filled + new, self.capacity)

    def _scatter(self, at: Positions, token: Tensor) -> None:
        rank = token.cumsum(dim=1)
        slot = self.written[:, None] + rank - 1
        if self.ring:
            # Of more tokens than the ring holds, only the last ones are kept.
            kept = token & (rank > rank[:, -1:] - self.capacity)
            slot = slot % self.capacity
            self.lost = self._losing(torch.where(kept, slot, self.capacity), at, token & ~kept)
            token = kept
        slot = torch.where(token, slot, self.capacity)
        row = torch.arange(len(slot), device=slot.device)[:, None]
        self.index[row, slot], self.order[row, slot], self.segment[row, slot] = at.index, at.order, at.segment
        self.segment[:, self.capacity] = PAD
        self.written = self.written + rank[:, -1]
        self.where = (row, slot)

    def _losing(self, slot: Tensor, at: Positions, skipped: Tensor) -> Lost:
        """`lost` when these slots have been overwritten, and the tokens skipped."""
        before = self.lost
        overwritten, passed = self.segment.gather(1, slot), torch.where(skipped, at.segment, PAD)
        segment = torch.cat([before.segment[:, None], overwritten, passed], dim=1)
        order = torch.cat([before.order[:, None], self.order.gather(1, slot), at.order.expand_as(skipped)], dim=1)
        gone, place = segment != PAD, torch.arange(segment.shape[1], device=segment.device)
        last = segment.gather(1, torch.where(gone, place, 0).amax(dim=1, keepdim=True))
        return Lost(
            torch.where(gone & (segment == last), order, NONE).amax(dim=1),
            last[:, 0],
            torch.minimum(before.least, torch.where(gone, segment, -NONE).amin(dim=1)),
            torch.maximum(before.most, segment.amax(dim=1)),
        )

    def _refuse_lost(self, at: Positions) -> None:
        """A ring keeps the last keys that were written, a window is of orders: where orders repeat or go back, a token
        would see keys that are gone. Read on the host where that costs no synchronisation, else asserted."""
        every = at.expanded(len(self.written))
        token = every.segment != PAD
        lost = self.lost
        if at.shape[1] == 1:  # it overwrites a key before it reads; several tokens read what they overwrite
            slot = torch.where(token, self.written[:, None] % self.capacity, self.capacity)
            lost = self._losing(slot, every, torch.zeros_like(token))
        order, last, least, most = (part[:, None] for part in lost)
        assert self.rule.window is not None
        seen = every.order + 1 - self.rule.window <= order
        # Of the document that lost a key last it is known how far; of an earlier one nothing is.
        earlier = (every.segment >= least) & (every.segment <= most)
        gone = (token & torch.where(every.segment == last, seen, earlier)).any()
        says = (
            f"this layer keeps a ring of its last {self.capacity} keys (window {self.rule.window}), and a token here "
            "would see older ones that are gone: orders must rise from token to token, and a document that others came "
            "after cannot be continued. Allocate the cache with more slack, or recompute from the text"
        )
        if watched(gone) or gone.device.type != "cpu":
            if can_assert():
                assert_in_graph(~gone, says)
        elif bool(gone):
            raise ValueError(says)

    def _refuse_reaching_back(self, segment: Tensor, order: Tensor, lost: Tensor) -> None:
        """Taking back or moving tokens may move the window back, over keys that a ring no longer has."""
        if not self.ring or self.rule.window is None:
            return
        newest = torch.where(segment == PAD, NONE, order).amax(dim=1)
        if bool(((lost > NONE) & (newest + 2 - self.rule.window <= lost)).any()):
            raise ValueError(
                f"this layer keeps a ring of its last {self.capacity} keys (window {self.rule.window}); the next token "
                "would see older ones that are gone. Allocate the cache with more slack, or recompute from the text"
            )
