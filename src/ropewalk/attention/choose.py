"""Picks how to compute attention, and can say which way, why, and what memory it will need.

Every way computes the same score and is a file of its own: `why_not` says what it cannot do, `memory` what it takes,
`attend` does it. What differs is what a fused kernel can express and how much is materialised; a way that would
silently build H x L x S numbers is never picked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from torch import Tensor

from ropewalk.attention import documents, eager, flex, sdpa, tiled
from ropewalk.attention.score import Score

Backend = Literal["eager", "sdpa", "documents", "flex", "tiled"]
WAYS = {"eager": eager, "sdpa": sdpa, "documents": documents, "flex": flex, "tiled": tiled}


@dataclass(frozen=True)
class Choice:
    """How attention is computed, why that way, and what memory it needs."""

    backend: Backend
    reason: str
    _memory: Callable[[], int] = field(repr=False, compare=False)

    @property
    def memory(self) -> int:
        """Bytes at the peak besides q, k, v and the output, estimated for the forward pass. Worked out when asked for:
        it looks at the positions."""
        return self._memory()

    def __str__(self) -> str:
        return f"{self.backend}: {self.reason}; about {self.memory / 2**20:,.1f} MiB besides q, k, v and the output"


def attend(
    q: Tensor, k: Tensor, v: Tensor, score: Score, *, backend: Backend | None = None, strict: bool = False
) -> Tensor:
    """Attention of rotated queries (B, H, L, K) to rotated keys (B, G, S, K) and values (B, G, S, V).

    backend: the way to compute it; where that cannot give this score exactly another is taken, and with `strict` it
    raises instead.
    """
    name, _ = _chosen(q, k, v, score, backend, strict)
    if not q.shape[2] or not k.shape[2]:
        return q.new_zeros(*q.shape[:3], v.shape[3])
    return WAYS[name].attend(q, k, v, score)


def weights(q: Tensor, k: Tensor, score: Score) -> Tensor:
    """(B, H, L, S): what `attend` weighs values by, all of them at once and in float32 or better; for looking at."""
    score.check(q, k, k)
    return eager.weights(q, k, score)


def choose(
    q: Tensor, k: Tensor, v: Tensor, score: Score, *, backend: Backend | None = None, strict: bool = False
) -> Choice:
    """What `attend` would do with the same arguments; computes nothing (meta tensors will do)."""
    name, reason = _chosen(q, k, v, score, backend, strict)
    return Choice(name, reason, partial(WAYS[name].memory, q, k, v, score))


def _chosen(
    q: Tensor, k: Tensor, v: Tensor, score: Score, backend: Backend | None, strict: bool
) -> tuple[Backend, str]:
    score.check(q, k, v)
    if backend is None and not strict and score.fusible and score.plain:
        return "sdpa", "no mask needed"  # found at once, since every layer of every token asks
    if strict and backend is None:
        raise ValueError("strict=True means one backend or an error, and none is named; write backend='sdpa', ...")
    if backend not in (None, *WAYS):
        raise ValueError(f"no backend {backend!r}: {', '.join(WAYS)}, or None to choose")
    candidates: list[Backend] = ["sdpa", "tiled"] if q.device.type in ("cpu", "meta") else ["sdpa", "flex", "tiled"]
    if not score.plain and documents.why_not(q, k, v, score) is None:
        candidates = ["documents", *candidates]
    refused: dict[Backend, str] = {}
    for name in [*([] if backend is None else [backend]), *candidates]:
        obstacle = WAYS[name].why_not(q, k, v, score)
        if obstacle is None:
            reason = "; ".join(refused.values()) or _reason(name, score)
            return name, "asked for" if name == backend else reason
        if strict:
            raise ValueError(f"{name} cannot do this: {obstacle}. Drop strict, or use backend='tiled'")
        refused[name] = f"{name} cannot: {obstacle}"
    raise AssertionError("tiled attention can always run")


def _reason(backend: Backend, score: Score) -> str:
    if backend == "documents":
        return "each document by itself"
    return "no mask needed" if score.plain and not score.biased else "fused, with a small mask"
