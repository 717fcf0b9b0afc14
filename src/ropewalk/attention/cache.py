"""Keys and values of what came before, each key carrying its own position.

A key's position is stored, never derived from its place: `next` is not the number of keys. Rows of a batch fill up at
their own pace, padding takes no room, and a layer with a window keeps a ring of its last keys. The operations a server
needs are exact: crop (take back), evict (drop some), shift (move keys to other positions), fork, select (beams).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from ropewalk.attention.rule import Rule
from ropewalk.encodings import Encoding
from ropewalk.plan import Plan
from ropewalk.positions import PAD, Positions


class LayerCache:
    """The cache of one layer. Keys (B, G, C, K) are stored as rotated; C slots are allocated once."""

    def __init__(
        self,
        batch: int,
        capacity: int,
        heads: int,
        key_width: int,
        value_width: int | None = None,
        *,
        limit: int,
        rule: Rule | None = None,
        slack: int = 0,
        axes: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        self.rule = Rule() if rule is None else rule
        window = self.rule.window if self.rule.causal and not self.rule.keep_first else None
        # Only keys within the window are seen again, so a ring of that size loses nothing; `slack` more of them let the
        # newest be taken back (a rejected draft), which moves the window back.
        self.ring = window is not None and window + slack < capacity
        self.capacity = window + slack if self.ring and window is not None else capacity
        self.limit = limit
        slots = self.capacity + 1  # the last takes what is padding and is never read
        values = key_width if value_width is None else value_width
        self.k = torch.zeros(batch, heads, slots, key_width, dtype=dtype, device=device)
        self.v = torch.zeros(batch, heads, slots, values, dtype=dtype, device=device)
        self.index = torch.zeros(
            (batch, slots) if axes is None else (batch, slots, axes), dtype=torch.int64, device=device
        )
        self.order = torch.zeros(batch, slots, dtype=torch.int64, device=device)
        self.segment = torch.full((batch, slots), PAD, dtype=torch.int64, device=device)
        self.written = torch.zeros(batch, dtype=torch.int64, device=device)
        """Tokens written to each row since it was last in order: the next goes to this slot, modulo the capacity."""
        self.filled = 0
        """Slots that any row uses, at most: a host integer, so that reading needs no synchronisation."""
        self.lost = torch.full((batch,), -1, dtype=torch.int64, device=device)
        """The largest order that a ring has overwritten, -1 where none."""
        self.fixed = False

    @classmethod
    def of(cls, k: Tensor, v: Tensor, at: Positions) -> Self:
        """Keys stored once and read at every step, those of cross-attention."""
        batch, heads, count, width = k.shape
        cache = cls(
            batch, count, heads, width, v.shape[-1], limit=at.limit, axes=at.axes, dtype=k.dtype, device=k.device
        )
        cache.append(k, v, at)
        cache.fixed = True
        return cache

    def append(self, k: Tensor, v: Tensor, at: Positions) -> tuple[Tensor, Tensor, Positions]:
        """Stores rotated keys and their values; returns all that these tokens' queries may attend to."""
        if self.fixed:
            raise ValueError("these keys were stored once, for cross-attention; read them, do not append to them")
        if at.limit != self.limit:
            raise ValueError(
                f"positions of limit {at.limit} cannot join a cache of limit {self.limit}: one generation, one limit"
            )
        new = k.shape[2]
        if not self.ring and self.filled + new > self.capacity:
            raise ValueError(
                f"{new} keys do not fit: {self.filled} of {self.capacity} slots are used; "
                "allocate a larger capacity, or crop or evict first"
            )
        # A ring may overwrite, with the last of these tokens, keys that the first of them still see.
        together = self._joined(k, v, at) if self.ring and new > 1 else None
        self._write(k, v, at)
        return self.read() if together is None else together

    def read(self) -> tuple[Tensor, Tensor, Positions]:
        n = self.filled
        at = Positions(self.index[:, :n], self.order[:, :n], self.segment[:, :n], self.limit)
        return self.k[:, :, :n], self.v[:, :, :n], at

    @property
    def next(self) -> Tensor:
        """(B,) the order of the token that comes next in each row, its largest and one more; 0 in an empty row."""
        return torch.where(self.segment == PAD, -1, self.order).amax(dim=1) + 1

    def crop(self, order: int | Tensor) -> None:
        """Takes back every key at this order and after, in all rows or, given (B,), in each."""
        limit = torch.as_tensor(order, device=self.order.device)
        self.evict(self.order >= (limit[:, None] if limit.ndim else limit))

    def evict(self, where: Tensor) -> None:
        """Drops the keys where this (B, C) mask over `read`'s slots, or over all slots, is True."""
        gone = torch.zeros_like(self.segment, dtype=torch.bool)
        gone[:, : where.shape[1]] = where
        segment = self.segment.masked_fill(gone, PAD)
        self._refuse_reaching_back(segment, self.order, self.lost)
        self.segment = segment
        self._compact()

    def shift(self, encoding: Encoding, delta: int | Tensor, *, start: int = 0) -> None:
        """Moves the keys at order `start` and after by `delta` positions (an int, or (B,) one a row), turning them by
        exactly that angle. Index and order move together."""
        delta = torch.as_tensor(delta, device=self.order.device)
        moved = (self.segment != PAD) & (self.order >= start)
        step = torch.where(moved, delta[:, None] if delta.ndim else delta, 0)
        lost = torch.where((self.lost >= start) & (self.lost >= 0), self.lost + delta, self.lost)
        self._refuse_reaching_back(self.segment, self.order + step, lost)
        self.k = encoding.move(self.k, step)
        self.index = self.index + (step if self.index.ndim == 2 else step[..., None])
        self.order, self.lost = self.order + step, lost

    def fork(self) -> Self:
        """A copy that goes its own way."""
        return self.select(torch.arange(len(self.written), device=self.written.device))

    def select(self, rows: Tensor | Sequence[int]) -> Self:
        """A cache of these rows, repeated or reordered: beams, or a finished row dropped."""
        rows = torch.as_tensor(rows, device=self.written.device)
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        for name in ("k", "v", "index", "order", "segment", "written", "lost"):
            setattr(other, name, getattr(self, name).index_select(0, rows))
        return other

    def _joined(self, k: Tensor, v: Tensor, at: Positions) -> tuple[Tensor, Tensor, Positions]:
        old_k, old_v, old_at = self.read()
        return torch.cat([old_k, k], dim=2), torch.cat([old_v, v], dim=2), old_at.join(at.expanded(k.shape[0]))

    def _write(self, k: Tensor, v: Tensor, at: Positions) -> None:
        batch, new = k.shape[0], k.shape[2]
        at = at.expanded(batch)
        token = at.segment != PAD
        rank = token.cumsum(dim=1)
        slot = self.written[:, None] + rank - 1
        if self.ring:
            # Of more tokens than the ring holds, only the last ones are kept.
            kept = token & (rank > rank[:, -1:] - self.capacity)
            slot = slot % self.capacity
            self._note_lost(torch.where(kept, slot, self.capacity), at.order, token & ~kept)
            token = kept
        slot = torch.where(token, slot, self.capacity)
        row = torch.arange(batch, device=k.device)[:, None]
        self.k[row, :, slot] = k.transpose(1, 2).to(self.k.dtype)
        self.v[row, :, slot] = v.transpose(1, 2).to(self.v.dtype)
        self.index[row, slot], self.order[row, slot], self.segment[row, slot] = at.index, at.order, at.segment
        self.segment[:, self.capacity] = PAD
        self.written = self.written + rank[:, -1]
        self.filled = min(self.filled + new, self.capacity)

    def _compact(self) -> None:
        """The keys that are left, in the order they were written, from the first slot on."""
        slots = torch.arange(self.capacity, device=self.order.device)
        # In a ring that has come round, the oldest key sits where the next would be written.
        first = torch.where(self.written > self.capacity, self.written % self.capacity, 0)
        age = (slots - first[:, None]) % self.capacity
        left = self.segment[:, : self.capacity] != PAD
        place = torch.where(left, age, age + self.capacity).argsort(dim=1)
        place = torch.cat([place, torch.full_like(place[:, :1], self.capacity)], dim=1)
        row = torch.arange(len(place), device=place.device)[:, None]
        self.k = self.k.transpose(1, 2)[row, place].transpose(1, 2)
        self.v = self.v.transpose(1, 2)[row, place].transpose(1, 2)
        self.index, self.order, self.segment = (part[row, place] for part in (self.index, self.order, self.segment))
        self.written = left.sum(dim=1)
        self.filled = int(self.written.max()) if len(self.written) else 0

    def _note_lost(self, slot: Tensor, order: Tensor, skipped: Tensor) -> None:
        held = self.segment.gather(1, slot) != PAD
        over = torch.where(held, self.order.gather(1, slot), -1).amax(dim=1)
        self.lost = torch.maximum(self.lost, torch.maximum(over, torch.where(skipped, order, -1).amax(dim=1)))

    def _refuse_reaching_back(self, segment: Tensor, order: Tensor, lost: Tensor) -> None:
        """Taking back or moving tokens may move the window back, over keys that a ring no longer has."""
        if not self.ring or self.rule.window is None:
            return
        newest = torch.where(segment == PAD, -1, order).amax(dim=1)
        if bool(((lost >= 0) & (newest + 2 - self.rule.window <= lost)).any()):
            raise ValueError(
                f"this layer keeps a ring of its last {self.capacity} keys (window {self.rule.window}); the next token "
                "would see older ones that are gone. Allocate the cache with more slack, or recompute from the text"
            )


class Cache:
    """The caches of a model's layers, tied to the plan their keys were rotated under."""

    def __init__(self, layers: Sequence[LayerCache], fingerprint: str, cross: Sequence[LayerCache] = ()) -> None:
        self.layers, self.cross = list(layers), list(cross)
        self.fingerprint = fingerprint

    def check(self, plan: Plan) -> None:
        """Refuses to continue under a plan that would rotate new keys otherwise than the stored ones."""
        if plan.fingerprint != self.fingerprint:
            raise ValueError(
                f"these keys were rotated under plan {self.fingerprint[:12]}, the model has {plan.fingerprint[:12]}; "
                "start a new cache, or use plan.for_length(limit) with one limit for the whole generation"
            )

    def crop(self, order: int | Tensor) -> None:
        for layer in self.layers:
            layer.crop(order)

    def fork(self) -> Cache:
        return self.select(torch.arange(len(self.layers[0].written), device=self.layers[0].written.device))

    def select(self, rows: Tensor | Sequence[int]) -> Cache:
        layers, cross = ([layer.select(rows) for layer in part] for part in (self.layers, self.cross))
        return Cache(layers, self.fingerprint, cross)

    @property
    def next(self) -> Tensor:
        return self.layers[0].next

    def __getitem__(self, layer: int) -> LayerCache:
        return self.layers[layer]

    def __len__(self) -> int:
        return len(self.layers)
