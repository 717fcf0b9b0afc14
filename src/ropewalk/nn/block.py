"""One layer: attention, perhaps cross-attention, feed-forward, each with its residual and its norms.

post      norm(x + f(x))                         arXiv:1706.03762; needs warm-up, gradients grow towards the output
deep      norm(alpha x + f(x))                   arXiv:2203.00555
pre       x + f(norm(x))                         arXiv:2002.04745; the stack ends in one more norm
sandwich  x + norm(f(norm(x)))                   arXiv:2105.13290
output    x + norm(f(x))                         OLMo 2
parallel  x + attention(norm(x)) + ffn(norm(x))  GPT-J with one norm, GPT-NeoX with two
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from ropewalk.attention import LayerCache, Rule
from ropewalk.encodings import Signal
from ropewalk.nn.attention import Attention
from ropewalk.nn.dropout import Dropout, DropoutKey
from ropewalk.nn.mlp import MLP
from ropewalk.positions import Positions

Sublayer = Callable[[Tensor], Tensor]
Placement = Literal["post", "deep", "pre", "sandwich", "output", "parallel"]


class Residual(nn.Module):
    """x and what a sublayer adds to it, with the norms where the placement has them."""

    def __init__(
        self, placement: Placement, norm: Callable[[], nn.Module], dropout: Dropout, alpha: float = 1.0
    ) -> None:
        super().__init__()
        self.placement, self.alpha, self.dropout = placement, alpha, dropout
        self.before = norm() if placement in ("pre", "sandwich", "parallel") else None
        self.branch = norm() if placement in ("sandwich", "output") else None
        self.after = norm() if placement in ("post", "deep") else None

    def added(self, x: Tensor, sublayer: Sublayer, at: Positions, dropout_key: DropoutKey | None) -> Tensor:
        added = sublayer(x if self.before is None else self.before(x))
        added = added if self.branch is None else self.branch(added)
        return self.dropout(added, dropout_key, at) if self.dropout.active else added

    def forward(self, x: Tensor, sublayer: Sublayer, at: Positions, dropout_key: DropoutKey | None) -> Tensor:
        kept = x if self.alpha == 1 else self.alpha * x
        total = kept + self.added(x, sublayer, at, dropout_key)
        return total if self.after is None else self.after(total)

    def extra_repr(self) -> str:
        return self.placement if self.alpha == 1 else f"{self.placement}, alpha {self.alpha:.4g}"


class Block(nn.Module):
    """One layer: attention, cross-attention where there is one, and the feed-forward network."""

    def __init__(
        self,
        attention: Attention,
        mlp: MLP,
        residual: Callable[[int], Residual],
        *,
        cross: Attention | None = None,
        shared_norm: bool = False,
    ) -> None:
        """residual(i) makes the residual of the i-th sublayer. shared_norm: one norm for both of a parallel block."""
        super().__init__()
        self.attention, self.cross, self.mlp = attention, cross, mlp
        self.residual_attention, self.residual_mlp = residual(0), residual(2)
        self.residual_cross = None if cross is None else residual(1)
        self.parallel = self.residual_mlp.placement == "parallel"
        if self.parallel and cross is not None:
            raise ValueError("a parallel block has no cross-attention; use placement=pre, post, sandwich or output")
        if shared_norm:
            self.residual_mlp.before = self.residual_attention.before

    def forward(
        self,
        x: Tensor,
        signal: Signal,
        rule: Rule,
        *,
        memory: Tensor | None = None,
        memory_signal: Signal | None = None,
        cache: LayerCache | None = None,
        cross_cache: LayerCache | None = None,
        dropout_key: DropoutKey | None = None,
    ) -> Tensor:
        at = signal.q

        def attend(x: Tensor) -> Tensor:
            return self.attention(x, signal, rule, cache=cache, dropout_key=dropout_key)

        if self.parallel:
            attended = self.residual_attention.added(x, attend, at, dropout_key)
            return x + attended + self.residual_mlp.added(x, self.mlp, at, dropout_key)
        x = self.residual_attention(x, attend, at, dropout_key)
        if self.cross is not None and self.residual_cross is not None:
            x = self.residual_cross(x, self._look(memory, memory_signal, cross_cache, dropout_key), at, dropout_key)
        return self.residual_mlp(x, self.mlp, at, dropout_key)

    def _look(
        self, memory: Tensor | None, signal: Signal | None, cache: LayerCache | None, dropout_key: DropoutKey | None
    ) -> Sublayer:
        cross = self.cross
        if cross is None or signal is None:
            raise ValueError("this block looks at a memory: pass memory and its signal")
        return lambda x: cross(x, signal, Rule(causal=False), memory=memory, cache=cache, dropout_key=dropout_key)
