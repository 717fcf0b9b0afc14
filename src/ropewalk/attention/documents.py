"""Attention within packed documents and windows, on a CPU: each document by itself, each block of it with what it sees.

The fused kernel takes the attention mask, and computes what the mask hides too. Documents need no mask: each is
a sequence of its own. A window leaves a block of queries a few keys, and they a small mask, so the time and memory of a
windowed pass grow with the text and not with its square. Which documents there are is read from the positions when it
runs, so this is an operator of its own, which a compiler does not look into. Other positions, keys kept past a window,
and long texts that attend to a cache or to another text get a mask after all: for some queries at a time, of the keys
that these can see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from ropewalk.attention.reach import Keys, Part, parts
from ropewalk.attention.rule import Rule, opened
from ropewalk.attention.score import Score, per_query_head, precise, same_width, slow_backward, widening
from ropewalk.positions import PAD, Positions
from ropewalk.torch_private import cpu_attention, transformed

SMALL = 1 << 13
"""Tokens of a row x tokens of an average document, below which a mask costs less than so many small calls: a row of 128
with sentences of 10 is one call with a mask, or 400 without."""
MASK = 1 << 22
"""Numbers of a mask that are there at once."""
SMALL_MASK = 1 << 20
"""Pairs of query and key below which keys of another place, a cache's or an encoder's, are left to one mask."""
BLOCK = (128, 256)
"""Fewest and most queries of a block under a window: smaller ones cost more in calls than they save in keys."""


def why_not(q: Tensor, k: Tensor, v: Tensor, score: Score) -> str | None:
    if not score.fusible:
        return "it has no bias, soft cap, sink logit or dropout"
    if q.device.type != "cpu" or torch.compiler.is_exporting() or cpu_attention() is None:
        return "it is for CPUs, of a torch that has a fused kernel for them, and not for export"
    if transformed(q) and not torch.compiler.is_compiling():
        return "transforms of torch.func cannot look into it"
    if not _own(score) and q.shape[2] * k.shape[2] < SMALL_MASK:
        return "it is for tokens that attend to themselves and for long texts; a mask is small here"
    return None


def _own(score: Score) -> bool:
    """Whether tokens attend to themselves and to neighbours: then each document has blocks of its own."""
    return score.signal.q is score.signal.k and not score.rule.keep_first


def memory(q: Tensor, k: Tensor, v: Tensor, score: Score) -> int:
    """Keys and values for every query head, the output of one block, and the masks."""
    (B, H, L, _), G, rule, item = q.shape, k.shape[1], score.rule, q.dtype.itemsize
    at, to, width = score.signal.q, score.signal.k, max(q.shape[-1], v.shape[-1])
    repeated = 0 if H == G else 2 * B * H * k.shape[2] * width * item
    pieces = _documents(at.order, at.segment, B, rule) if _own(score) else None
    found, masks = [0], {}
    for rows, some, _, mask in _blocks(pieces or (), at.order, rule, q.dtype):
        found.append((rows.stop - rows.start) * (some.stop - some.start) * H * width * item)
        masks |= {} if mask is None else {id(mask): 2 * mask.numel() * item}
    for part in () if pieces else _parts(at, to, rule):
        queries = part.queries.stop - part.queries.start
        rows = max(len(at.order), len(to.order))
        gathered = part.count if isinstance(part.keys, Tensor) else 0
        found.append(part.pairs * rows * (2 + item) + 2 * B * H * (queries + gathered) * width * item)
    log_sums = B * H * L * precise(q.dtype).itemsize
    return widening(q, k, v) + repeated + log_sums + max(found) + max(masks.values(), default=0)


def attend(q: Tensor, k: Tensor, v: Tensor, score: Score) -> Tensor:
    scale, H, V = score.factor(q), q.shape[1], v.shape[-1]
    q, k, v = same_width(q, k, v)
    k, v = per_query_head(k, H), per_query_head(v, H)
    if torch.is_autocast_enabled("cpu"):
        q, k, v = (x.to(torch.get_autocast_dtype("cpu")) for x in (q, k, v))
    at, to, rule = score.signal.q, score.signal.k, score.rule
    places = (at.order, at.segment, to.order, to.segment)
    return _attend(q, k, v, *places, _own(score), rule.causal, rule.window or 0, rule.keep_first, scale)[0][..., :V]


def _kernels() -> tuple[Callable[..., Any], Callable[..., Any]]:
    found = cpu_attention()
    assert found is not None, "`why_not` has looked"
    return found


@torch.library.custom_op("ropewalk::attend_documents", mutates_args=())
def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    order: Tensor,
    segment: Tensor,
    k_order: Tensor,
    k_segment: Tensor,
    own: bool,
    causal: bool,
    window: int,
    keep_first: int,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """own: the tokens attend to themselves, in their window. window: 0 for none."""
    (forward, _), out, weight = _kernels(), _zeros(q), _log_weight(q)
    rule = Rule(causal=causal, window=window or None, keep_first=keep_first)
    documents = _documents(order, segment, len(q), rule) if own else None
    for rows, some, keys, mask in _blocks(documents or (), order, rule, q.dtype):
        mine = (q[rows, :, some], k[rows, :, keys], v[rows, :, keys], 0.0, causal and mask is None)
        # Not by a name: it would be there with the next block's.
        out[rows, :, some], weight[rows, :, some] = forward(*mine, attn_mask=mask, scale=scale)
    at, to = _positions(order, segment), _positions(k_order, k_segment)
    for some, keys, mask, sees in () if documents else _masks(at, to, rule, q.dtype):
        mine = q[:, :, some], k[:, :, keys], v[:, :, keys]
        mixed, weight[:, :, some] = forward(*mine, 0.0, False, attn_mask=mask, scale=scale)
        out[:, :, some] = mixed * sees
    return out, weight


@_attend.register_fake
def _(q: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return _zeros(q), _log_weight(q)


@torch.library.custom_op("ropewalk::attend_documents_backward", mutates_args=())
def _gradients(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    weight: Tensor,
    order: Tensor,
    segment: Tensor,
    k_order: Tensor,
    k_segment: Tensor,
    own: bool,
    causal: bool,
    window: int,
    keep_first: int,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    (_, backward), grads = _kernels(), (_zeros(q), _zeros(k), _zeros(v))
    rule = Rule(causal=causal, window=window or None, keep_first=keep_first)
    wide = torch.float32 if slow_backward(k) else q.dtype
    documents = _documents(order, segment, len(q), rule) if own else None
    for rows, some, keys, mask in _blocks(documents or (), order, rule, wide):
        mine = (grad[rows, :, some], q[rows, :, some], k[rows, :, keys], v[rows, :, keys], out[rows, :, some])
        settings = {"attn_mask": mask, "scale": scale}
        found = backward(*_widened(*mine), weight[rows, :, some], 0.0, causal and mask is None, **settings)
        grads[0][rows, :, some] = found[0]
        for whole, part in zip(grads[1:], found[1:], strict=True):
            whole[rows, :, keys] += part  # blocks of a window share keys
    at, to = _positions(order, segment), _positions(k_order, k_segment)
    for some, keys, mask, sees in () if documents else _masks(at, to, rule, wide):
        mine = (grad[:, :, some] * sees.to(grad.dtype), q[:, :, some], k[:, :, keys], v[:, :, keys], out[:, :, some])
        found = backward(*_widened(*mine), weight[:, :, some], 0.0, False, attn_mask=mask, scale=scale)
        grads[0][:, :, some] = found[0]
        for whole, part in zip(grads[1:], found[1:], strict=True):
            whole[:, :, keys] += part
    return grads


@_gradients.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: object) -> tuple[Tensor, Tensor, Tensor]:
    return _zeros(q), _zeros(k), _zeros(v)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    tensors, ctx.settings = inputs[:7], inputs[7:]
    ctx.save_for_backward(*tensors, *output)


def _differentiate(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    q, k, v, order, segment, k_order, k_segment, out, weight = ctx.saved_tensors
    found = _gradients(grad, q, k, v, out, weight, order, segment, k_order, k_segment, *ctx.settings)
    return *found, *[None] * (4 + len(ctx.settings))


_attend.register_autograd(_differentiate, setup_context=_keep)

Piece = tuple[slice, slice]  # of rows, of tokens


def _documents(order: Tensor, segment: Tensor, rows: int, rule: Rule) -> list[Piece] | None:
    """Where each document is, or None where one is in pieces, its tokens are not in order, or there are too many."""
    breaks = segment[:, 1:] != segment[:, :-1]
    ordered = rule.causal or rule.window is not None
    if ordered and bool(((order.diff(dim=1) <= 0) & ~breaks & (segment[:, 1:] != PAD)).any()):
        return None
    found: list[Piece] = []
    for row in range(len(segment)):
        firsts = [0, *(breaks[row].nonzero()[:, 0] + 1).tolist()]
        names = segment[row, firsts].tolist()
        pieces = zip(names, firsts, [*firsts[1:], segment.shape[1]], strict=True)
        mine = [slice(first, end) for name, first, end in pieces if name != PAD]
        if len(set(names) - {PAD}) != len(mine):
            return None
        # Positions of one row stand for all rows.
        found += [(slice(0, rows) if len(segment) < rows else slice(row, row + 1), some) for some in mine]
    tokens = sum(some.stop - some.start for _, some in found)
    return found if segment.shape[1] * tokens >= SMALL * len(found) else None


def _blocks(
    documents: Iterable[Piece], order: Tensor, rule: Rule, dtype: torch.dtype
) -> Iterator[tuple[slice, slice, slice, Tensor | None]]:
    """Of each document the queries of a block, the keys that any of them sees, and the mask, where a window needs one.
    Tokens are in order, so keys at more places' distance than the window are not seen."""
    masks: dict[tuple[int, int, int], Tensor] = {}
    one = order.new_zeros(())  # the segment of a document by itself
    for rows, some in documents:
        length, window = some.stop - some.start, rule.window
        places = order[0 if len(order) == 1 else rows.start, some]
        if window is None or int(places[-1] - places[0]) < window:
            yield rows, some, some, None
            continue
        together = bool((places.diff() == 1).all())
        step = _step(window)
        for first in range(0, length, step):
            last = min(first + step, length)
            low, high = max(0, first - window + 1), last if rule.causal else min(length, last + window - 1)
            # Blocks of tokens that follow each other have one mask.
            kind = (last - first, first - low, high - low)
            mask = masks.get(kind) if together else None
            if mask is None:
                seen = rule.visible(places[first:last, None], places[None, low:high], one, one)
                mask = torch.zeros(1, 1, *seen.shape, dtype=dtype).masked_fill_(~seen, -torch.inf)
                if together:
                    masks[kind] = mask
            start = some.start
            yield rows, slice(start + first, start + last), slice(start + low, start + high), mask


def _step(window: int) -> int:
    fewest, most = BLOCK
    return min(max(window, fewest), most)


def _positions(order: Tensor, segment: Tensor) -> Positions:
    return Positions(order, order, segment, 0)


def _parts(at: Positions, to: Positions, rule: Rule) -> Iterator[Part]:
    return parts(rule, at, to, MASK // max(len(at.order), len(to.order)), BLOCK[0])


def _masks(
    at: Positions, to: Positions, rule: Rule, dtype: torch.dtype
) -> Iterator[tuple[slice, Keys, Tensor, Tensor]]:
    """Some of the queries, keys that they can see, what they see of them, and 1 for queries that see any."""
    for some, keys, _ in _parts(at, to, rule):
        seen, sees = opened(rule.mask(at.take(some), to.take(keys)))
        yield some, keys, torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, -torch.inf), sees.to(dtype)


def _widened(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor) -> tuple[Tensor, ...]:
    all_five = (grad, q, k, v, out)
    return tuple(x.float() for x in all_five) if slow_backward(k) else all_five


def _zeros(q: Tensor) -> Tensor:
    """As attention's kernels lay it out: the heads of a token side by side."""
    B, H, L, K = q.shape
    return q.new_zeros(B, L, H, K).transpose(1, 2)


def _log_weight(q: Tensor) -> Tensor:
    """(B, H, L) the logarithm of each query's sum of weights, which the backward pass needs."""
    B, H, L, _ = q.shape
    return q.new_zeros(B, L, H, dtype=precise(q.dtype)).transpose(1, 2)
