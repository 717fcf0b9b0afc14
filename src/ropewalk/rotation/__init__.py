"""Applies a rotation: each pair of features turns by the angle of its position (RoPE, arXiv:2104.09864).

    (a, b) -> (a cos - b sin, b cos + a sin)        x: [x0 x1 x2 x3]   half: (x0 x2)(x1 x3)   pairs: (x0 x1)(x2 x3)

Where we differ: products and sums are float32 whatever x is, each rounded for itself, and the result is rounded once.
Three ways give the same bits: `plain` is the formula, for whatever traces it or differentiates it in another way;
`eager`, the default, works in place, a tile at a time; `kernel` is one pass over memory for large tensors,
two to four times as fast, for those who ask for it and wait some seconds once while it is compiled.
One exception: eager pairs are torch's complex product, whose last bit may differ where a run ends inside a vector.
"""

from __future__ import annotations

import os
import warnings
from typing import Any, Literal

import torch
from torch import Tensor

from ropewalk.rotation.kernel import compiled, has_kernel
from ropewalk.torch_private import CannotCompile, watched

Layout = Literal["half", "pairs"]

COMPILE_FROM = 2**19  # elements of x; below, a call gains under 0.3 ms and compiling takes seconds
SMALL = 2**16  # elements of x, one token of a batch: up to there the number of calls counts, not what they write
TILE = {"half": 2**17, "pairs": 2**19}  # elements of x for each thread: their temporaries stay in a core's own cache


def rotate(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
    """x (B, H, L, K), its first R features turned, contiguous; cos and sin (B or 1, 1, L or 1, R/2)."""
    (B, _, L, K), table = x.shape, cos.shape
    if layout not in ("half", "pairs"):
        raise ValueError(f"layout={layout!r}: choose half or pairs")
    if table != sin.shape or len(table) != 4 or table[1] != 1 or 2 * table[3] > K:
        raise ValueError(f"cos {tuple(table)} and sin {tuple(sin.shape)} must be (B or 1, 1, L, R/2), R <= {K}")
    if table[0] not in (1, B) or table[2] not in (1, L):
        raise ValueError(f"cos {tuple(table)} does not fit x {tuple(x.shape)}: one row for each of {L} positions")
    if cos.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"cos and sin are {cos.dtype}, which loses the angle: keep the tables in float32")
    work = torch.promote_types(x.dtype, cos.dtype)
    if cos.dtype != work or sin.dtype != work:
        cos, sin = cos.to(work), sin.to(work)
    if watched(x) or cos.requires_grad or sin.requires_grad:
        return plain(x, cos, sin, layout)
    if x.requires_grad and torch.is_grad_enabled():
        return _Rotation.apply(x, cos, sin, layout)
    return _turn(x, cos, sin, layout)


def compile_rotations(wanted: bool = True) -> None:
    """Rotate large tensors with a compiled kernel from now on, in this process. The first rotation of each dtype and
    width waits some seconds for a compiler. ROPEWALK_COMPILE=1 or 0 in the environment decides before this does."""
    global _WANTED
    _WANTED = wanted


def backend() -> str:
    """How large tensors are rotated: "compiled", or "eager: " and why."""
    said = os.environ.get("ROPEWALK_COMPILE")
    if said == "0" or (said != "1" and not _WANTED):
        return "eager: " + ("ROPEWALK_COMPILE=0" if said == "0" else "no compiled kernel was asked for")
    return "compiled" if _FAILURE is None else f"eager: {_FAILURE}"


def plain(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
    pairs = cos.shape[-1]
    split, axis = ((2, pairs), -2) if layout == "half" else ((pairs, 2), -1)
    a, b = x[..., : 2 * pairs].unflatten(-1, split).to(cos.dtype).unbind(axis)
    turned = a * cos - b * sin, b * cos + a * sin
    if layout == "half":
        # Inductor vectorises halves that are rounded before they are joined, and neighbours the other way round.
        turned = turned[0].to(x.dtype), turned[1].to(x.dtype)
    joined = torch.stack(turned, axis).flatten(-2).to(x.dtype)
    return (torch.cat((joined, x[..., 2 * pairs :]), -1) if x.shape[-1] > 2 * pairs else joined).contiguous()


class _Rotation(torch.autograd.Function):
    """The gradient of a rotation is the rotation back: the same kernel with -sin, and nothing of x to keep."""

    @staticmethod
    def forward(*given: Any, **_: Any) -> Tensor:
        return _turn(*given)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, cos, sin, ctx.layout = inputs
        ctx.save_for_backward(cos, sin)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None, None]:
        (gradient,), (cos, sin) = gradients, ctx.saved_tensors
        return rotate(gradient, cos, -sin, ctx.layout), None, None, None


def _turn(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
    if layout == "pairs" and not _whole_pairs(x):
        x = x.clone(memory_format=torch.contiguous_format)  # contiguous() keeps an odd offset into the storage
        if x.shape[-1] % 2:
            return plain(x, cos, sin, layout)
    if x.numel() < COMPILE_FROM or not has_kernel(x, cos, layout) or backend() != "compiled":
        return eager(x, cos, sin, layout)
    try:
        return compiled(x, cos, sin, layout, plain)
    except CannotCompile as error:
        global _FAILURE
        _FAILURE = str(error)
        warnings.warn(
            f"rotations run in eager mode, 2 to 4 times slower, because torch.compile failed: {_FAILURE} "
            "(without ROPEWALK_COMPILE=1 and compile_rotations() nothing is compiled)",
            RuntimeWarning,
            stacklevel=3,
        )
        return eager(x, cos, sin, layout)


def _whole_pairs(x: Tensor) -> bool:
    """Whether two neighbouring features can be seen as one complex number, or one integer of twice the size."""
    return x.stride(-1) == 1 and not any(step % 2 for step in (*x.stride()[:-1], x.storage_offset()))


def eager(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
    """On a CPU in tiles of positions: step by step over a whole tensor, all in main memory, takes twice as long."""
    L, R = x.shape[2], 2 * cos.shape[-1]
    if x.is_cpu and layout == "half" and x.shape[-1] == R and x.numel() <= SMALL:
        a, b = x.to(cos.dtype).chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype).contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if R < x.shape[-1]:
        out[..., R:] = x[..., R:]
    turn, tables = (_turn_half, (cos, sin)) if layout == "half" else (_turn_pairs, (torch.complex(cos, sin),))
    parts = (x[..., :R], out[..., :R], *tables)
    tile = TILE[layout] * torch.get_num_threads()
    if not x.is_cpu or x.numel() <= tile or (layout == "pairs" and x.dtype == cos.dtype):
        turn(*parts)
    else:
        rows = max(1, tile * L // x.numel())
        for rows_of in zip(*(part.expand(-1, -1, L, -1).split(rows, 2) for part in parts), strict=True):
            turn(*rows_of)
    return out


def _turn_half(x: Tensor, out: Tensor, cos: Tensor, sin: Tensor) -> None:
    (a, b), (first, second) = (part.to(cos.dtype) for part in x.chunk(2, -1)), out.chunk(2, -1)
    # Not addcmul_, which fuses the product into the sum: the bits would differ from the compiled kernel's.
    other = b * sin
    if out.dtype == cos.dtype:
        torch.mul(a, cos, out=first).sub_(other)
        torch.mul(a, sin, out=other)
        torch.mul(b, cos, out=second).add_(other)
    else:
        first.copy_((a * cos).sub_(other))
        torch.mul(a, sin, out=other)
        second.copy_(b.mul_(cos).add_(other))


def _turn_pairs(x: Tensor, out: Tensor, table: Tensor) -> None:
    wide = x.to(table.real.dtype)
    turned = out if wide is x else wide
    source, target = (torch.view_as_complex(t.unflatten(-1, (-1, 2))) for t in (wide, turned))
    torch.mul(source, table, out=target)
    if turned is not out:
        out.copy_(turned)


_FAILURE: str | None = None
_WANTED = False
