"""Exact attention for any score in bounded memory: a tile of queries at a time, bias and rule built for the tile alone.

    forward   P = softmax(score),  O = P V,  and the log of each softmax's sum is kept
    backward  P again from it;  dV = P' G,  dS = P (G V' - sum(G O)),  dQ, dK and the bias's parameters from dS

Nothing of size L x S outlives its tile, in either direction, so a bias of 8 heads at 16,384 tokens (8 GiB when dense)
takes about as much as its inputs. Keys that no query of a tile sees are left out, which halves a causal pass and makes
a windowed one linear.
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
from ropewalk.attention.score import Score, no_autocast, precise
from ropewalk.encodings import Signal
from ropewalk.encodings.base import map_table
from ropewalk.phase import WITHOUT_FLOAT64
from ropewalk.positions import Positions

TILE = 2**22
"""Scores in one tile: 16 MiB of float32. Larger tiles leave the cache and are slower."""
FEWEST = 16
"""Queries in a tile, at least; below, rows of the batch are taken apart first."""


class Tile(NamedTuple):
    rows: slice
    queries: slice
    keys: slice


def why_not(q: Tensor, k: Tensor, v: Tensor, score: Score) -> None:
    """It can do everything."""


def memory(q: Tensor, k: Tensor, score: Score) -> int:
    (B, H, L, _), S = q.shape, k.shape[2]
    return 6 * precise(q.dtype).itemsize * min(max(TILE, H * S * min(L, FEWEST)), B * H * L * S)


def attend(q: Tensor, k: Tensor, v: Tensor, score: Score) -> Tensor:
    with no_autocast(q.device):
        return _in_graph(q, k, v, score) if torch.compiler.is_compiling() else _attend(q, k, v, score)


def _in_graph(q: Tensor, k: Tensor, v: Tensor, score: Score) -> Tensor:
    """The reference a part of the queries at a time, each computed again in the backward pass: a graph cannot ask which
    keys a tile sees. The number of parts is a power of two, so that few lengths need a graph of their own."""
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
        for tile, q_at, k_at, seen in _tiles(q, k, score):
            logits, _, _ = _logits(score, _products(q, k, tile, wide), score.factor(q), q_at, k_at, seen)
            largest = logits.amax(dim=-1, keepdim=True)
            if sink is not None:
                largest = torch.maximum(largest, sink.to(wide)[:, None, None])
            shares = _exp(logits, largest)
            total = shares.sum(dim=-1, keepdim=True)
            if sink is not None:
                total = total + torch.exp(sink.to(wide)[:, None, None] - largest)
            kept = _grouped(score.drop(shares, tile.rows, q_at, k_at), v.shape[1])
            summed = kept.matmul(v[tile.rows, :, tile.keys].to(wide)).view(*shares.shape[:3], -1)
            out[tile.rows, :, tile.queries] = (summed / total.masked_fill(total == 0, 1.0)).to(q.dtype)
            log_sum[tile.rows, :, tile.queries] = largest + total.log()
        ctx.save_for_backward(q, k, v, sink, out, log_sum, *learned)
        ctx.score = score
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads_out: Tensor) -> tuple[Tensor | None, ...]:  # pyrefly: ignore[bad-override]
        with no_autocast(grads_out[0].device):
            return _backward(ctx, *grads_out)


def _backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
    q, k, v, sink, out, log_sum, *saved = ctx.saved_tensors
    score, learned = _with_own_leaves(ctx.score, saved)
    wide, G = precise(q.dtype), k.shape[1]
    dq, dk, dv = (torch.zeros(x.shape, dtype=wide, device=x.device) for x in (q, k, v))
    d_sink = None if sink is None else torch.zeros_like(sink, dtype=wide)
    d_learned: list[Tensor | None] = [None] * len(learned)
    for tile, q_at, k_at, seen in _tiles(q, k, score):
        rows, queries, keys = tile
        logits, bias, capped = _logits(score, _products(q, k, tile, wide), score.factor(q), q_at, k_at, seen)
        total = log_sum[rows, :, queries]
        weights = _exp(logits, total)
        grad = grad_out[rows, :, queries].to(wide)
        inner = (grad * out[rows, :, queries].to(wide)).sum(-1, keepdim=True)
        dv[rows, :, keys] += _grouped(score.drop(weights, rows, q_at, k_at), G).mT @ _grouped(grad, G)
        d_logits = _grouped(grad, G).matmul(v[rows, :, keys].to(wide).mT).view_as(weights)
        d_logits = score.drop(d_logits, rows, q_at, k_at).sub_(inner).mul_(weights)
        if d_sink is not None:
            d_sink -= (torch.exp(sink.to(wide)[:, None, None] - total) * inner).nan_to_num(0.0).sum((0, 2, 3))
        if bias is not None and bias.requires_grad:
            grads = d_logits.sum_to_size(bias.shape).to(bias.dtype)
            # A chain's table may also hold what only `embed` reads: such a leaf has no gradient here.
            for number, part in enumerate(torch.autograd.grad(bias, learned, grads, allow_unused=True)):
                if part is not None:
                    before = d_learned[number]
                    d_learned[number] = part if before is None else before + part
        if capped is not None and score.soft_cap is not None:
            d_logits.mul_(1 - (capped / score.soft_cap) ** 2)
        d_products = _grouped(d_logits.mul_(score.factor(q)), G)
        dq[rows, :, queries] = d_products.matmul(k[rows, :, keys].to(wide)).view(*weights.shape[:3], -1)
        dk[rows, :, keys] += d_products.mT @ _grouped(q[rows, :, queries].to(wide), G)
    sink_grad = None if sink is None or d_sink is None else d_sink.to(sink.dtype)
    narrowed = [None if x is None else x.to(like.dtype) for x, like in zip(d_learned, saved, strict=True)]
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), sink_grad, None, *narrowed


def _tiles(q: Tensor, k: Tensor, score: Score) -> Iterator[tuple[Tile, Positions, Positions, Tensor]]:
    """Cuts rows and queries into tiles, each with the range of keys that any of its queries sees, and which it sees."""
    (B, H, L, _), S = q.shape, k.shape[2]
    at, to = score.signal.q, score.signal.k
    batch = max(1, min(B, TILE // max(1, H * S * min(L, FEWEST))))
    step = max(FEWEST, TILE // max(1, batch * H * S))
    for b in range(0, B, batch):
        rows = slice(b, b + batch)
        q_rows, k_rows = (p if p.order.shape[0] == 1 else p.rows(rows) for p in (at, to))
        for start in range(0, L, step):
            queries = slice(start, min(start + step, L))
            q_at = q_rows.take(queries)
            seen = score.rule.mask(q_at, k_rows)
            some = seen.flatten(0, 2).any(0).nonzero()
            if len(some) == 0:
                continue  # no query here sees a key: the output stays 0
            keys = slice(int(some[0]), int(some[-1]) + 1)
            yield Tile(rows, queries, keys), q_at, k_rows.take(keys), seen[..., keys]


def _products(q: Tensor, k: Tensor, tile: Tile, wide: torch.dtype) -> Tensor:  # (B, H, l, s)
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
    score: Score, products: Tensor, factor: float, q: Positions, k: Positions, seen: Tensor
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The logits as `Score.logits` has them, in the products' own memory; the bias still attached to its parameters."""
    logits, capped, bias = products.mul_(factor), None, None
    if score.soft_cap is not None:
        capped = logits.div_(score.soft_cap).tanh_().mul_(score.soft_cap)
        logits = capped.clone()
    if score.biased:
        with torch.enable_grad():
            bias = score.bias(products.shape[1], q, k)
        logits = logits.add_(bias.detach())
    return logits.masked_fill_(~seen, -torch.inf), bias, capped


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
