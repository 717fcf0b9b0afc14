"""One training step of a layer with dropout: ours against torch's nn.TransformerEncoderLayer, and what dropout costs.

    python benchmarks/dropout.py [--rounds 31] [--json]

Both are one pre-norm layer of width 512 with 8 heads and GELU on 8 x 256 tokens, with dropout 0.1 on attention weights
and after both sublayers (torch's layer has a third place inside the feed-forward, which is left out here). Torch's
generator decides in both. They run in turn in one process; a figure is the median over the rounds of a ratio of times.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from typing import Any

import bars

MOST, WIDTH, HEADS, HIDDEN, BATCH, LENGTH, RATE = 1.2, 512, 8, 2048, 8, 256, 0.1


def run(rounds: int) -> dict[str, Any]:
    import torch

    found: dict[str, dict[str, Any]] = {}
    measured: dict[str, float] = {}
    for dtype in (torch.float32, torch.bfloat16):
        mode = str(dtype).removeprefix("torch.")
        print(mode, file=sys.stderr, flush=True)
        x = torch.randn(BATCH, LENGTH, WIDTH, dtype=dtype, requires_grad=True)
        steps = {
            "torch": step(torchs(RATE).to(dtype), x),
            "ropewalk": step(ours(RATE).to(dtype), x),
            "ropewalk without dropout": step(ours(0.0).to(dtype), x),
        }
        spent = bars.interleaved(steps, rounds)
        for name in ("torch", "ropewalk without dropout"):
            ratio = statistics.median(a / b for a, b in zip(spent["ropewalk"], spent[name], strict=True))
            measured[f"ropewalk over {name}, {mode}"] = round(ratio, 3)
        value = measured[f"ropewalk over torch, {mode}"]
        found[f"time of torch's layer, {mode}, at most"] = bars.bar(value, MOST, at_least=False)
    return {"bars": found, "measured": measured, "versions": bars.versions(())}


def step(layer: Any, x: Any) -> Callable[[], None]:
    return lambda: layer(x).sum().backward()


def torchs(rate: float) -> Any:
    from torch import nn

    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, rate, "gelu", batch_first=True, norm_first=True)
    layer.dropout = nn.Identity()
    return layer


def ours(rate: float) -> Any:
    from torch import nn

    from ropewalk import positions
    from ropewalk.models import Transformer, TransformerConfig

    config = TransformerConfig(
        stack="encoder",
        width=WIDTH,
        heads=HEADS,
        hidden=HIDDEN,
        layers=1,
        vocabulary=8,
        activation="gelu",
        bias=True,
        encoding="none",
        norm={"kind": "layer", "placement": "pre"},
        dropout={"attention": rate, "residual": rate},
    )
    stack = Transformer(config).encoder

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block, self.encoding, self.rule = stack.blocks[0], stack.kinds[0], stack.rules[0]

        def forward(self, x: Any) -> Any:
            at = positions.plain(x.shape[1], batch=len(x))
            return self.block(x, self.encoding.at(at), self.rule)

    return Layer()


if __name__ == "__main__":
    sys.exit(bars.main(__doc__, run, rounds=31))
