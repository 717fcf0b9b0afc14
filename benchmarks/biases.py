"""Attention with ALiBi and with T5's bias at 16,384 tokens, 2 heads of 64, and its gradients: ours and x-transformers.

    python benchmarks/biases.py [--rounds 3] [--length 16384] [--json]

x-transformers makes the bias of all pairs (2 GiB here) and gives it to the fused kernel; ours is computed in tiles.
Both make their bias in every pass, as a model does. In each round each runs once, in turn; a figure is the median over
the rounds of their time over ours. The gradients of T5's bias are compared at half the length: at 16,384 x-transformers
was ended by a machine of 24 GiB.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import bars

HEADS, WIDTH, LENGTH = 2, 64, 16_384
FASTER = 1.0
MODES = (("alibi", False, 1), ("alibi", True, 1), ("t5", False, 1), ("t5", True, 2))
"""The bias, whether its gradients are computed, and what the length is divided by."""


def run(rounds: int, longest: int = LENGTH) -> dict[str, Any]:
    import torch

    measured: dict[str, float] = {}
    found: dict[str, dict[str, Any]] = {}
    for kind, backward, divisor in MODES:
        length = longest // divisor
        torch.manual_seed(0)
        given = [torch.randn(1, HEADS, length, WIDTH).requires_grad_(backward) for _ in range(3)]
        ways = {"ropewalk": ours(kind, length), "x-transformers": theirs(kind, length)}
        steps = {name: partial(once, way, given, backward) for name, way in ways.items()}
        mode = f"{kind} at {length:,}, forward{' and backward' if backward else ''}"
        print(mode, file=sys.stderr, flush=True)
        spent = bars.interleaved(steps, rounds)
        measured |= {f"{name}, {mode}: seconds": statistics.median(times) for name, times in spent.items()}
        ratios = [their / own for own, their in zip(*spent.values(), strict=True)]
        name = f"ropewalk over x-transformers, {mode}: times faster, at least"
        found[name] = bars.bar(statistics.median(ratios), FASTER, at_least=True)
    return {"bars": found, "measured": measured, "versions": bars.versions(["x-transformers"])}


def once(way: Callable[..., Any], given: list[Any], backward: bool) -> None:
    import torch

    with torch.set_grad_enabled(backward):
        out = way(*given)
        if backward:
            torch.autograd.grad(out.sum(), given)


def ours(kind: str, length: int) -> Callable[..., Any]:
    from ropewalk import encodings, positions
    from ropewalk.attention import Rule, Score, attend

    encoding = encodings.build(kind, heads=HEADS)
    return lambda q, k, v: attend(q, k, v, Score(encoding.at(positions.plain(length)), Rule()))


def theirs(kind: str, length: int) -> Callable[..., Any]:
    from x_transformers.attend import Attend
    from x_transformers.x_transformers import AlibiPositionalBias, RelativePositionBias

    attend = Attend(causal=True, flash=True, heads=HEADS)
    if kind == "alibi":
        bias = AlibiPositionalBias(heads=HEADS, total_heads=HEADS)
    else:
        bias = RelativePositionBias(scale=WIDTH**0.5, causal=True, heads=HEADS)
    return lambda q, k, v: attend(q, k, v, attn_bias=bias(length, length))[0]


if __name__ == "__main__":
    length = LENGTH
    if "--length" in sys.argv:
        place = sys.argv.index("--length")
        length = int(sys.argv[place + 1])
        del sys.argv[place : place + 2]
    sys.exit(bars.main(__doc__, partial(run, longest=length), rounds=3))
