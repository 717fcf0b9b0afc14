"""Attention whose rule and biases read positions: one score, several exact ways to compute it, and the key cache."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ropewalk.attention.cache import Cache, LayerCache
from ropewalk.attention.choose import Choice, attend, choose, weights
from ropewalk.attention.rule import Rule
from ropewalk.attention.score import Keep
from ropewalk.encodings import Signal

__all__ = ["Cache", "Choice", "Keep", "LayerCache", "Rule", "attend", "choose", "prepare", "weights"]

Norm = Callable[[Tensor], Tensor]


def prepare(
    q: Tensor, k: Tensor, signal: Signal, q_norm: Norm | None = None, k_norm: Norm | None = None
) -> tuple[Tensor, Tensor]:
    """Queries and keys as attention and the cache take them: normalised (qk-norm), then rotated, in that order."""
    q = q if q_norm is None else q_norm(q)
    k = k if k_norm is None else k_norm(k)
    return signal.rotate(q, "query"), signal.rotate(k, "key")
