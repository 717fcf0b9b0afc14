"""FlexAttention: the score as a function that the compiler fuses into the kernel, for devices where that pays.

The score function looks positions up by index and then speaks of positions only. Blocks that no query can see are
left out by comparing the smallest and largest order and segment of each block: L x S / 128^2 comparisons, never L x S.
On CPU there is no backward and, uncompiled, all scores are materialised; choose.py knows both.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

from ropewalk.attention.reach import BLOCK, bounds, may_see
from ropewalk.attention.rule import Rule
from ropewalk.attention.score import Score, all_scores
from ropewalk.encodings import Signal
from ropewalk.encodings.base import map_table
from ropewalk.positions import Positions


def why_not(q: Tensor, k: Tensor, v: Tensor, score: Score) -> str | None:
    encoding, cpu = score.signal.encoding, q.device.type in ("cpu", "meta")
    if score.dropout is not None:
        return "it cannot drop weights by where they are"
    if cpu and torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, *encoding.parameters())):
        return "it has no backward on CPU"
    if score.biased and not encoding.claims.pointwise and not cpu:
        return f"the bias of {encoding.config.kind} cannot run inside a kernel"
    return None


def memory(q: Tensor, k: Tensor, v: Tensor, score: Score) -> int:
    return all_scores(q, k, score) if q.device.type in ("cpu", "meta") else 0


def attend(q: Tensor, k: Tensor, v: Tensor, score: Score, *, compiled: bool | None = None) -> Tensor:
    """compiled: as everywhere but on a CPU, unless given."""
    compiled = q.device.type != "cpu" if compiled is None else compiled
    signal, H = score.signal, q.shape[1]
    if not torch.is_grad_enabled():
        # On CPU it refuses whatever asks for a gradient, even where none is taken.
        q, k, v, table = map_table(Tensor.detach, (q, k, v, signal.q_table))
        signal = Signal(signal.encoding, signal.q, signal.k, table, None)
    B = max(signal.q.shape[0], signal.k.shape[0])
    q_at, k_at = (positions.expanded(B) for positions in (signal.q, signal.k))

    def score_mod(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        b = b % B  # positions of one row serve every row
        if score.soft_cap is not None:
            s = score.soft_cap * torch.tanh(s / score.soft_cap)
        if score.biased:
            s = s + signal.bias(h + score.first_head, q_at.index[b, i], k_at.index[b, j])
        return s

    changed = score.biased or score.soft_cap is not None
    run = partial(
        torch.compile(flex_attention) if compiled else flex_attention,
        score_mod=score_mod if changed else None,
        block_mask=block_mask(score.rule, q_at, k_at),
        scale=score.factor(q),
        enable_gqa=H != k.shape[1],
    )
    with warnings.catch_warnings():
        # It warns that uncompiled it materialises the scores; the choice has already said so.
        warnings.filterwarnings("ignore", message=".*flex_attention called without torch.compile.*")
        if score.sink is None:
            return run(q, k, v)
        out, lse = _with_lse(run, q, k, v)
    # A sink logit takes its share of the softmax: out x e^lse / (e^lse + e^sink).
    share = torch.sigmoid(lse - score.sink[:, None].to(lse.dtype))
    return (out * share[..., None]).to(q.dtype)


def _with_lse(run: Callable[..., Any], q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    out, aux = run(q, k, v, return_aux=AuxRequest(lse=True))
    return out, aux.lse


def block_mask(rule: Rule, q: Positions, k: Positions) -> BlockMask:
    """The blocks of 128 x 128 in which some query may see some key; the rule itself decides within them."""
    B, L = q.shape
    S = k.shape[1]

    def mask_mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        b = b % B
        return rule.visible(q.order[b, i], k.order[b, j], q.segment[b, i], k.segment[b, j])

    may = may_see(rule, bounds(q), bounds(k))
    count = may.sum(-1, dtype=torch.int32)[:, None]  # (B, 1, L / 128)
    listed = torch.argsort(may.to(torch.int8), dim=-1, descending=True, stable=True).to(torch.int32)[:, None]
    return BlockMask.from_kv_blocks(count, listed, BLOCK_SIZE=BLOCK, mask_mod=mask_mod, seq_lengths=(L, S))
