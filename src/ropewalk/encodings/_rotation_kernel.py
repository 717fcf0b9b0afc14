"""The rotation as one compiled pass over memory, near the time of a copy; `_rotation` says when it is used.

    for each position, for each head:  out = (a cos - b sin, b cos + a sin)                       arXiv:2104.09864

Where we differ from compiling that formula as it stands: Inductor would put heads outside and stream the whole table
from memory once for each; it would compile again for other strides, modes and sizes of 1; and it cannot vectorise
pairs of neighbours. Here it is compiled once for a dtype, a layout and a width, whatever the shapes.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack, to_dlpack


def fits(x: Tensor, cos: Tensor, layout: str) -> bool:
    return layout == "half" or not x.is_cpu or (sys.byteorder == "little" and (x.dtype, cos.dtype) in PAIRS)


def compiled(x: Tensor, cos: Tensor, sin: Tensor, layout: str, formula: Callable[..., Tensor]) -> Tensor:
    if not x.is_cpu:
        if "formula" not in _KERNELS:
            _KERNELS["formula"] = torch.compile(formula, dynamic=True, fullgraph=True)
        return _KERNELS["formula"](x, cos, sin, layout)
    B, _, L, K = x.shape
    pairs = cos.shape[-1]
    R = 2 * pairs
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    source, target = x[..., :R], out.transpose(1, 2)[..., :R]
    if cos.shape[0] != B or cos.shape[2] != L:
        cos, sin = cos.expand(B, -1, L, -1), sin.expand(B, -1, L, -1)
    if layout == "half":
        # The second half by way of DLPack: of two outputs in one storage, torch.compile would copy the whole storage.
        twin = from_dlpack(to_dlpack(target))
        body, parts = _half, (source, cos, sin, target[..., :pairs], twin[..., pairs:])
    else:
        whole, body = PAIRS[x.dtype, cos.dtype]
        parts = (source.view(whole), cos, sin, target.view(whole))
    key = (body, x.dtype, cos.dtype, pairs)
    if key not in _KERNELS:
        _KERNELS[key] = _compile(body, parts)
    try:
        _KERNELS[key](*parts)
    except AssertionError:  # after torch._dynamo.reset() it was compiled again, for the one shape it then saw
        _KERNELS[key] = _compile(body, parts)
        _KERNELS[key](*parts)
    if R < K:
        out[..., R:] = x[..., R:]
    return out


def _compile(body: Callable[..., None], parts: tuple[Tensor, ...]) -> Callable[..., None]:
    """One kernel for every B, H and L and every stride.

    It is traced on sizes and strides that have no relation to one another, so that each becomes a number given at run
    time. Such a kernel fits every call of its dtypes and widths; Dynamo's guards would only compile it again, and are
    left out. The kernel itself still checks its sizes. It gets a code object of its own: Dynamo keeps kernels by those.
    """
    sizes = [(3, 11, 1021), (3, 1, 1021), (3, 1, 1021), (3, 1021, 11), (3, 1021, 11)]
    options: dict[str, Any] = {
        "pick_loop_orders": False,  # positions outside, heads inside, as written: a row of the table serves all heads
        "size_asserts": True,
        "guard_filter_fn": lambda guards: [False for _ in guards],
    }
    function = types.FunctionType(body.__code__.replace(), globals())
    kernel = torch.compile(function, dynamic=True, fullgraph=True, options=options)
    examples = []
    with torch.inference_mode(False), torch.no_grad():
        for odd, (part, (B, first, second)) in enumerate(zip(parts, sizes, strict=False), 1):
            width = part.shape[-1]
            inner = width + 10 * odd
            outer = inner * second + 10 * odd + 2
            strides = (outer * first + 10 * odd + 4, outer, inner, 1)
            examples.append(torch.empty_strided((B, first, second, width), strides, dtype=part.dtype, device="cpu"))
            torch._dynamo.mark_static(examples[-1], 3)
        kernel(*examples)
    return kernel


def _positions_first(*tensors: Tensor) -> tuple[Tensor, ...]:
    if not torch.compiler.is_compiling():
        raise RuntimeError("torch.compile is disabled in this process")
    return tuple(t.transpose(1, 2) for t in tensors)


def _half(x: Tensor, cos: Tensor, sin: Tensor, first: Tensor, second: Tensor) -> None:
    x, cos, sin = _positions_first(x, cos, sin)
    a, b = x.to(cos.dtype).chunk(2, -1)
    first.copy_(a * cos - b * sin)
    second.copy_(b * cos + a * sin)


def _pairs16(x: Tensor, cos: Tensor, sin: Tensor, out: Tensor) -> None:
    """Two bfloat16 seen as one int32, the first in its low bits."""
    x, cos, sin = _positions_first(x, cos, sin)
    a, b = (x << 16).view(torch.float32), (x & HIGH).view(torch.float32)
    out.copy_((_rounded(a * cos - b * sin) >> 16 & 0xFFFF) | (_rounded(b * cos + a * sin) & HIGH))


def _rounded(x: Tensor) -> Tensor:
    """The bits of float32 numbers, rounded to nearest even at the 16 high ones, which are then the bfloat16."""
    bits = x.view(torch.int32)
    return torch.where(x != x, 0x7FC00000, bits + 0x7FFF + (bits >> 16 & 1))


def _pairs32(x: Tensor, cos: Tensor, sin: Tensor, out: Tensor) -> None:
    """Two float32 seen as one int64, the first in its low bits."""
    x, cos, sin = _positions_first(x, cos, sin)
    a, b = x.to(torch.int32).view(torch.float32), (x >> 32).to(torch.int32).view(torch.float32)
    low, high = ((y.view(torch.int32).to(torch.int64)) for y in (a * cos - b * sin, b * cos + a * sin))
    out.copy_((low & 0xFFFFFFFF) | (high << 32))


HIGH = -(1 << 16)
PAIRS = {
    (torch.bfloat16, torch.float32): (torch.int32, _pairs16),
    (torch.float32, torch.float32): (torch.int64, _pairs32),
}
_KERNELS: dict[Any, Callable[..., Any]] = {}  # code, never tensors
