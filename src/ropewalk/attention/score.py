"""One attention score, in one order, on every backend:

    q.k x scale x logit_gain  ->  soft cap  ->  + bias  ->  rule  ->  sink logit  ->  softmax  ->  dropout

A query that sees nothing gives 0. Shapes: q (B, H, L, K), k (B, G, S, K), v (B, G, S, V), H a multiple of G.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from ropewalk.attention.rule import Rule
from ropewalk.encodings import Signal
from ropewalk.positions import Positions

FEW = 1 << 14
"""Numbers of a head's keys below which, on a CPU, the fused backward pass takes up to three times as long in bfloat16
as in float32 (measured: 3.1 for 128 keys of 32, 1.4 for 512 of 32, 0.8 for 512 of 64)."""
DROPOUT = 24
"""Bytes a score that a dropout mask by position takes while it is computed: hashes of 64 bits."""


@dataclass(frozen=True)
class WeightDropout:
    """Dropout of attention weights: which are kept, decided by where they are, and what the kept are multiplied by."""

    kept: Callable[[slice, Tensor, Positions, Positions], Tensor]
    """(sequences of the batch, head numbers (H, 1, 1), queries, keys) -> (B, H, L, S), True where a weight is kept."""
    factor: float
    rate: float | None = None
    """The share dropped, where any random choice will do, a kernel's own as well."""


@dataclass(frozen=True, eq=False)
class Score:
    """How queries score keys, all but the queries and keys themselves: Score(rope.at(positions), Rule(window=512))."""

    signal: Signal
    """The encoding at the positions of queries and keys."""
    rule: Rule
    scale: float | None = None
    """On q.k; 1/sqrt(K) unless given (T5: 1)."""
    soft_cap: float | None = None
    """cap * tanh(score / cap)."""
    sink: Tensor | None = None
    """(H,) a learned logit of attending to nothing."""
    first_head: int = 0
    """Number in the whole model of this rank's first head."""
    dropout: WeightDropout | None = None
    _plain: bool | None = field(default=None, init=False)

    def check(self, q: Tensor, k: Tensor, v: Tensor) -> None:
        """Refuses queries, keys and values that do not go together, or not with this score."""
        (B, H, L, K), q_at, k_at = q.shape, self.signal.q.order, self.signal.k.order
        if H % k.shape[1] or k.shape[1] != v.shape[1] or k.shape[2] != v.shape[2] or K != k.shape[-1]:
            shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
            raise ValueError(f"{shapes} are not (B, H, L, K), (B, G, S, K), (B, G, S, V), H a multiple of G")
        if q_at.shape[1] != L or k_at.shape[1] != k.shape[2]:
            raise ValueError(
                f"{L} queries and {k.shape[2]} keys came with positions for {q_at.shape[1]} and {k_at.shape[1]}; "
                "use encoding.at(query positions, key positions)"
            )
        if len(k) != B or len(v) != B or q_at.shape[0] not in (1, B) or k_at.shape[0] not in (1, B):
            raise ValueError(
                f"a batch of {B} sequences of queries, {len(k)} of keys and {len(v)} of values came with positions for "
                f"{q_at.shape[0]} and {k_at.shape[0]}; give positions for each sequence, or one row for all of them"
            )
        if not self.rule.causal and not self.signal.encoding.claims.bidirectional:
            raise ValueError(
                f"{self.signal.encoding.config.kind} is defined for keys up to the query only: use Rule(causal=True), "
                "or an encoding that looks both ways"
            )
        if self.soft_cap is not None and self.soft_cap <= 0:
            raise ValueError(f"soft_cap={self.soft_cap} must be positive, or None for no cap")
        if self.sink is not None and self.sink.shape != (H,):
            raise ValueError(f"sink has shape {tuple(self.sink.shape)}, there are {H} heads here")

    def factor(self, q: Tensor) -> float:
        """What q.k is multiplied by: the scale, and what the encoding multiplies every score by."""
        return (q.shape[-1] ** -0.5 if self.scale is None else self.scale) * self.signal.encoding.logit_gain

    @property
    def fusible(self) -> bool:
        """Nothing in it that a fused kernel without masks could not compute."""
        return self.soft_cap is None and self.sink is None and self.dropout is None and not self.biased

    @property
    def rate(self) -> float:
        """Of dropout that a kernel may do as it likes."""
        return 0.0 if self.dropout is None or self.dropout.rate is None else self.dropout.rate

    @property
    def biased(self) -> bool:
        return "bias" in self.signal.encoding.sites

    @property
    def learns(self) -> bool:
        """Whether the backward pass goes through the bias to parameters of the encoding."""
        parameters = self.signal.encoding.parameters() if self.biased else ()
        return torch.is_grad_enabled() and any(parameter.requires_grad for parameter in parameters)

    @property
    def plain(self) -> bool:
        """True where the rule is known to be the ordinary causal triangle, or to hide nothing: no mask is needed."""
        if self._plain is None:
            object.__setattr__(self, "_plain", self._look())  # a cached_property has a lock, which compilers refuse
        return bool(self._plain)

    def _look(self) -> bool:
        """Known, not guessed: it reads the numbers, so only where that costs no synchronisation, and never while
        tracing."""
        q, k, rule, seen = self.signal.q, self.signal.k, self.rule, self.signal.seen
        if rule.window is None and q is k and q.is_plain:
            return True
        if seen is not None and q.shape[1] == 1:
            return seen.describes(q, k, rule) and seen.all_seen
        if torch.compiler.is_compiling() or q.order.device.type != "cpu" or rule.window is not None:
            return False
        if not k.segment.shape[1]:
            return False
        one_document = bool((q.segment == k.segment[:, :1]).all() and (k.segment == k.segment[:, :1]).all())
        if not one_document or bool((k.segment[:, 0] < 0).any()):
            return False
        if not rule.causal:
            return True
        if q.order is k.order or (q.order.shape == k.order.shape and torch.equal(q.order, k.order)):
            return bool((k.order.diff(dim=-1) > 0).all())
        return False

    def head(self, heads: int, device: torch.device) -> Tensor:  # (H, 1, 1)
        return torch.arange(self.first_head, self.first_head + heads, device=device)[:, None, None]

    def bias(self, heads: int, q: Positions, k: Positions) -> Tensor:
        """(B or 1, H, L, S) for these queries and keys, a part of the signal's or all of it."""
        q_index, k_index = q.index[:, None, :, None], k.index[:, None, None, :]
        with no_autocast(q.index.device):
            return self.signal.bias(self.head(heads, q.index.device), q_index, k_index)

    def drop(self, weights: Tensor, sequences: slice, q: Positions, k: Positions) -> Tensor:
        """The softmax's weights after dropout."""
        if self.dropout is None:
            return weights
        kept = self.dropout.kept(sequences, self.head(weights.shape[1], weights.device), q, k)
        return torch.where(kept, weights * self.dropout.factor, 0.0)

    def logits(self, products: Tensor, factor: float, q: Positions, k: Positions) -> Tensor:
        """From q.k to what the softmax takes: -inf where the rule hides the key."""
        logits = products * factor
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


def same_width(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    """As the fused kernels want them: zeros add nothing to q.k and are cut off the output."""
    width = max(q.shape[-1], v.shape[-1])
    return [F.pad(x, (0, width - x.shape[-1])) if x.shape[-1] < width else x for x in (q, k, v)]


def slow_backward(k: Tensor) -> bool:
    """Whether torch's fused backward pass is faster in float32 than in the keys' own precision."""
    return k.device.type == "cpu" and k.dtype == torch.bfloat16 and k.shape[2] * k.shape[3] < FEW


def all_scores(q: Tensor, k: Tensor, score: Score) -> int:
    """Bytes that the scores of all heads take at once, with what computes them."""
    B, H, L, _ = q.shape
    scores = H * precise(q.dtype).itemsize
    at_peak = [3 * scores + 2]
    if score.soft_cap is not None:
        at_peak.append(4 * scores)
    if score.biased:
        at_peak += [2 * scores + score.signal.encoding.bias_bytes(H), 4 * scores]
    if score.dropout is not None:
        at_peak.append(2 * scores + H * DROPOUT)
    return B * L * k.shape[2] * max(at_peak)


def widening(q: Tensor, k: Tensor, v: Tensor) -> int:
    """Bytes of what `same_width` makes."""
    width = max(q.shape[-1], v.shape[-1])
    return sum(x.shape[:-1].numel() * width * x.element_size() for x in (q, k, v) if x.shape[-1] < width)


def per_query_head(keys: Tensor, heads: int) -> Tensor:
    """(B, G, S, K) -> (B, H, S, K): each key head serves H / G neighbouring query heads."""
    return keys if keys.shape[1] == heads else keys.repeat_interleave(heads // keys.shape[1], dim=1)
