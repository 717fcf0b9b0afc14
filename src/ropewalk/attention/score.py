"""One attention score, in one order, on every backend:

    q.k x scale x logit_gain  ->  soft cap  ->  + bias  ->  rule  ->  sink logit  ->  softmax  ->  dropout

A query that sees nothing gives 0. Shapes: q (B, H, L, K), k (B, G, S, K), v (B, G, S, V), H a multiple of G.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from ropewalk.attention.rule import Rule
from ropewalk.encodings import Signal
from ropewalk.positions import Positions


@dataclass(frozen=True)
class Keep:
    """Dropout of attention weights: which are kept, decided by where they are, and what the kept are multiplied by."""

    chosen: Callable[[slice, Tensor, Positions, Positions], Tensor]
    """(rows of the batch, head numbers (H, 1, 1), queries, keys) -> (B, H, L, S), True where a weight is kept."""
    factor: float
    rate: float | None = None
    """The share dropped, where any random choice will do, a kernel's own as well."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Score:
    """Everything of a score besides the queries and keys."""

    signal: Signal
    rule: Rule
    scale: float
    """Already times the encoding's logit_gain."""
    soft_cap: float | None = None
    sink: Tensor | None = None
    """(H,) a learned logit of attending to nothing."""
    first_head: int = 0
    """Number in the whole model of this rank's first head."""
    keep: Keep | None = None

    @property
    def fusible(self) -> bool:
        """Nothing in it that a fused kernel without masks could not compute."""
        return self.soft_cap is None and self.sink is None and self.keep is None and not self.biased

    @property
    def rate(self) -> float:
        """Of dropout that a kernel may do as it likes."""
        return 0.0 if self.keep is None or self.keep.rate is None else self.keep.rate

    @property
    def biased(self) -> bool:
        return "bias" in self.signal.encoding.sites

    def head(self, heads: int, device: torch.device) -> Tensor:  # (H, 1, 1)
        return torch.arange(self.first_head, self.first_head + heads, device=device)[:, None, None]

    def bias(self, heads: int, q: Positions, k: Positions) -> Tensor:
        """(B or 1, H, L, S) for these queries and keys, a part of the signal's or all of it."""
        q_index, k_index = q.index[:, None, :, None], k.index[:, None, None, :]
        with no_autocast(q.index.device):
            return self.signal.bias(self.head(heads, q.index.device), q_index, k_index)

    def drop(self, weights: Tensor, rows: slice, q: Positions, k: Positions) -> Tensor:
        """The softmax's weights after dropout."""
        if self.keep is None:
            return weights
        kept = self.keep.chosen(rows, self.head(weights.shape[1], weights.device), q, k)
        return torch.where(kept, weights * self.keep.factor, 0.0)

    def finish(self, products: Tensor, q: Positions, k: Positions) -> Tensor:
        """From q.k to the logits the softmax takes: -inf where the rule hides the key."""
        logits = products * self.scale
        if self.soft_cap is not None:
            logits = self.soft_cap * torch.tanh(logits / self.soft_cap)
        if self.biased:
            logits = logits + self.bias(products.shape[1], q, k)
        return logits.masked_fill(~self.rule.mask(q, k), -torch.inf)


def no_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Autocast would take float32 products of scores in bfloat16; attention chooses its own precision."""
    # The meta device has no autocast.
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)


def precise(dtype: torch.dtype) -> torch.dtype:
    """What scores are computed in: never less than float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def per_query_head(keys: Tensor, heads: int) -> Tensor:
    """(B, G, S, K) -> (B, H, S, K): each key head serves H / G neighbouring query heads."""
    return keys if keys.shape[1] == heads else keys.repeat_interleave(heads // keys.shape[1], dim=1)
