"""Attention whose rule and biases read positions: one score, several exact ways to compute it, and the key cache."""

from __future__ import annotations

from ropewalk.attention.cache import Cache, LayerCache
from ropewalk.attention.choose import Choice, attend, choose, weights
from ropewalk.attention.rule import Rule
from ropewalk.attention.score import Score, WeightDropout

__all__ = ["Cache", "Choice", "LayerCache", "Rule", "Score", "WeightDropout", "attend", "choose", "weights"]
