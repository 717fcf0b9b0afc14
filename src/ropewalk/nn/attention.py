"""Multi-head attention: project, normalise, rotate, attend, join.

    head_i = softmax(q_i k_i^T / sqrt(K)) v_i,   out = [head_1 .. head_H] W_O        arXiv:1706.03762, 3.2

`core` is the one seam: all that mixes tokens happens in it, so sequence and head parallelism wrap it and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ropewalk.attention import LayerCache, Rule, Score, WeightDropout, attend, weights
from ropewalk.encodings import Signal
from ropewalk.nn.dropout import Dropout, DropoutKey
from ropewalk.nn.initial import fill_linear
from ropewalk.nn.linear import Linear


class Core(nn.Module):
    """Rotated queries (B, H, L, K), keys (B, G, S, K) and values (B, G, S, V) in, mixed values (B, H, L, V) out."""

    def __init__(
        self,
        heads: int,
        *,
        scale: float | None = None,
        soft_cap: float | None = None,
        sink: bool = False,
        dropout: float = 0.0,
        place: int = 0,
    ) -> None:
        super().__init__()
        self.scale, self.soft_cap, self.first_head = scale, soft_cap, 0
        self.sink = nn.Parameter(torch.zeros(heads)) if sink else None
        self.dropout = Dropout(dropout, place)

    def reset_parameters(self) -> None:
        if self.sink is not None:
            nn.init.zeros_(self.sink)

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, signal: Signal, rule: Rule, dropout_key: DropoutKey | None = None
    ) -> Tensor:
        return attend(q, k, v, self.score(q, signal, rule, self.dropout.of_weights(dropout_key, q)))

    def weights(self, q: Tensor, k: Tensor, signal: Signal, rule: Rule) -> Tensor:
        """(B, H, L, S): what `forward` weighs values by, before dropout."""
        return weights(q, k, self.score(q, signal, rule))

    def score(self, q: Tensor, signal: Signal, rule: Rule, dropout: WeightDropout | None = None) -> Score:
        # Tensor parallelism has some of the heads, and the sinks of all.
        sink = None if self.sink is None else self.sink[self.first_head : self.first_head + q.shape[1]]
        return Score(signal, rule, self.scale, self.soft_cap, sink, self.first_head, dropout)


class Attention(nn.Module):
    """Multi-head attention of a text to itself, or with cross=True to a memory: project, rotate, attend, join."""

    q: Linear  # unless all three are one, qkv
    k: Linear  # unless fused, as v
    v: Linear

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        key_heads: int | None = None,
        head_width: int | None = None,
        value_width: int | None = None,
        cross: bool = False,
        fused: bool = True,
        bias: bool = False,
        out_bias: bool = False,
        qk_norm: Callable[[int], nn.Module] | None = None,
        core: Core | None = None,
        std: float | None = 0.02,
        gain: float = 1.0,
    ) -> None:
        super().__init__()
        G = heads if key_heads is None else key_heads
        K = width // heads if head_width is None else head_width
        V = K if value_width is None else value_width
        self.heads, self.key_heads, self.cross, self._start = heads, G, cross, (std, gain)
        self.sizes = (heads * K, G * K, G * V)  # features of q, of k, of v
        # One matrix product where the input is one: q, k and v of a self-attention, k and v of a cross-attention.
        self.qkv = Linear(width, sum(self.sizes), bias=bias) if fused and not cross else None
        if self.qkv is None:
            self.q = Linear(width, self.sizes[0], bias=bias)
        self.kv = Linear(width, sum(self.sizes[1:]), bias=bias) if fused and cross else None
        if not fused:
            self.k, self.v = (Linear(width, size, bias=bias) for size in self.sizes[1:])
        self.q_norm, self.k_norm = (None, None) if qk_norm is None else (qk_norm(heads), qk_norm(G))
        self.core = Core(heads) if core is None else core
        self.out = Linear(heads * V, width, bias=out_bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        std, gain = self._start
        q, k, v = zip(self.sizes, (1.0, 1.0, gain), strict=True)
        if self.qkv is not None:
            fill_linear(self.qkv, std, (q, k, v))
        elif self.kv is not None:
            fill_linear(self.q, std, (q,))
            fill_linear(self.kv, std, (k, v))
        else:
            for linear, part in ((self.q, q), (self.k, k), (self.v, v)):
                fill_linear(linear, std, (part,))
        fill_linear(self.out, std, ((len(self.out.weight), gain),))

    def project(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of x, keys and values of memory, as (B, heads, length, features)."""
        H, G = self.heads, self.key_heads
        if self.qkv is not None:
            q, k, v = self.qkv(x).split(self.sizes, dim=-1)
        elif self.kv is not None:
            q, (k, v) = self.q(x), self.kv(memory).split(self.sizes[1:], dim=-1)
        else:
            q, k, v = self.q(x), self.k(memory), self.v(memory)
        return _heads(q, H), _heads(k, G), _heads(v, G)

    def rotated(self, x: Tensor, memory: Tensor, signal: Signal) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of x, keys and values of memory, as attention takes them: normalised, then rotated."""
        one_rotation = signal.encoding.one_rotation and signal.q is signal.k
        if self.qkv is not None and self.q_norm is None and one_rotation:
            # Queries and keys lie side by side in one product, at the same positions: one rotation turns both.
            flat, turning = self.qkv(x), sum(self.sizes[:2])
            qk = signal.rotate(_heads(flat[..., :turning], self.heads + self.key_heads), "key")
            return qk[:, : self.heads], qk[:, self.heads :], _heads(flat[..., turning:], self.key_heads)
        q, k, v = self.project(x, memory)
        return self._query(q, signal), self._key(k, signal), v

    def _query(self, q: Tensor, signal: Signal) -> Tensor:
        return signal.rotate(q if self.q_norm is None else self.q_norm(q), "query")

    def _key(self, k: Tensor, signal: Signal) -> Tensor:
        return signal.rotate(k if self.k_norm is None else self.k_norm(k), "key")

    def forward(
        self,
        x: Tensor,
        signal: Signal,
        rule: Rule,
        *,
        memory: Tensor | None = None,
        cache: LayerCache | None = None,
        dropout_key: DropoutKey | None = None,
    ) -> Tensor:
        if cache is not None and cache.fixed:
            q = self._query(self.project(x, x[:, :0])[0], signal)
            k, v, keys = cache.read()
            signal = signal.with_keys(keys)
        else:
            q, k, v = self.rotated(x, x if memory is None else memory, signal)
            if cache is not None:
                k, v, keys = cache.append(k, v, signal.q)
                signal = signal.with_keys(keys, cache.slots.seen)
        mixed = self.core(q, k, v, signal, rule, dropout_key)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def remember(self, memory: Tensor, signal: Signal) -> LayerCache:
        """The keys and values of a memory, for a cross-attention that reads them at every step."""
        _, k, v = self.project(memory[:, :0], memory)
        return LayerCache.holding(self._key(k, signal), v, signal.k)


def _heads(x: Tensor, count: int) -> Tensor:
    """(B, L, H K) -> (B, H, L, K)."""
    return x.unflatten(-1, (count, -1)).transpose(1, 2)
