"""Multi-head attention: project, normalise, rotate, attend, join.

    head_i = softmax(q_i k_i^T / sqrt(K)) v_i,   out = [head_1 .. head_H] W_O        arXiv:1706.03762, 3.2

`core` is the one seam: all that mixes tokens happens in it, so sequence and head parallelism wrap it and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ropewalk.attention import LayerCache, Rule, attend, prepare, weights
from ropewalk.encodings import Signal
from ropewalk.nn.dropout import Draw, Dropout
from ropewalk.nn.linear import Linear
from ropewalk.nn.norm import start


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

    def sinks(self, q: Tensor) -> Tensor | None:
        """The sink logits of these queries' heads."""
        return self.sink

    def forward(self, q: Tensor, k: Tensor, v: Tensor, signal: Signal, rule: Rule, draw: Draw | None = None) -> Tensor:
        return attend(
            q,
            k,
            v,
            signal,
            rule,
            scale=self.scale,
            soft_cap=self.soft_cap,
            sink=self.sinks(q),
            first_head=self.first_head,
            keep=self.dropout.of_scores(draw, q),
        )

    def weights(self, q: Tensor, k: Tensor, signal: Signal, rule: Rule) -> Tensor:
        """(B, H, L, S): what `forward` weighs values by, before dropout."""
        return weights(
            q,
            k,
            signal,
            rule,
            scale=self.scale,
            soft_cap=self.soft_cap,
            sink=self.sinks(q),
            first_head=self.first_head,
        )


class Attention(nn.Module):
    """Multi-head attention of a text to itself, or with cross=True to a memory: project, rotate, attend, join."""

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
        groups = {"q": 1, "k": 1, "v": 1} if not fused else {"q": 1, "kv": 2} if cross else {"qkv": 3}
        self.groups = tuple(groups)
        done = 0
        for name, count in groups.items():
            self.add_module(name, Linear(width, sum(self.sizes[done : done + count]), bias=bias))
            done += count
        self.q_norm, self.k_norm = (None, None) if qk_norm is None else (qk_norm(heads), qk_norm(G))
        self.core = Core(heads) if core is None else core
        self.out = Linear(heads * V, width, bias=out_bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        std, gain = self._start
        gains = {"q": 1.0, "k": 1.0, "v": gain}
        for group in self.groups:
            linear: nn.Linear = getattr(self, group)
            sizes = [self.sizes["qkv".index(letter)] for letter in group]
            for letter, part in zip(group, linear.weight.split(sizes), strict=True):
                start(part, std, gains[letter])
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)
        start(self.out.weight, std, gain)
        if self.out.bias is not None:
            nn.init.zeros_(self.out.bias)

    def project(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of x, keys and values of memory, as (B, heads, length, features)."""
        flat: list[Tensor] = []
        for group in self.groups:
            source = x if group[0] == "q" else memory
            sizes = [self.sizes["qkv".index(letter)] for letter in group]
            flat += getattr(self, group)(source).split(sizes, dim=-1)
        heads = (self.heads, self.key_heads, self.key_heads)
        q, k, v = (part.unflatten(-1, (n, -1)).transpose(1, 2) for part, n in zip(flat, heads, strict=True))
        return q, k, v

    def turned(self, x: Tensor, signal: Signal) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of one text, as attention takes them."""
        one_rotation = signal.encoding.one_rotation and signal.q is signal.k
        if self.groups != ("qkv",) or self.q_norm is not None or not one_rotation:
            return self._prepared(x, x, signal)
        # Queries and keys lie side by side in one product, at the same positions: one rotation turns both.
        H, G = self.heads, self.key_heads
        flat: Tensor = self.get_submodule("qkv")(x)
        turning = sum(self.sizes[:2])
        qk = signal.rotate(flat[..., :turning].unflatten(-1, (H + G, -1)).transpose(1, 2), "key")
        return qk[:, :H], qk[:, H:], flat[..., turning:].unflatten(-1, (G, -1)).transpose(1, 2)

    def _prepared(self, x: Tensor, memory: Tensor, signal: Signal) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.project(x, memory)
        return *prepare(q, k, signal, self.q_norm, self.k_norm), v

    def forward(
        self,
        x: Tensor,
        signal: Signal,
        rule: Rule,
        *,
        memory: Tensor | None = None,
        cache: LayerCache | None = None,
        draw: Draw | None = None,
    ) -> Tensor:
        if cache is not None and cache.fixed:
            q, _, _ = self.project(x, x[:, :0])
            q = signal.rotate(q if self.q_norm is None else self.q_norm(q), "query")
            k, v, keys = cache.read()
            signal = signal.against(keys)
        else:
            q, k, v = self.turned(x, signal) if memory is None else self._prepared(x, memory, signal)
            if cache is not None:
                k, v, keys = cache.append(k, v, signal.q)
                signal = signal.against(keys, cache.slots.seen)
        mixed = self.core(q, k, v, signal, rule, draw)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def remember(self, memory: Tensor, signal: Signal) -> LayerCache:
        """The keys and values of a memory, for a cross-attention that reads them at every step."""
        _, k, v = self.project(memory[:, :0], memory)
        _, k = prepare(k, k, signal, None, self.k_norm)
        return LayerCache.of(k, v, signal.k)
