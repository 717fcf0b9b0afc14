"""N10: what flows back."""

from __future__ import annotations

import torch
from torch import nn

from ropewalk.conformance.checks import check
from ropewalk.conformance.checks.biases import bucket_tables
from ropewalk.conformance.findings import Findings, NotApplicable
from ropewalk.conformance.places import below, settled, start_near
from ropewalk.conformance.target import Target


@check("N10", "gradients", bound=1e-6, unit="of the gradient", needs=("rotation|bias",), kinds=("rope", "t5"))
def gradients(target: Target, found: Findings) -> None:
    """The gradient of a linear map is its transpose."""
    with torch.enable_grad():
        if target.spec.kind == "rope":
            of_rotation(target, found)
        elif target.has("bias"):
            of_table(target, found)


def of_rotation(target: Target, found: Findings) -> None:
    """Against its own transpose: what `rotate` does to every unit vector, whatever its angles are."""
    spec, K, H = target.spec, target.spec.head_width, target.spec.heads
    positions = torch.tensor(below(spec, [0, 1, 5, 257, 4_095, 131_071]))
    asked = settled(spec, positions[None])
    built, L = target.build(), asked.shape[1]
    x = found.normal(1, H, L, K).requires_grad_()
    turned = target.rotate(built, x, asked)
    if turned.grad_fn is None:
        found.require("a gradient", False, "nothing flows back through rotate: its gradient is cut")
        return
    flow = found.normal(*turned.shape, more=1)
    (got,) = torch.autograd.grad(turned, x, flow)
    with torch.no_grad():
        units = torch.eye(K)[:, None, None].expand(K, H, L, K).contiguous()
        columns = target.rotate(built, units, asked.expand(K, L)).double()  # (K, H, L, K)
    want = torch.einsum("hlj,ihlj->hli", flow[0].double(), columns)[None]
    found.compare(
        "d rotate / d x",
        got[:, :, : len(positions)],
        want[:, :, : len(positions)],
        found.bound,
        positions,
        dim=2,
        scale=want.abs().amax(),
        why="the gradient is not the transpose of what rotate does to unit vectors",
    )


def of_table(target: Target, found: Findings) -> None:
    spec, built = target.spec, target.build()
    if not isinstance(built, nn.Module):
        raise NotApplicable("what it builds is no nn.Module, so that its table is not known")
    tables = bucket_tables(spec, built)
    if len(tables) != 1:
        raise NotApplicable(f"it has {len(tables)} parameters of shape (buckets, H); one was looked for")
    start = start_near(spec, 300, 40)
    q, k = torch.arange(start + 20, start + 40), torch.arange(start, start + 40)
    bias = target.bias(built, q, k)
    if bias.grad_fn is None:
        found.require("a gradient", False, "nothing flows back into the table: its gradient is cut")
        return
    flow = found.normal(*bias.shape) * (k[None] <= q[:, None])
    (got,) = torch.autograd.grad(bias, tables, flow)
    got = got if tuple(got.shape) == (spec.buckets, spec.heads) else got.T
    table, kept = tables[0], tables[0].detach().clone()
    want, size = torch.zeros(2, spec.buckets, spec.heads, dtype=torch.float64)
    with torch.no_grad():
        for bucket in range(spec.buckets):
            # A bias is linear in its table: of a table with ones in one bucket it says which pairs are in that bucket.
            table.zero_()
            (table if table.shape[0] == spec.buckets else table.T)[bucket] = 1.0
            parts = (flow * target.bias(built, q, k)).double()
            want[bucket], size[bucket] = parts.sum((1, 2)), parts.abs().sum((1, 2))
        table.copy_(kept)
    found.compare(
        "d bias / d table",
        got,
        want,
        found.bound,
        scale=size.amax(),  # sums in float32 are off by their terms, not by what is left of them
        why="the gradient of a bucket is not the sum over the pairs in it",
    )
