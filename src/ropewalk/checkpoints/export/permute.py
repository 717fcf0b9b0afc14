"""The two orders in which a head's rotating features can lie, and how weights go from one to the other.

    half    a_0 a_1 .. b_0 b_1 ..      feature i turns with i + w/2      transformers
    pairs   a_0 b_0 a_1 b_1 ..         feature 2i turns with 2i + 1      llama.cpp's Llama, Meta's own files

Queries and keys are permuted alike, so every score keeps its terms and only their order in the sum changes. Values are
moved, never computed: going there and back is the identity, bit for bit. Only the first `rotary_width` features of a
head move; those that do not rotate stay where they are.
"""

from __future__ import annotations

from torch import Tensor

from ropewalk.plan import Layout


def half_to_pairs(tensor: Tensor, *, heads: int, rotary_width: int) -> Tensor:
    """Rows (heads * head width, ...) of a query or key weight, bias or norm, from half to pairs."""
    return _turned(tensor, heads, (2, rotary_width // 2))


def pairs_to_half(tensor: Tensor, *, heads: int, rotary_width: int) -> Tensor:
    """The inverse of `half_to_pairs`."""
    return _turned(tensor, heads, (rotary_width // 2, 2))


def relaid(tensor: Tensor, before: Layout, after: Layout, *, heads: int, rotary_width: int) -> Tensor:
    """From one layout to another; the tensor itself where they are the same."""
    if before == after:
        return tensor
    turn = half_to_pairs if after == "pairs" else pairs_to_half
    return turn(tensor, heads=heads, rotary_width=rotary_width)


def _turned(tensor: Tensor, heads: int, grid: tuple[int, int]) -> Tensor:
    width = grid[0] * grid[1]
    rows = tensor.shape[0] if tensor.ndim else 0
    if heads < 1 or rows % heads:
        raise ValueError(f"{rows} rows are not those of {heads} heads; give a query's or a key's weight, bias or norm")
    head = rows // heads
    if 2 not in grid or width < 2 or width > head:
        raise ValueError(f"a rotary width of {width} does not fit a head of {head}; it is even and at most the head")
    by_head = tensor.unflatten(0, (heads, head))
    out = by_head.clone()
    out[:, :width] = by_head[:, :width].unflatten(1, grid).transpose(1, 2).flatten(1, 2)
    return out.flatten(0, 1)
