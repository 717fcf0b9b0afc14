"""The reference: the score written out, every number in float32 or better, all L x S of them at once."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.attention.score import Score, all_scores, no_autocast, per_query_head, precise


def why_not(q: Tensor, k: Tensor, v: Tensor, score: Score) -> None:
    """It can do everything."""


def memory(q: Tensor, k: Tensor, v: Tensor, score: Score) -> int:
    return all_scores(q, k, score)


def attend(q: Tensor, k: Tensor, v: Tensor, score: Score) -> Tensor:
    with no_autocast(q.device):
        return (_weights(q, k, score) @ per_query_head(v, q.shape[1]).to(precise(q.dtype))).to(q.dtype)


def weights(q: Tensor, k: Tensor, score: Score) -> Tensor:
    """(B, H, L, S), in float32 or better."""
    with no_autocast(q.device):
        return _weights(q, k, score)


def _weights(q: Tensor, k: Tensor, score: Score) -> Tensor:
    H = q.shape[1]
    wide = precise(q.dtype)
    k = per_query_head(k, H).to(wide)
    logits = score.logits(q.to(wide) @ k.mT, score.factor(q), score.signal.q, score.signal.k).to(wide)  # (B, H, L, S)
    if score.sink is not None:
        sink = score.sink.to(wide)[None, :, None, None].expand(*logits.shape[:-1], 1)
        logits = torch.cat([logits, sink], dim=-1)
    sees = (logits != -torch.inf).any(dim=-1, keepdim=True)  # NaN is not nothing
    # A row of -inf has no softmax: it is given zeros before, so that neither it nor its gradient is NaN.
    weights = torch.softmax(torch.where(sees, logits, 0.0), dim=-1) * sees
    return score.drop(weights[..., : k.shape[2]], slice(None), score.signal.q, score.signal.k)
