"""Who may see whom, decided by positions and never by indices into a tensor.

    visible(q, k) = same segment, not padding
                    and k.order <= q.order                          when causal; equal order sees both ways
                    and |q.order - k.order| < W, or k.order < n     when windowed; W counts the token itself

Backends disagree on where a causal triangle is anchored and whether a window of W holds W or W + 1 keys. Here both are
statements about integers, so every backend, chunk, cache and shard means the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from ropewalk.positions import PAD, Positions


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Which keys a query sees, by their positions: Rule(causal=True, window=4096)."""

    causal: bool = True
    window: int | None = None
    """W, keys seen counting the token itself; on both sides when not causal."""
    keep_first: int = 0
    """Keys of orders below this stay visible past the window (attention sinks): the first of a document whose order
    counts from 0."""

    def __post_init__(self) -> None:
        if self.window is not None and self.window < 1:
            raise ValueError(f"window={self.window} must hold at least the token itself: window=1 or more")
        if self.keep_first < 0 or (self.keep_first and self.window is None):
            raise ValueError(f"keep_first={self.keep_first} keeps keys past a window: give window, and 0 or more")

    def visible(self, q_order: Tensor, k_order: Tensor, q_segment: Tensor, k_segment: Tensor) -> Tensor:
        """Pointwise: the arguments broadcast against each other."""
        seen = (q_segment == k_segment) & (k_segment != PAD)
        if self.causal:
            seen = seen & (k_order <= q_order)
        if self.window is not None:
            # Not by differences, which would be 64-bit integers for every pair.
            near = k_order > q_order - self.window
            if not self.causal:
                near = near & (k_order < q_order + self.window)
            if self.keep_first:
                near = near | (k_order < self.keep_first)
            seen = seen & near
        return seen

    def mask(self, q: Positions, k: Positions) -> Tensor:
        """(B, 1, L, S), True where the query sees the key."""
        q_order, q_segment = (part[:, None, :, None] for part in (q.order, q.segment))
        k_order, k_segment = (part[:, None, None, :] for part in (k.order, k.segment))
        return self.visible(q_order, k_order, q_segment, k_segment)


class Seen:
    """What the queries of one pass see of the keys of a cache: worked out once, for all layers of a rule."""

    def __init__(self, queries: Positions, keys: Positions, rule: Rule) -> None:
        self.queries, self.keys, self.rule = queries, keys, rule

    def describes(self, queries: Positions, keys: Positions, rule: Rule) -> bool:
        return self.queries is queries and self.keys is keys and self.rule == rule

    @cached_property
    def mask(self) -> Tensor:
        return self.rule.mask(self.queries, self.keys)

    @cached_property
    def open(self) -> tuple[Tensor, Tensor]:
        """The mask with rows that see nothing opened to all keys, and (B, 1, L, 1) True where a row sees any."""
        return opened(self.mask)

    @cached_property
    def all_seen(self) -> bool:
        """Of one token at a time: every key is visible, so no mask is needed. Not looked up where that would wait for
        a device."""
        return self.queries.shape[1] == 1 and self.keys.order.device.type == "cpu" and bool(self.mask.all())


def opened(mask: Tensor) -> tuple[Tensor, Tensor]:
    """A row that sees nothing is computed on everything, then set to 0: no NaN, no gradient."""
    sees = mask.any(dim=-1, keepdim=True)
    return mask | ~sees, sees
