"""48 layers, three seeds: what post-norm loses at depth and DeepNorm keeps (arXiv:2203.00555).

    python -m campaigns.depth [--rounds 3] [--json]        (rounds are seeds)

An encoder of 48 layers learns to reverse a sequence, with post-norm and with DeepNorm, from the same seeds, data,
learning rate and number of steps. The bar: post-norm's final loss is at least twice DeepNorm's, seed by seed.
"""

from __future__ import annotations

import sys
from typing import Any

from benchmarks import bars

LAYERS, STEPS, LENGTH, RATE = 48, 200, 8, 2e-3


def run(seeds: int) -> dict[str, Any]:
    losses = {placement: [final_loss(placement, seed) for seed in range(seeds)] for placement in ("post", "deep")}
    ratios = [post / deep for post, deep in zip(losses["post"], losses["deep"], strict=True)]
    return {
        "bars": {"post-norm's loss over DeepNorm's, the smallest, at least": bars.bar(min(ratios), 2.0, at_least=True)},
        "measured": {f"{name}, seed {n}": loss for name, found in losses.items() for n, loss in enumerate(found)},
        "versions": bars.versions(()),
    }


def final_loss(placement: str, seed: int) -> float:
    """The mean loss over the last 20 steps."""
    import torch
    from torch.nn import functional as F

    from ropewalk.models import Transformer, TransformerConfig

    torch.manual_seed(seed)
    data = torch.Generator().manual_seed(seed)
    model = Transformer(
        TransformerConfig(
            stack="encoder",
            vocabulary=11,
            width=32,
            heads=4,
            hidden=64,
            layers=LAYERS,
            norm={"kind": "layer", "placement": placement},
            activation="relu",
            bias=True,
            tie=False,
            std=None,
            encoding={"kind": "learned", "longest": LENGTH, "std": 0.3},
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.0)
    losses = []
    for _ in range(STEPS):
        x = torch.randint(1, 11, (32, LENGTH), generator=data)
        loss = F.cross_entropy(model(x).flatten(0, 1), x.flip(1).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-20:]) / 20


if __name__ == "__main__":
    sys.exit(bars.main(__doc__, run, rounds=3))
