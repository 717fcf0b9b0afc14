"""One attention layer with fixed weights: what the invariance tests run every encoding through."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ropewalk.attention import LayerCache, Rule, Score, attend
from ropewalk.encodings import Encoding
from ropewalk.positions import Positions
from tests.encodings.rows import HEAD_WIDTH, HEADS, KEY_HEADS, WIDTH, Row


class Layer:
    """Tokens in, one attention's output out: embed, project, rotate, attend."""

    def __init__(self, row: Row, dtype: torch.dtype = torch.float32, **options: Any) -> None:
        self.encoding: Encoding = row.build()
        generator = torch.Generator().manual_seed(7)
        self.weights = [
            (torch.randn(WIDTH, heads * HEAD_WIDTH, generator=generator) / WIDTH**0.5).to(dtype)
            for heads in (HEADS, KEY_HEADS, KEY_HEADS)
        ]
        self.dtype, self.options = dtype, options
        self.rule = options.pop("rule", Rule(causal=True))

    def tokens(self, batch: int, length: int, seed: int = 3) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(batch, length, self.encoding.token_width, generator=generator).to(self.dtype)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (self._heads(x @ weight) for weight in self.weights)
        return q, k, v

    @staticmethod
    def _heads(x: Tensor) -> Tensor:  # (B, L, H K) -> (B, H, L, K)
        return x.unflatten(-1, (-1, HEAD_WIDTH)).transpose(1, 2)

    def __call__(self, x: Tensor, at: Positions, cache: LayerCache | None = None, **options: Any) -> Tensor:
        signal = self.encoding.at(at)
        q, k, v = self.project(signal.embed(x))
        q, k = signal.rotate(q, "query"), signal.rotate(k, "key")
        if cache is not None:
            k, v, keys = cache.append(k, v, at)
            signal = signal.with_keys(keys)
        options = {**self.options, **options}
        how = {name: options.pop(name) for name in ("backend", "strict") if name in options}
        return attend(q, k, v, Score(signal, self.rule, **options), **how)

    def cache(self, batch: int, capacity: int, limit: int) -> LayerCache:
        return LayerCache(batch, capacity, KEY_HEADS, HEAD_WIDTH, limit=limit, rule=self.rule, dtype=self.dtype)
