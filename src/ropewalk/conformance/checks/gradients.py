"""N10: what flows back."""

from __future__ import annotations

import torch
from torch import nn

from ropewalk.conformance import oracles
from ropewalk.conformance.checks import check
from ropewalk.conformance.findings import Findings, NotApplicable
from ropewalk.conformance.places import below, settled, start_near
from ropewalk.conformance.target import Target


@check("N10", "gradients", bound=1e-6, unit="of the gradient", needs=("rotation|bias",), kinds=("rope", "t5"))
def gradients(target: Target, found: Findings) -> None:
    """The gradient of a rotation is the inverse rotation, times the gain; that of a bias table a sum over its pairs."""
    with torch.enable_grad():
        if target.spec.kind == "rope":
            of_rotation(target, found)
        elif target.has("bias"):
            of_table(target, found)


def of_rotation(target: Target, found: Findings) -> None:
    spec = target.spec
    positions = torch.tensor(below(spec, [0, 1, 5, 257, 4_095, 131_071]))
    asked = settled(spec, positions[None])
    x = found.normal(1, spec.heads, asked.shape[1], spec.head_width).requires_grad_()
    turned = target.rotate(target.build(), x, asked)
    if turned.grad_fn is None:
        found.require("a gradient", False, "nothing flows back through rotate: its gradient is cut")
        return
    flow = found.normal(*turned.shape, more=1)
    (got,) = torch.autograd.grad(turned, x, flow)
    wants = [oracles.rotate(flow, -asked, spec, omegas) for omegas in oracles.truths(spec)]
    apart = torch.stack([(got.double() - want).abs() for want in wants]).amin(0) / wants[0].abs().amax()
    # float32 products of position and frequency are N01's matter: here a wrong sign or a missing path is looked for.
    size = len(positions)
    found.measure(
        "d rotate / d x",
        apart[:, :, :2],
        found.bound,
        positions[:2],
        dim=2,
        why="the gradient is not the inverse rotation of what flows back",
    )
    itself = target.rotate(target.build(), flow, asked).detach()
    back = (got.detach().double() * x.detach().double()).sum(), (flow.double() * turned.detach().double()).sum()
    scale = (flow.double().norm() * turned.detach().double().norm()).clamp(min=1e-30)
    found.measure(
        "<gradient, x> = <flow, rotate(x)>",
        (back[0] - back[1]).abs() / scale,
        found.bound,
        why=f"rotate is not linear, or its gradient is another function's, at up to {int(positions[size - 1]):,}",
    )
    if not torch.isfinite(itself).all():
        found.require("finite", False, "rotate gives NaN or infinity")


def of_table(target: Target, found: Findings) -> None:
    spec, built = target.spec, target.build()
    if not isinstance(built, nn.Module):
        raise NotApplicable("what it builds is no nn.Module, so that its table is not known")
    sizes = {(spec.buckets, spec.heads), (spec.heads, spec.buckets)}
    tables = [parameter for parameter in built.parameters() if tuple(parameter.shape) in sizes]
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
    bucket = oracles.buckets_of(k[None] - q[:, None], spec).flatten()
    want = torch.zeros(spec.buckets, spec.heads, dtype=torch.float64)
    want.index_add_(0, bucket, flow.double().flatten(1).T)
    found.compare(
        "d bias / d table",
        got,
        want,
        found.bound,
        scale=want.abs().amax(),
        why="the gradient of a bucket is not the sum over the pairs in it",
    )
