"""Exact attention for any score in bounded memory: a tile of queries at a time, bias and rule built for the tile alone.

    forward   P = softmax(score),  O = P V,  and the log of each softmax's sum is kept
    backward  P again from it;  dV = P' G,  dS = P (G V' - sum(G O)),  dQ, dK and the bias's parameters from dS

Nothing of size L x S outlives its tile, in either direction, so a bias of 8 heads at 16,384 tokens (8 GiB when dense)
takes about as much as its inputs. Keys that no query of a tile can see are left out (reach.py), which halves a causal
pass and makes a windowed one linear.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from ropewalk.attention import eager
from ropewalk.attention.reach import Keys, Part, parts
from ropewalk.attention.score import DROPOUT, Score, no_autocast, precise
from ropewalk.encodings import Signal
from ropewalk.encodings.base import map_table
from ropewalk.phase import WITHOUT_FLOAT64
from ropewalk.positions import Positions
from ropewalk.torch_private import transformed

TILE = 2**22
"""Scores in one tile: 16 MiB of float32. Larger tiles leave the cache and are slower."""
LARGEST = 2**27
"""Bytes that one tile may take in all, its bias and dropout mask included."""
FEWEST = 16
"""Queries in a tile, at least; below, rows of the batch are taken apart first."""


class Tile(NamedTuple):
    rows: slice
    queries: slice
    keys: Keys


def why_not(q: Tensor, k: Tensor, v: Tensor, score: Score) -> None:
    """It can do everything."""


def memory(q: Tensor, k: Tensor, v: Tensor, score: Score) -> int:
    """Of the largest tile: its scores, and beside them the bias, the dropout mask, or keys that are widened."""
    wide, scores, beside = precise(q.dtype), *_pair(q, score)
    widened = k.shape[1] * max(k.shape[3], v.shape[3]) * wide.itemsize if k.dtype != wide else 0
    largest = 0
    for rows, part in _parts(q, k, score):
        tile = part.pairs * scores + max(part.pairs * beside, part.count * widened)
        largest = max(largest, (rows.stop - rows.start) * tile)
    return largest + q.shape[:3].numel() * wide.itemsize


def tile_bytes(q: Tensor, k: Tensor, score: Score) -> tuple[int, int]:
    """Bytes that a tile takes at most, going forward and going back, found without looking at any position."""
    scores, beside = _pair(q, score)
    tile = min(q.shape[0] * q.shape[2] * k.shape[2], _most(q, score))
    # Back again: the gradient of the scores, and what a bias kept of its own making, in float64 where it learns.
    again = 2 * beside + 2 * scores if score.learns else 0
    return tile * (scores + beside), tile * (2 * scores + beside + again)


def _most(q: Tensor, score: Score) -> int:
    """Pairs of a query and a key in one tile."""
    return min(TILE // q.shape[1], LARGEST // sum(_pair(q, score)))


def _pair(q: Tensor, score: Score) -> tuple[int, int]:
    """Bytes for one query and one key, all heads': of their scores and mask, and at the peak beside them."""
    H, scores, wide = q.shape[1], q.shape[1] * precise(q.dtype).itemsize, precise(q.dtype) == torch.float64
    # A bias is in float32, and widened where it is added to float64.
    bias = score.signal.encoding.bias_bytes(H) + (scores if wide else 0) if score.biased else 0
    return scores + 2, max(bias, 0 if score.dropout is None else H * DROPOUT + scores)


def attend(q: Tensor, k: Tensor, v: Tensor, score: Score) -> Tensor:
    with no_autocast(q.device):
        return _in_graph(q, k, v, score) if transformed(q) else _attend(q, k, v, score)


def _in_graph(q: Tensor, k: Tensor, v: Tensor, score: Score) -> Tensor:
    """The reference a part of the queries at a time, each computed again in the backward pass: a graph, a transform of
    torch.func or a tensor without numbers cannot ask which keys a tile sees. The number of parts is a power of two, so
    that few lengths need a graph of their own."""
    (B, H, L, _), S = q.shape, k.shape[2]
    parts = 1
    while parts * 4 * TILE < B * H * L * S and parts < L:
        parts *= 2
    if parts == 1:
        return eager.attend(q, k, v, score)
    done = []
    for part in range(parts):
        some = slice(part * L // parts, (part + 1) * L // parts)
        signal = score.signal
        own = Signal(signal.encoding, signal.q.take(some), signal.k, signal.q_table, None)
        run = partial(eager.attend, score=replace(score, signal=own))
        done.append(checkpoint(run, q[:, :, some], k, v, use_reentrant=False))
    return torch.cat(done, dim=2)


def _attend(q: Tensor, k: Tensor, v: Tensor, score: Score) -> Tensor:
    # The tensors of the table that ask for a gradient enter the function as inputs of their own.
    every: list[Tensor] = []
    map_table(lambda x: every.append(x) or x, score.signal.q_table)
    return _Tiled.apply(q, k, v, score.sink, score, *(x for x in every if x.requires_grad))


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(  # pyrefly: ignore[bad-override]  (torch declares it as *args and lets every function name its own)
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        sink: Tensor | None,
        score: Score,
        *learned: Tensor,
    ) -> Tensor:
        B, H, L, _ = q.shape
        wide = precise(q.dtype)
        out = q.new_zeros(B, H, L, v.shape[-1])
        log_sum = torch.full((B, H, L, 1), -torch.inf, dtype=wide, device=q.device)
        for tile in _tiles(q, k, score):
            mixed, log_sum[tile.rows, :, tile.queries] = _mixed(q, k, v, sink, score, tile)
            out[tile.rows, :, tile.queries] = mixed.to(q.dtype)
        ctx.save_for_backward(q, k, v, sink, out, log_sum, *learned)
        ctx.score = score
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads_out: Tensor) -> tuple[Tensor | None, ...]:  # pyrefly: ignore[bad-override]
        with no_autocast(grads_out[0].device):
            return _backward(ctx, *grads_out)


def _mixed(q: Tensor, k: Tensor, v: Tensor, sink: Tensor | None, score: Score, tile: Tile) -> tuple[Tensor, Tensor]:
    """The values of a tile, mixed, and the log of each softmax's sum. A function of its own: nothing of a tile is left
    while the next is computed."""
    q_at, k_at = _places(score, tile)
    logits, _, _ = _logits(score, _products(q, k, tile), score.factor(q), q_at, k_at)
    wide = logits.dtype
    largest = logits.amax(dim=-1, keepdim=True)
    if sink is not None:
        largest = torch.maximum(largest, sink.to(wide)[:, None, None])
    shares = _exp(logits, largest)
    total = shares.sum(dim=-1, keepdim=True)
    if sink is not None:
        total = total + torch.exp(sink.to(wide)[:, None, None] - largest)
    kept = _grouped(score.drop(shares, tile.rows, q_at, k_at), v.shape[1])
    summed = kept.matmul(v[tile.rows, :, tile.keys].to(wide)).view(*shares.shape[:3], -1)
    return summed / total.masked_fill(total == 0, 1.0), largest + total.log()


class _Gradients(NamedTuple):
    """Of the inputs, summed over the tiles."""

    q: Tensor
    k: Tensor
    v: Tensor
    sink: Tensor | None
    learned: list[Tensor | None]


def _backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
    q, k, v, sink, out, log_sum, *saved = ctx.saved_tensors
    score, learned = _with_own_leaves(ctx.score, saved)
    wide = precise(q.dtype)
    dq, dk, dv = (torch.zeros(x.shape, dtype=wide, device=x.device) for x in (q, k, v))
    d_sink = None if sink is None else torch.zeros_like(sink, dtype=wide)
    sums = _Gradients(dq, dk, dv, d_sink, [None] * len(learned))
    for tile in _tiles(q, k, score):
        some = (tile.rows, slice(None), tile.queries)
        _add_gradients(sums, tile, q, k, v, sink, out[some], log_sum[some], grad_out[some].to(wide), score, learned)
    sink_grad = None if sink is None or d_sink is None else d_sink.to(sink.dtype)
    narrowed = [None if x is None else x.to(like.dtype) for x, like in zip(sums.learned, saved, strict=True)]
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), sink_grad, None, *narrowed


def _add_gradients(
    sums: _Gradients,
    tile: Tile,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sink: Tensor | None,
    out: Tensor,
    total: Tensor,
    grad: Tensor,
    score: Score,
    learned: list[Tensor],
) -> None:
    """out, total, grad: of the tile's queries."""
    (rows, queries, keys), G, wide = tile, k.shape[1], grad.dtype
    q_at, k_at = _places(score, tile)
    logits, bias, capped = _logits(score, _products(q, k, tile), score.factor(q), q_at, k_at, learns=bool(learned))
    weights = _exp(logits, total)
    inner = (grad * out.to(wide)).sum(-1, keepdim=True)
    sums.v[rows, :, keys] += _grouped(score.drop(weights, rows, q_at, k_at), G).mT @ _grouped(grad, G)
    d_logits = _grouped(grad, G).matmul(v[rows, :, keys].to(wide).mT).view_as(weights)
    d_logits = score.drop(d_logits, rows, q_at, k_at).sub_(inner).mul_(weights)
    if sink is not None and sums.sink is not None:
        sums.sink.sub_((torch.exp(sink.to(wide)[:, None, None] - total) * inner).nan_to_num(0.0).sum((0, 2, 3)))
    if bias is not None and bias.requires_grad:
        grads = d_logits.sum_to_size(bias.shape).to(bias.dtype)
        # A chain's table may also hold what only `embed` reads: such a leaf has no gradient here.
        for number, part in enumerate(torch.autograd.grad(bias, learned, grads, allow_unused=True)):
            if part is not None:
                before = sums.learned[number]
                sums.learned[number] = part if before is None else before + part
    if capped is not None and score.soft_cap is not None:
        d_logits.mul_(1 - (capped / score.soft_cap) ** 2)
    d_products = _grouped(d_logits.mul_(score.factor(q)), G)
    sums.q[rows, :, queries] = d_products.matmul(k[rows, :, keys].to(wide)).view(*weights.shape[:3], -1)
    sums.k[rows, :, keys] += d_products.mT @ _grouped(q[rows, :, queries].to(wide), G)


def _tiles(q: Tensor, k: Tensor, score: Score) -> Iterator[Tile]:
    for rows, part in _parts(q, k, score):
        yield Tile(rows, part.queries, part.keys)


def _parts(q: Tensor, k: Tensor, score: Score) -> Iterator[tuple[slice, Part]]:
    """Cuts rows and queries into tiles, each with the keys that any of its queries can see."""
    (B, _, L, _), S = q.shape, k.shape[2]
    most = _most(q, score)
    batch = max(1, min(B, most // max(1, S * min(L, FEWEST))))
    for first in range(0, B, batch):
        rows = slice(first, min(first + batch, B))
        for part in parts(score.rule, *_rows(score, rows), most // (rows.stop - rows.start), FEWEST):
            yield rows, part


def _rows(score: Score, rows: slice) -> tuple[Positions, Positions]:
    at, to = (p if p.order.shape[0] == 1 else p.rows(rows) for p in (score.signal.q, score.signal.k))
    return at, to


def _places(score: Score, tile: Tile) -> tuple[Positions, Positions]:
    at, to = _rows(score, tile.rows)
    return at.take(tile.queries), to.take(tile.keys)


def _products(q: Tensor, k: Tensor, tile: Tile) -> Tensor:  # (B, H, l, s)
    wide = precise(q.dtype)
    part = q[tile.rows, :, tile.queries].to(wide)
    keys = k[tile.rows, :, tile.keys].to(wide)
    return _grouped(part, k.shape[1]).matmul(keys.mT).view(*part.shape[:3], -1)


def _grouped(x: Tensor, groups: int) -> Tensor:
    """(B, H, l, n) -> (B, G, H/G l, n): the query heads of one key head as more rows of one matrix."""
    B, H, rows, n = x.shape
    return x.reshape(B, groups, H // groups * rows, n)


def _exp(logits: Tensor, largest: Tensor) -> Tensor:
    # Where nothing is seen the largest is -inf, and -inf - -inf no number. What is less than e^-69 = 1e-30 of the sum,
    # or hidden, is 0 in the end; it never becomes a denormal number or an exp(-inf), because those take a CPU many
    # times longer: a steep ALiBi, seven times in all.
    shares = logits.sub_(largest.masked_fill(largest == -torch.inf, 0.0)).clamp_(min=-69.0).exp_()
    return torch.threshold_(shares, 1.1e-30, 0.0)


def _logits(
    score: Score, products: Tensor, factor: float, q: Positions, k: Positions, *, learns: bool | None = None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The logits as `Score.logits` has them, in the products' own memory. In the backward pass, which says whether the
    bias `learns`, also the bias, attached to its parameters, and the capped scores."""
    logits, capped, bias = products.mul_(factor), None, None
    if score.soft_cap is not None:
        capped = logits.div_(score.soft_cap).tanh_().mul_(score.soft_cap)
        logits = capped if learns is None else capped.clone()
    if score.biased:
        with torch.set_grad_enabled(bool(learns)):
            bias = score.bias(products.shape[1], q, k)
        logits = logits.add_(bias.detach())
    logits = logits.masked_fill_(~score.rule.mask(q, k), -torch.inf)
    return (logits, None, None) if learns is None else (logits, bias, capped)


def _with_own_leaves(score: Score, saved: list[Tensor]) -> tuple[Score, list[Tensor]]:
    """The score on detached copies of its learned tensors, so that a tile's gradient stops there.

    In float64: a bucket of T5's table gathers hundreds of thousands of scores one after the other, which in float32
    costs its gradient two digits.
    """
    fresh = [x.detach().to(x.dtype if x.device.type in WITHOUT_FLOAT64 else torch.float64) for x in saved]
    fresh = [x.requires_grad_() for x in fresh]
    left = iter(fresh)
    signal = score.signal
    table = map_table(lambda x: next(left) if x.requires_grad else x, signal.q_table)
    own = Signal(signal.encoding, signal.q, signal.k, table, None)
    return replace(score, signal=own), fresh
