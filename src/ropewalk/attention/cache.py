"""Keys and values of what came before, each key carrying its own position.

A key's position is stored, never derived from its place: `next` is not the number of keys. Sequences of a batch fill up
at their own pace, padding takes no room, and a layer with a window keeps a ring of its last keys. The operations a
server needs are exact: crop (take back), evict (drop some), shift (move keys to other positions), fork, select (beams).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Self, TypeAlias

import torch
from torch import Tensor

from ropewalk.attention.rule import Rule
from ropewalk.attention.slots import Slots
from ropewalk.encodings import Encoding
from ropewalk.plan import Plan
from ropewalk.positions import Positions

Which: TypeAlias = Callable[[Positions], Tensor] | Tensor
"""Which keys: a function of their positions, or a (B, C) mask over their slots."""

INTERRUPTED = "a pass over this cache was interrupted, so it may hold only a part of its tokens; start a new cache"


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
        beside: LayerCache | None = None,
    ) -> None:
        """beside: another layer of the same rule, which will be given the same tokens; their positions are shared."""
        rule = Rule() if rule is None else rule
        if beside is None:
            self.slots = Slots(batch, capacity, limit=limit, rule=rule, slack=slack, axes=axes, device=device)
        else:
            self.slots = beside.slots
            if self.slots.rule != rule:
                raise ValueError(f"a layer of {rule} cannot sit beside one of {self.slots.rule}: their keys differ")
            self.slots.layers += 1
        values = key_width if value_width is None else value_width
        count = self.slots.capacity + 1
        self.k = torch.zeros(batch, heads, count, key_width, dtype=dtype, device=device)
        self.v = torch.zeros(batch, heads, count, values, dtype=dtype, device=device)
        self.turn = self.slots.layers - 1
        """Which of the layers that share these slots it is; they take the tokens of a pass in this order."""
        self.fixed = False

    @classmethod
    def holding(cls, k: Tensor, v: Tensor, at: Positions) -> Self:
        """Keys stored once and read at every step, those of cross-attention."""
        batch, heads, count, width = k.shape
        cache = cls(
            batch, count, heads, width, v.shape[-1], limit=at.limit, axes=at.axes, dtype=k.dtype, device=k.device
        )
        cache.append(k, v, at)
        cache.fixed = True
        return cache

    @property
    def filled(self) -> int:
        return self.slots.filled

    @property
    def capacity(self) -> int:
        return self.slots.capacity

    @property
    def ring(self) -> bool:
        return self.slots.ring

    @property
    def next(self) -> Tensor:
        return self.slots.next

    def append(self, k: Tensor, v: Tensor, at: Positions) -> tuple[Tensor, Tensor, Positions]:
        """Stores rotated keys and their values; returns all that these tokens' queries may attend to."""
        if self.fixed:
            raise ValueError("these keys were stored once, for cross-attention; read them, do not append to them")
        if k.dtype != self.k.dtype and not torch.is_autocast_enabled(k.device.type):
            raise ValueError(
                f"keys of {k.dtype} cannot join a cache of {self.k.dtype}; a cache made under autocast has its dtype, "
                "so make it and use it under the same one"
            )
        slots = self.slots
        if slots.turn == slots.layers:  # the last of them failed while it stored its keys
            raise ValueError(INTERRUPTED)
        if slots.turn != self.turn or (self.turn and slots.queries is not at):
            raise ValueError("layers that share their positions take the same tokens in turn; allocate this one alone")
        if self.turn == 0:
            slots.advance(at)
        slots.turn = self.turn + 1
        old = None if slots.before is None else [part[:, :, : slots.before] for part in (self.k, self.v)]
        joined = None if old is None else [torch.cat(pair, dim=2) for pair in zip(old, (k, v), strict=True)]
        for held, given in ((self.k, k), (self.v, v)):
            if isinstance(slots.where, slice):
                held[:, :, slots.where] = given
            else:
                row, slot = slots.where
                held[row, :, slot] = given.transpose(1, 2).to(held.dtype)
        slots.turn %= slots.layers
        n, keys = slots.filled, slots.keys
        assert keys is not None
        if joined is not None:
            return joined[0], joined[1], keys
        return self.k[:, :, :n], self.v[:, :, :n], keys

    def read(self) -> tuple[Tensor, Tensor, Positions]:
        n = self.slots.filled
        return self.k[:, :, :n], self.v[:, :, :n], self.slots.read()

    def crop(self, order: int | Tensor) -> None:
        """Takes back every key at this order and after, in all rows or, given (B,), in each."""
        self.evict(_from(order)(self.slots.read()))

    def evict(self, where: Which) -> None:
        """Drops the keys where this function of their positions, or this (B, C) mask over `read`'s slots or over all
        slots, is True."""
        self._alone()
        self.arrange(self.slots.evict(self.slots.without(_mask(where, self.slots))))

    def shift(self, encoding: Encoding | Sequence[Encoding], delta: int | Tensor, *, start: int = 0) -> None:
        """Moves the keys at order `start` and after by `delta` positions (an int, or (B,) one a row), turning them by
        exactly that angle. Index and order move together."""
        self._alone()
        (encoding,) = _each(encoding, 1)
        step, lost = self.slots.steps(delta, start)
        self.k = encoding.move(self.k, step)
        self.slots.move(step, lost)

    def fork(self) -> Self:
        """A copy that goes its own way."""
        return self.select(torch.arange(len(self.k), device=self.k.device))

    def select(self, rows: Tensor | Sequence[int], slots: Slots | None = None) -> Self:
        """A cache of these rows, repeated or reordered: beams, or a finished row dropped."""
        rows = torch.as_tensor(rows, device=self.k.device)
        other = copy(self)
        other.k, other.v = self.k.index_select(0, rows), self.v.index_select(0, rows)
        other.slots = self.slots.select(rows) if slots is None else slots
        other.turn = 0 if slots is None else self.turn
        return other

    def _alone(self) -> None:
        if self.slots.layers > 1:
            raise ValueError(
                f"{self.slots.layers} layers share these positions, and each must follow: use crop, evict or shift of "
                "the whole cache"
            )

    def arrange(self, place: Tensor) -> None:
        row = torch.arange(len(place), device=place.device)[:, None]
        self.k = self.k.transpose(1, 2)[row, place].transpose(1, 2)
        self.v = self.v.transpose(1, 2)[row, place].transpose(1, 2)


class Cache:
    """The caches of a model's layers, tied to the plan their keys were rotated under."""

    def __init__(self, layers: Sequence[LayerCache], fingerprint: str, cross: Sequence[LayerCache] = ()) -> None:
        self.layers, self.cross = list(layers), list(cross)
        # Each once, in the order of the layers. Found here: a compiled step that asks for an id is compiled again for
        # every cache.
        self.slots = list({id(layer.slots): layer.slots for layer in self.layers}.values())
        self.fingerprint = fingerprint
        self.under_way = False
        """Whether layers are taking the tokens of a pass; still true where that was interrupted."""

    def check(self, plan: Plan, at: Positions | None = None) -> None:
        """Refuses what cannot be continued, before any layer is changed: tokens that cannot come after those here, a
        plan that would rotate new keys otherwise than the stored ones, layers of which some missed a pass."""
        if self.under_way:
            raise ValueError(INTERRUPTED)
        if at is not None:
            for slots in self.slots:
                slots.check(at)
        if plan.fingerprint != self.fingerprint:
            raise ValueError(
                f"these keys were rotated under plan {self.fingerprint[:12]}, the model has {plan.fingerprint[:12]}; "
                "start a new cache, or use plan.for_length(limit) with one limit for the whole generation"
            )

    def crop(self, order: int | Tensor) -> None:
        """Takes back every key at this order and after, in all rows or, given (B,), in each."""
        self.evict(_from(order))

    def evict(self, where: Which) -> None:
        """Drops the keys where this function of their positions is True. Layers of other windows hold other keys; where
        all hold the same, a (B, C) mask over them will do."""
        if isinstance(where, Tensor) and len(self.slots) > 1:
            raise ValueError(
                "layers of different windows hold different keys, so one mask does not fit them; pass a function of "
                "their positions: cache.evict(lambda at: at.order < 4)"
            )
        left = [(slots, slots.without(_mask(where, slots))) for slots in self.slots]
        for slots, segment in left:
            place = slots.evict(segment)
            for layer in self.layers:
                if layer.slots is slots:
                    layer.arrange(place)

    def shift(self, encoding: Encoding | Sequence[Encoding], delta: int | Tensor, *, start: int = 0) -> None:
        """Moves the keys at order `start` and after, each layer's by the encoding that rotated them, one for each.
        `model.shift(cache, delta)` knows them."""
        encodings = _each(encoding, len(self.layers))
        steps = {id(slots): slots.steps(delta, start) for slots in self.slots}
        pairs = list(zip(encodings, self.layers, strict=True))
        moved = [encoding.move(layer.k, steps[id(layer.slots)][0]) for encoding, layer in pairs]
        for layer, k in zip(self.layers, moved, strict=True):
            layer.k = k
        for slots in self.slots:
            step, lost = steps[id(slots)]
            slots.move(step, lost)

    @property
    def limit(self) -> int:
        """What no position in it reaches."""
        return self.layers[0].slots.limit

    def fork(self) -> Cache:
        return self.select(torch.arange(len(self.layers[0].k), device=self.layers[0].k.device))

    def select(self, rows: Tensor | Sequence[int]) -> Cache:
        rows = torch.as_tensor(rows, device=self.layers[0].k.device)
        chosen = {id(slots): slots.select(rows) for slots in self.slots}
        for slots in self.slots:
            chosen[id(slots)].layers = slots.layers
        layers = [layer.select(rows, chosen[id(layer.slots)]) for layer in self.layers]
        other = Cache(layers, self.fingerprint, [layer.select(rows) for layer in self.cross])
        other.under_way = self.under_way
        return other

    @property
    def next(self) -> Tensor:
        return self.layers[0].next

    def __repr__(self) -> str:
        filled = ", ".join(dict.fromkeys(f"{slots.filled} of {slots.capacity} slots" for slots in self.slots))
        return f"Cache({len(self)} layers, {filled}, limit {self.limit})"

    def __getitem__(self, layer: int) -> LayerCache:
        return self.layers[layer]

    def __len__(self) -> int:
        return len(self.layers)


def _mask(where: Which, slots: Slots) -> Tensor:
    return where if isinstance(where, Tensor) else where(slots.read())


def _each(encoding: Encoding | Sequence[Encoding], layers: int) -> list[Encoding]:
    """The encodings that rotated the keys of so many layers. One is not taken for all: another layer may have another,
    and its keys would be turned wrongly without an error."""
    given = [encoding] if isinstance(encoding, Encoding) else list(encoding)
    if len(given) != layers:
        raise ValueError(
            f"{len(given)} encodings for the keys of {layers} layers; use model.shift(cache, delta), or give one for "
            "each layer"
        )
    return given


def _from(order: int | Tensor) -> Callable[[Positions], Tensor]:
    """Which keys are at this order or after."""
    limit = torch.as_tensor(order)
    return lambda at: at.order >= (limit[:, None] if limit.ndim else limit).to(at.order.device)
