"""Compiled and exported, the same: C29, C30."""

from __future__ import annotations

import re
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.conformance.checks import check
from ropewalk.conformance.findings import Findings, NotApplicable
from ropewalk.conformance.places import start_near
from ropewalk.conformance.target import Target

LENGTHS = (8, 13, 16, 21, 32, 45, 64, 77)


class Rotates(nn.Module):
    """A target's rotation as a module, for export."""

    def __init__(self, target: Target, built: Any) -> None:
        super().__init__()
        self.rotation = target.function("rotate", "rotate_query")
        self.built = built

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        return self.rotation(self.built, x, positions)


class Biases(nn.Module):
    def __init__(self, target: Target, built: Any) -> None:
        super().__init__()
        self.bias = target.function("bias")
        self.built = built

    def forward(self, positions: Tensor) -> Tensor:
        return self.bias(self.built, positions, positions)


def inputs(target: Target, found: Findings, length: int, start: int) -> tuple[Tensor, ...]:
    positions = torch.arange(start, start + length)
    if target.has("rotation"):
        x = found.normal(1, target.spec.heads, length, target.spec.head_width)
        return x, target.spread(positions[None])
    return (positions,)


def size_of(target: Target, want: Tensor) -> Tensor:
    return want.double().abs().amax() if target.has("rotation") else want.double().abs().amax().clamp(min=1.0)


@check(
    "C29",
    "torch.compile: one graph, same results, few recompilations",
    bound={"difference": 1e-6, "compilations": 2.0},
    needs=("rotation|bias",),
)
def compiled(target: Target, found: Findings) -> None:
    built = target.build()
    module = (Rotates if target.has("rotation") else Biases)(target, built)
    starts = {length: start_near(target.spec, 10 * length, length) for length in LENGTHS}
    wants = {length: module(*inputs(target, found, length, starts[length])) for length in LENGTHS}
    count = 0

    def counting(graph: Any, examples: Any) -> Any:
        nonlocal count
        count += 1
        return graph

    torch.compiler.reset()
    try:
        fast = torch.compile(module, fullgraph=True, backend=counting)
        for length in LENGTHS:
            got, want = fast(*inputs(target, found, length, starts[length])), wants[length]
            why = "compiled, it gives something else"
            result = found.compare(f"{length} tokens", got, want, found.bound, scale=size_of(target, want), why=why)
            result.reproduce = "torch.compile(lambda x, p: target.rotate(built, x, p), fullgraph=True)"
    finally:
        torch.compiler.reset()
    found.measure(
        f"compilations over {len(LENGTHS)} lengths", count, found.bounds[-1], why="every length is compiled anew"
    )


def refusal(error: Exception) -> str:
    """Why torch.export would not have it, without the pages of advice."""
    text = " ".join(str(error).split())
    place = re.search(r"Caused by: \(\S*?([\w.]+:\d+) in", text)
    if place:
        return f"at {place[1]} a number is read out of a tensor (item, tolist, int, if), and a graph has none to give"
    if "specialized it to be a constant" in text:
        return "the length of the example became a constant of the graph: no other is taken"
    return f"raised {type(error).__name__}: {text[:300] + '...' if len(text) > 300 else text}"


@check("C30", "torch.export, then twice the length", bound=1e-6, needs=("rotation|bias",))
def exported(target: Target, found: Findings) -> None:
    module = (Rotates if target.has("rotation") else Biases)(target, target.build())
    length = 12
    start = start_near(target.spec, 3, 2 * length + 40)
    example = inputs(target, found, length, start)
    any_length = torch.export.Dim("length", min=2, max=4096)
    dims = ({2: any_length}, {1: any_length}) if target.has("rotation") else ({0: any_length},)
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):  # a failing export prints its graph
            program = torch.export.export(module, example, dynamic_shapes=dims, strict=False)
    except Exception as error:
        found.require("torch.export of any length", False, refusal(error))
        return
    for count, name in ((length, "the example's length"), (2 * length, "twice the length")):
        given = inputs(target, found, count, start + 37 if count > length else start)
        want = module(*given)
        found.compare(
            name,
            program.module()(*given),
            want,
            found.bound,
            given[-1].reshape(count, -1)[:, 0],  # of several axes, which are the same here, the first
            dim=want.ndim - 2,
            scale=size_of(target, want),
            why="a table of the example's length, or its positions, was baked in",
        )
    if not found.compared:
        raise NotApplicable("nothing to export")
