"""PyTorch's fused attention, wherever it computes our score: no soft cap, no sink logit, no dropout by position.

The rule reaches it as a boolean mask, a bias as a dense float mask; both only where choose.py finds them small. A plain
causal pass needs neither.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ropewalk.attention import documents
from ropewalk.attention.rule import opened
from ropewalk.attention.score import Score, per_query_head, precise


def attend(q: Tensor, k: Tensor, v: Tensor, score: Score, *, plain: bool) -> Tensor:
    """`plain`: the rule is the ordinary causal triangle or no rule at all, so no mask is built."""
    H, K, V = q.shape[1], q.shape[-1], v.shape[-1]
    # The fused kernels want one width; zeros add nothing to q.k and are cut off the output.
    width = max(K, V)
    q, k, v = (F.pad(x, (0, width - x.shape[-1])) if x.shape[-1] < width else x for x in (q, k, v))
    signal, B, L, G = score.signal, q.shape[0], q.shape[2], k.shape[1]
    if not plain and documents.fit(score, q):
        k, v = per_query_head(k, H), per_query_head(v, H)
        return documents.attend(q, k, v, signal.q, causal=score.rule.causal, scale=score.scale)[..., :V]
    folded = L == 1 and H != G and not score.biased
    if folded:
        # One query a head: the heads that share a key are so many queries of one head, and each key is read once.
        q = q.view(B, G, H // G, width) if q.is_contiguous() else q.reshape(B, G, H // G, width)
    shared = {"scale": score.scale, "enable_gqa": H != G and not folded, "dropout_p": score.rate}
    if plain and not score.biased:
        # A token after those of a cache sees them all; a triangle would be anchored at the first key.
        causal = score.rule.causal and not (L == 1 and signal.seen is not None)
        return _fused(q, k, v, is_causal=causal, **shared).view(B, H, L, width)[..., :V]
    seen = signal.seen
    shared_by_layers = seen is not None and seen.fits(signal.q, signal.k, score.rule)
    mask, sees = seen.open if shared_by_layers else opened(score.rule.mask(signal.q, signal.k))
    if score.biased:
        bias = score.bias(H, signal.q, signal.k).to(precise(q.dtype))
        mask = bias.masked_fill(~mask, -torch.inf).to(q.dtype)
    out = _fused(q, k, v, attn_mask=mask, **shared)
    return (out * sees.to(out.dtype)).view(B, H, L, width)[..., :V]


def _fused(q: Tensor, k: Tensor, v: Tensor, *, attn_mask: Tensor | None = None, **settings: Any) -> Tensor:
    if not (documents.slow_backward(k) and torch.is_grad_enabled() and q.requires_grad):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, **settings)
    with torch.autocast("cpu", enabled=False):
        mask = attn_mask.float() if attn_mask is not None and attn_mask.is_floating_point() else attn_mask
        q, k, v = q.float(), k.float(), v.float()
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **settings).bfloat16()
