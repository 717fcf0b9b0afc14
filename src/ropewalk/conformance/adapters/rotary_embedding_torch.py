"""rotary-embedding-torch: `rotate_queries_or_keys` with its offset, its two scalings, and xPos with cached keys."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ropewalk.conformance.adapters.peer import VOCABULARY, Peer, by_name, counted, need, runs
from ropewalk.conformance.target import Spec
from ropewalk.scaling import NTK, Linear

LIBRARY, DISTRIBUTION, PIP = "rotary_embedding_torch", "rotary-embedding-torch", "rotary-embedding-torch"
HEADS, WIDTH = 4, 64

ROPES: dict[str, tuple[Any, dict[str, Any], int | None, str]] = {
    "rope": (None, {"dim": WIDTH}, None, "plain RoPE"),
    "partial": (None, {"dim": WIDTH // 2}, WIDTH // 2, "plain RoPE on half of a head"),
    "interpolated": (Linear(factor=4), {"dim": WIDTH, "interpolate_factor": 4.0}, None, "interpolate_factor 4"),
    "rescaled": (NTK(factor=4), {"dim": WIDTH, "theta_rescale_factor": 4.0}, None, "theta_rescale_factor 4"),
}
"""What it is checked against, its settings, the rotary width, what it is."""


def targets() -> list[Peer]:
    need("rotary_embedding_torch", PIP)
    return [*(_rope(short, *settings) for short, settings in ROPES.items()), _xpos()]


__getattr__ = by_name(__name__)


def module(dtype: torch.dtype, device: str, **settings: Any) -> Any:
    from rotary_embedding_torch import RotaryEmbedding

    with torch.device(device):
        # The module stays as it is made: the README has q and k in bfloat16 beside it. `.to(dtype)` is asked for apart.
        return RotaryEmbedding(**settings)


def _rope(short: str, scaling: Any, settings: dict[str, Any], rotary: int | None, says: str) -> Peer:
    def build(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Any:
        return module(dtype, device, **settings)

    def rotate(built: Any, x: Tensor, positions: Tensor) -> Tensor:
        """Positions are told by an offset, so a stretch that counts up is one call."""
        from rotary_embedding_torch import apply_rotary_emb

        if (
            torch.compiler.is_compiling()
        ):  # an offset is a number, which a graph of tensors has not: its two halves then
            return apply_rotary_emb(built(positions[0].to(x.dtype) / built.interpolate_factor), x)
        rows = positions.expand(x.shape[0], -1)
        parts = [
            torch.cat([built.rotate_queries_or_keys(x[b : b + 1, :, i:j], offset=p) for i, j, p in runs(row)], dim=2)
            for b, row in enumerate(rows)
        ]
        return torch.cat(parts)

    spec = Spec(head_width=WIDTH, heads=HEADS, layout="pairs", scaling=scaling, rotary_width=rotary)
    return Peer(LIBRARY, short, spec, build, says, rotate=rotate)


def _xpos() -> Peer:
    """Attention as its README has it: keys are cached as they are, and turned with the queries at every step."""

    def build(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Any:
        return module(dtype, device, dim=WIDTH, use_xpos=True)

    def forward(built: Any, ids: Tensor, positions: Tensor | None = None, cache: Any = None) -> Any:
        generator = torch.Generator().manual_seed(3)
        tokens = torch.randn(VOCABULARY, HEADS, WIDTH, generator=generator)
        into = torch.randn(3, HEADS, WIDTH, WIDTH, generator=generator) / math.sqrt(WIDTH)
        old, due = (None, None) if cache is None else cache
        due = counted(positions, due, ids.shape[1], "rotate_queries_with_cached_keys")
        x = tokens[ids].movedim(1, 2)
        q, k, v = (x @ part for part in into)
        if old is not None:
            k, v = torch.cat([old[0], k], 2), torch.cat([old[1], v], 2)
            turned_q, turned_k = built.rotate_queries_with_cached_keys(q, k)
        else:
            turned_q, turned_k = built.rotate_queries_and_keys(q, k)
        L, S = q.shape[2], k.shape[2]
        scores = turned_q @ turned_k.transpose(-1, -2) / math.sqrt(WIDTH)
        unseen = torch.ones(L, S, dtype=torch.bool).triu(S - L + 1)
        share = scores.masked_fill(unseen, -math.inf).softmax(-1)
        return (x + share @ v).movedim(1, 2).flatten(2), ((k, v), due)

    spec = Spec(kind="other", relative=False, head_width=WIDTH, heads=HEADS, vocabulary=VOCABULARY)
    return Peer(LIBRARY, "xpos", spec, build, "xPos, keys cached as they are", forward=forward)
