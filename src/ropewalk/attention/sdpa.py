"""PyTorch's fused attention, wherever it computes our score exactly: no soft cap, no sink logit.

The rule reaches it as a boolean mask, a bias as a dense float mask; both only where choose.py finds them small. A plain
causal pass needs neither.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ropewalk.attention.score import Score, precise


def attend(q: Tensor, k: Tensor, v: Tensor, score: Score, *, plain: bool) -> Tensor:
    """`plain`: the rule is the ordinary causal triangle or no rule at all, so no mask is built."""
    H, K, V = q.shape[1], q.shape[-1], v.shape[-1]
    # The fused kernels want one width; zeros add nothing to q.k and are cut off the output.
    width = max(K, V)
    q, k, v = (F.pad(x, (0, width - x.shape[-1])) if x.shape[-1] < width else x for x in (q, k, v))
    shared = {"scale": score.scale, "enable_gqa": H != k.shape[1]}
    if plain and not score.biased:
        return F.scaled_dot_product_attention(q, k, v, is_causal=score.rule.causal, **shared)[..., :V]
    signal = score.signal
    mask = score.rule.mask(signal.q, signal.k)
    sees = mask.any(dim=-1, keepdim=True)
    mask = mask | ~sees  # a row that sees nothing is computed on everything, then set to 0: no NaN, no gradient
    if score.biased:
        bias = score.bias(H, signal.q, signal.k).to(precise(q.dtype))
        mask = bias.masked_fill(~mask, -torch.inf).to(q.dtype)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **shared)
    return (out * sees.to(out.dtype))[..., :V]
