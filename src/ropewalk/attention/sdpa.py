"""PyTorch's fused attention, wherever it computes our score: no soft cap, no sink logit, no dropout by position.

The rule reaches it as a boolean mask, a bias as a dense float mask; both only where choose.py finds them small. A plain
causal pass needs neither.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ropewalk.attention.rule import opened
from ropewalk.attention.score import Score, all_scores, precise, same_width, slow_backward, widening

LARGEST_MASK = 64 * 2**20
"""Bytes of a boolean mask, shared by all heads, that are built without asking."""
LARGEST_BIAS = 16 * 2**20
"""The same of a bias, of which every head has its own."""
LARGEST_SCORES = 2**30
"""Bytes of scores that torch's own dropout may take on a CPU, where its fused kernel has none."""


def why_not(q: Tensor, k: Tensor, v: Tensor, score: Score) -> str | None:
    if score.soft_cap is not None:
        return "it has no soft cap"
    if score.sink is not None:
        return "it has no sink logit"
    if score.dropout is not None and score.dropout.rate is None:
        return "it cannot drop weights by where they are"
    if (unfused := _unfused(q, k, score)) > LARGEST_SCORES:
        return f"its dropout on a CPU would take {unfused / 2**20:,.0f} MiB"
    if (mask := _mask(q, k, score)) > (LARGEST_BIAS if score.biased else LARGEST_MASK):
        return f"its mask would take {mask / 2**20:,.0f} MiB"
    return None


def memory(q: Tensor, k: Tensor, v: Tensor, score: Score) -> int:
    """Of the mask as it is made and as the kernel takes it, in the queries' precision."""
    padded, unfused = widening(q, k, v), _unfused(q, k, score)
    if not score.biased and score.plain:
        return padded + unfused
    H, narrow, wide = q.shape[1], q.dtype.itemsize, precise(q.dtype).itemsize
    taken = 1 + narrow
    if score.biased:
        made = score.signal.encoding.bias_bytes(H)
        filled = H * (wide + (narrow if narrow < wide else 0))
        # A mask that learns leaves the fused kernel: torch computes all scores.
        taken = 2 + max(made, (made if score.learns else H * wide) + filled)
        unfused += 2 * q.shape[:3].numel() * k.shape[2] * wide if score.learns else 0
    # The output, before what sees nothing is set to 0.
    return padded + unfused + _pairs(q, k, score) * taken + q.shape[:3].numel() * v.shape[-1] * narrow


def _pairs(q: Tensor, k: Tensor, score: Score) -> int:
    return max(score.signal.q.shape[0], score.signal.k.shape[0]) * q.shape[2] * k.shape[2]


def _mask(q: Tensor, k: Tensor, score: Score) -> int:
    """Bytes of the mask, where one is needed."""
    if not score.biased and score.plain:
        return 0
    return _pairs(q, k, score) * (q.shape[1] * precise(q.dtype).itemsize if score.biased else 1)


def _unfused(q: Tensor, k: Tensor, score: Score) -> int:
    """Bytes that dropout takes on a CPU, whose fused kernel has none."""
    return all_scores(q, k, score) if score.rate and q.device.type in ("cpu", "meta") else 0


def attend(q: Tensor, k: Tensor, v: Tensor, score: Score) -> Tensor:
    signal, scale, V = score.signal, score.factor(q), v.shape[-1]
    q, k, v = same_width(q, k, v)
    (B, H, L, width), G = q.shape, k.shape[1]
    folded = L == 1 and H != G and not score.biased
    if folded:
        # One query a head: the heads that share a key are so many queries of one head, and each key is read once.
        q = q.view(B, G, H // G, width) if q.is_contiguous() else q.reshape(B, G, H // G, width)
    shared = {"scale": scale, "enable_gqa": H != G and not folded, "dropout_p": score.rate}
    if not score.biased and score.plain:
        # A token after those of a cache sees them all; a triangle would be anchored at the first key.
        causal = score.rule.causal and not (L == 1 and signal.seen is not None)
        return _fused(q, k, v, is_causal=causal, **shared).view(B, H, L, width)[..., :V]
    seen = signal.seen
    shared_by_layers = seen is not None and seen.describes(signal.q, signal.k, score.rule)
    mask, sees = seen.open if shared_by_layers else opened(score.rule.mask(signal.q, signal.k))
    if score.biased:
        bias = score.bias(H, signal.q, signal.k).to(precise(q.dtype)).masked_fill(~mask, -torch.inf)
        if bias.dtype != q.dtype:
            # The mask has the queries' precision, in which the bias of a far key is rounded by more than 1. Softmax
            # takes no notice of what is subtracted from a whole row, and keys near the largest are what it weighs.
            bias -= bias.detach().amax(dim=-1, keepdim=True)
        mask = bias.to(q.dtype)
    out = _fused(q, k, v, attn_mask=mask, **shared)
    return (out * sees.to(out.dtype)).view(B, H, L, width)[..., :V]


def _fused(q: Tensor, k: Tensor, v: Tensor, *, attn_mask: Tensor | None = None, **settings: Any) -> Tensor:
    if not (slow_backward(k) and torch.is_grad_enabled() and q.requires_grad):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, **settings)
    with torch.autocast("cpu", enabled=False):
        mask = attn_mask.float() if attn_mask is not None and attn_mask.is_floating_point() else attn_mask
        q, k, v = q.float(), k.float(), v.float()
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **settings).bfloat16()
