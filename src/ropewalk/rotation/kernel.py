"""The rotation as one compiled pass over memory, near the time of a copy; `ropewalk.rotation` says when it is used.

    for each position, for each head:  out = (a cos - b sin, b cos + a sin)                       arXiv:2104.09864

Where we differ from torch.compile on that formula: Inductor would put heads outside and stream the whole table from
memory once for each; Dynamo would compile again for other strides, modes and sizes of 1, and takes longer to call than
a short kernel to run; and pairs of neighbours would not vectorise. So Inductor gets a graph written for it, once for a
dtype, a layout and a width, whatever the shapes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack, to_dlpack

from ropewalk.torch_private import CannotCompile, compile_errors, compile_graph


def has_kernel(x: Tensor, cos: Tensor, layout: str) -> bool:
    return layout == "half" or not x.is_cpu or (sys.byteorder == "little" and (x.dtype, cos.dtype) in PAIRS)


def compiled(x: Tensor, cos: Tensor, sin: Tensor, layout: str, formula: Callable[..., Tensor]) -> Tensor:
    if not x.is_cpu:
        if "formula" not in _KERNELS:
            _KERNELS["formula"] = torch.compile(formula, dynamic=True, fullgraph=True)
        try:
            return _KERNELS["formula"](x, cos, sin, layout)
        except compile_errors() as error:  # it compiles when it is called
            raise CannotCompile(error) from error
    # Any stride but the last one is a number given to the kernel.
    if not x.stride(-1) == cos.stride(-1) == sin.stride(-1) == 1:
        x, cos, sin = x.contiguous(), cos.contiguous(), sin.contiguous()
    B, H, L, K = x.shape
    pairs = cos.shape[-1]
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if 2 * pairs < K:
        out[..., 2 * pairs :] = x[..., 2 * pairs :]
        x = x[..., : 2 * pairs]
    heads = _at_once(H) if x.stride(1) > x.stride(2) and cos.shape[0] == 1 else H
    if heads < H and (B == 1 or x.stride(0) == H * x.stride(1)):
        x = x.view(-1, heads, L, 2 * pairs)
    blocks, heads = x.shape[:2]
    if cos.shape[0] != blocks or cos.shape[2] != L:
        cos, sin = cos.expand(blocks, -1, L, -1), sin.expand(blocks, -1, L, -1)
    turned = (blocks, L, heads, pairs)
    if layout == "half":
        # The second half by way of DLPack: of two outputs in one storage, the compiler would copy the whole storage.
        steps, twin = (heads * L * K, K, L * K, 1), from_dlpack(to_dlpack(out))
        body, parts = _half, (x, cos, sin, out.as_strided(turned, steps), twin.as_strided(turned, steps, pairs))
    else:
        integer, body = PAIRS[x.dtype, cos.dtype]
        steps = (heads * L * K // 2, K // 2, L * K // 2, 1)
        parts = (x.view(integer), cos, sin, out.view(integer).as_strided(turned, steps))
    key = (body, x.dtype, cos.dtype, pairs)
    if key not in _KERNELS:
        _KERNELS[key] = _compile(body, parts)
    _KERNELS[key](*parts)
    return out


def _at_once(H: int) -> int:
    """Heads inside the loop over positions: many more than 8 are more streams than a core fetches ahead."""
    return next((heads for heads in (8, 7, 6, 5, 4) if H % heads == 0), H)


def _compile(body: Callable[..., None], parts: tuple[Tensor, ...]) -> Callable[..., Any]:
    """One kernel for every B, H and L and every stride.

    It is traced on sizes and strides that have no relation to one another: each then is a number given at run time.
    """
    sizes = [(3, 11, 1021), (3, 1, 1021), (3, 1, 1021), (3, 1021, 11), (3, 1021, 11)]
    examples = []
    with torch.inference_mode(False), torch.no_grad():
        for odd, (part, (outer, middle, inner)) in enumerate(zip(parts, sizes, strict=False), 1):
            width = part.shape[-1]
            steps = [width + 10 * odd, 1]
            steps.insert(0, steps[0] * inner + 10 * odd + 2)
            steps.insert(0, steps[0] * middle + 10 * odd + 4)
            examples.append(torch.empty_strided((outer, middle, inner, width), steps, dtype=part.dtype, device="cpu"))
        return compile_graph(body, examples, dict(OPTIONS))


def _positions_first(x: Tensor, cos: Tensor, sin: Tensor, *outs: Tensor) -> tuple[Tensor, ...]:
    for tensor in (x, cos, sin, *outs):
        int(tensor.shape[-1])  # makes the width a constant of the kernel
    return tuple(tensor.transpose(1, 2) for tensor in (x, cos, sin))


def _half(x: Tensor, cos: Tensor, sin: Tensor, first: Tensor, second: Tensor) -> None:
    x, cos, sin = _positions_first(x, cos, sin, first, second)
    a, b = x.to(cos.dtype).chunk(2, -1)
    first.copy_(a * cos - b * sin)
    second.copy_(b * cos + a * sin)


def _pairs16(x: Tensor, cos: Tensor, sin: Tensor, out: Tensor) -> None:
    """Two bfloat16 seen as one int32, the first in its low bits."""
    x, cos, sin = _positions_first(x, cos, sin, out)
    a, b = (x << 16).view(torch.float32), (x & HIGH).view(torch.float32)
    out.copy_((_rounded(a * cos - b * sin) >> 16 & 0xFFFF) | (_rounded(b * cos + a * sin) & HIGH))


def _rounded(x: Tensor) -> Tensor:
    """The bits of float32 numbers, rounded to nearest even at the 16 high ones, which are then the bfloat16.

    NaN stays NaN untested: those of bfloat16 and those that arithmetic makes have zeros below, so nothing carries.
    """
    bits = x.view(torch.int32)
    return bits + 0x7FFF + (bits >> 16 & 1)


def _pairs32(x: Tensor, cos: Tensor, sin: Tensor, out: Tensor) -> None:
    """Two float32 seen as one int64, the first in its low bits."""
    x, cos, sin = _positions_first(x, cos, sin, out)
    a, b = x.to(torch.int32).view(torch.float32), (x >> 32).to(torch.int32).view(torch.float32)
    low, high = (y.view(torch.int32).to(torch.int64) for y in (a * cos - b * sin, b * cos + a * sin))
    out.copy_((low & 0xFFFFFFFF) | (high << 32))


HIGH = -(1 << 16)
OPTIONS = {
    "pick_loop_orders": False,  # positions outside and heads inside: a row of the table serves the heads from cache
    "size_asserts": True,
    "cpp.dynamic_threads": True,  # as many as there are when it runs
    "cpp.threads": 64,  # enough for the loop over positions to be shared out too
}
PAIRS = {
    (torch.bfloat16, torch.float32): (torch.int32, _pairs16),
    (torch.float32, torch.float32): (torch.int64, _pairs32),
}
_KERNELS: dict[Any, Callable[..., Any]] = {}  # code, never tensors
