"""One update of a 34M decoder, 4 x 1,024 tokens: ours against the same in bare PyTorch and as transformers' Llama.

    python benchmarks/train.py [--rounds 9] [--json]

An update is the forward pass, the loss, the backward pass, clipping and a step of fused AdamW; each library the way its
users run it: ours as `ropewalk train` does, the others with the same torch features. Everything runs in one process,
interleaved: in each round each runs once, in turn. A figure is the median over the rounds of one time over the other.
Packed: rows of documents of 64 to 512 tokens that see only themselves, against rows that are one document.
MFU: floating-point operations of the model over the best this machine does in a product of large matrices.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from typing import Any

import bare
import bars
import block

BATCH, LENGTH = 4, 1024
MODES = (("float32", False), ("float32", True), ("bfloat16", True))
OVER_TRANSFORMERS = {"float32": 1.0, "bfloat16": 1.1}
SHARE = {"float32": 0.95, "bfloat16": 0.97}
PACKED = 1.10
Step = Callable[[], Any]


def run(rounds: int) -> dict[str, Any]:
    import torch

    from ropewalk.train.plan.cost import gemm_peak, step_flops

    versions = bars.versions(["transformers"])
    measured: dict[str, float] = {}
    found: dict[str, dict[str, Any]] = {}
    for precision, compiled in MODES:
        mode = f"{'compiled' if compiled else 'eager'} {precision}"
        print(mode, file=sys.stderr, flush=True)
        torch._dynamo.reset()
        steps = {
            "bare": alone(bare.Bare(), precision, compiled),
            "ropewalk": ours(precision, compiled, packed=False),
            "ropewalk packed": ours(precision, compiled, packed=True),
        }
        if versions["transformers"] != "absent":
            steps["transformers"] = alone(block.transformers(), precision, compiled)
        spent = bars.interleaved(steps, rounds)
        share = ratio(spent["bare"], spent["ropewalk"])
        measured |= {f"{name}, {mode}: share of bare": ratio(spent["bare"], times) for name, times in spent.items()}
        found[f"{mode}: share of bare, at least"] = bars.bar(share, SHARE[precision], at_least=True)
        cost = ratio(spent["ropewalk packed"], spent["ropewalk"])
        found[f"{mode}: packed over unpacked, at most"] = bars.bar(cost, PACKED, at_least=False)
        if "transformers" in spent:
            times = ratio(spent["transformers"], spent["ropewalk"])
            bound = OVER_TRANSFORMERS[precision]
            found[f"{mode}: times transformers, at least"] = bars.bar(times, bound, at_least=True)
        flops = step_flops(model_config(), BATCH, LENGTH) / statistics.median(spent["ropewalk"])
        measured[f"ropewalk, {mode}: MFU"] = flops / gemm_peak(precision)
    return {"bars": found, "measured": measured, "versions": versions}


def ratio(over: list[float], under: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def alone(model: Any, precision: str, compiled: bool) -> Step:
    """Somebody else's model, with the loss inside what is compiled."""
    import torch
    from torch.nn import functional as F

    tokens = torch.randint(0, bare.VOCABULARY, (BATCH, LENGTH + 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def loss_of(inputs: Any, targets: Any) -> Any:
        out = model(inputs)
        logits = out if isinstance(out, torch.Tensor) else out.logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    loss_of = torch.compile(loss_of) if compiled else loss_of

    def once() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            loss = loss_of(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return once


def model_config() -> Any:
    return block.ours().config


def ours(precision: Any, compiled: bool, packed: bool) -> Step:
    import torch

    from ropewalk import positions
    from ropewalk.data.batch import Batch
    from ropewalk.distributed.apply import autocast, clip, finish
    from ropewalk.distributed.world import World
    from ropewalk.train.objective import learner
    from ropewalk.train.optim import AdamW, optimizers

    world = World.start()
    model = learner(model_config(), world, seed=0, precision=precision, compiled=compiled)
    made = optimizers(AdamW(decay=0.01), model, 1e-4)
    tokens = torch.randint(0, bare.VOCABULARY, (BATCH, LENGTH + 1))
    documents = [[512, 64, 192, 256], [128] * 8, [384, 320, 256, 64], [256, 512, 128, 128]]
    at = positions.packed(documents, limit=LENGTH) if packed else positions.plain(LENGTH, batch=BATCH)
    batch = Batch(tokens[:, :-1], at, tokens[:, 1:], torch.arange(BATCH))

    def once() -> None:
        with autocast(world, precision):
            loss = model(batch.tokens, batch.at, batch.target) / batch.targets
        loss.backward()
        finish(model, world)
        clip(model, 1.0, world)
        for optimizer in made:
            optimizer.step()
            optimizer.zero_grad()

    return once


if __name__ == "__main__":
    sys.exit(bars.main(__doc__, run, rounds=9))
