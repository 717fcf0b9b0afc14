"""A model and a cache around a target that has none: naive, and written from the definition of the rule.

    visible(q, k) = same document, k.position <= q.position, q.position - k.position < W
    score         = q'.k' / sqrt(K) * logit gain + bias

Only `rotate` and `bias` are the target's. All else is float64, so that what differs between two schedules is the
target's doing. Keys are cached as rotated, with their positions beside them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ropewalk.conformance import oracles
from ropewalk.conformance.target import Target

VOCABULARY = 64


class Kept(NamedTuple):
    """What one layer keeps of tokens that came before."""

    k: Tensor
    v: Tensor
    positions: Tensor
    documents: Tensor


@dataclass
class Pass:
    """A target seen as a whole model, its own or ours around it."""

    target: Target
    built: Any
    name: str = "the target's own model"
    vocabulary: int = VOCABULARY

    @property
    def takes_documents(self) -> bool:
        return self.target.takes("forward", "documents")

    def __call__(
        self, ids: Tensor, positions: Tensor | None, documents: Tensor | None = None, cache: Any = None
    ) -> Any:
        """(B, L) ids -> (logits in float64, cache)."""
        more = {} if documents is None else {"documents": documents}
        logits, cache = self.target.forward(self.built, ids, positions, cache, **more)
        return logits.double(), cache


class Surround(Pass):
    """Two layers of attention with random weights around `rotate` and `bias`."""

    layers = 2
    takes_documents = True

    def __init__(self, target: Target, built: Any, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(target, built, "our attention and cache around its " + _sites(target))
        spec, generator = target.spec, torch.Generator().manual_seed(7)
        H, K = spec.heads, spec.head_width
        self.dtype = dtype

        def weights(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.tokens = weights(VOCABULARY, H, K)
        self.into = weights(self.layers, 3, H, K, K) / math.sqrt(K)
        self.scale = oracles.gains(spec)[1] / math.sqrt(K)

    def __call__(self, ids: Tensor, positions: Tensor, documents: Tensor | None = None, cache: Any = None) -> Any:
        documents = torch.zeros_like(positions) if documents is None else documents
        positions = torch.where(documents < 0, 0, positions)
        x = self.tokens[ids].movedim(1, 2)  # (B, H, L, K)
        kept = []
        for layer in range(self.layers):
            level = x / x.square().mean(-1, keepdim=True).sqrt()
            q, k, v = (level @ self.into[layer, part] for part in range(3))
            q, k = self.turned(q, positions, "query"), self.turned(k, positions, "key")
            held = Kept(k, v, positions, documents)
            if cache is not None:
                dims = (2, 2, 1, 1)
                old = cache[layer]
                held = Kept(*(torch.cat(pair, dim) for *pair, dim in zip(old, held, dims, strict=True)))
            kept.append(held)
            x = x + self.attend(q, positions, documents, held)
        return x, kept

    def turned(self, x: Tensor, positions: Tensor, role: Any) -> Tensor:
        if not self.target.has("rotation"):
            return x
        return self.target.rotate(self.built, x.to(self.dtype), positions, role).double()

    def attend(self, q: Tensor, positions: Tensor, documents: Tensor, held: Kept) -> Tensor:
        score = q @ held.k.transpose(-1, -2) * self.scale
        if self.target.has("bias"):
            L = positions.shape[1]
            # One query is asked for twice: what it gets alone is C26's matter.
            rows = zip(positions.repeat(1, 2) if L == 1 else positions, held.positions, strict=True)
            score = score + torch.stack([self.target.bias(self.built, *row)[:, :L] for row in rows]).double()
        apart = positions[:, :, None] - held.positions[:, None]
        seen = (apart >= 0) & (documents[:, :, None] == held.documents[:, None]) & (held.documents[:, None] >= 0)
        if self.target.spec.window is not None:
            seen = seen & (apart < self.target.spec.window)
        share = score.masked_fill(~seen[:, None], -math.inf).softmax(-1).nan_to_num(0.0)
        return share @ held.v


def _sites(target: Target) -> str:
    return " and ".join(name for name, site in (("rotate", "rotation"), ("bias", "bias")) if target.has(site))


def views(target: Target) -> list[Any]:
    """Ways to see a target as a whole model; each call makes it anew, so that no schedule sees another's traces."""
    found: list[Any] = []
    if target.has("rotation|bias"):
        found.append(lambda: Surround(target, target.build()))
    if target.has("forward"):
        size = target.spec.vocabulary or VOCABULARY
        found.append(lambda: Pass(target, target.build(), vocabulary=size))
    return found
