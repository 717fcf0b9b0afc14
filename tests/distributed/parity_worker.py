"""The ranks of test_parity: training on each mesh of this many processes against the same training on one process.

    python -m tests.distributed.parity_worker RANKS STEPS

The ranks are forks of a process that has done the imports. Rank 0 prints one line of JSON for each mesh and model.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import torch
import torch.distributed as dist

from ropewalk.distributed import MeshConfig, World, torch_private
from tests.distributed.steps import ALONE, Steps, difference, train
from tests.train import forked

MESHES: dict[int, dict[str, dict[str, int]]] = {
    2: {"FSDP 2": {}, "TP 2": {"tp": 2}, "CP 2": {"cp": 2}},
    4: {
        "FSDP 4": {},
        "FSDP 2 x TP 2": {"tp": 2},
        "FSDP 2 x CP 2": {"cp": 2},
        "HSDP 2 x 2": {"dp_replicate": 2},
        "CP 2 x TP 2": {"cp": 2, "tp": 2},
    },
}
LONG: dict[str, dict[str, Any]] = {
    "rope": {"encoding": "rope"},
    "t5": {"encoding": "t5", "tie": False},
    "alibi": {"encoding": "alibi"},
}
DROPOUT = {"attention": 0.2, "residual": 0.1, "embedding": 0.1}
SHORT: dict[str, dict[str, Any]] = {
    "kerple, norm by head": {"encoding": "kerple", "qk_norm": "head"},
    "fire, sinks, three micro-batches": {"encoding": "fire", "sink": True, "how": {"micro": 3}},
    "learned + t5, recomputed": {
        "encoding": {"kind": "chain", "parts": [{"kind": "learned", "longest": 32}, "t5"]},
        "how": {"recompute": True},
    },
    "shared loss, tied": {
        "how": {"share_loss": True},
        "output_bias": True,
        "output_transform": True,
        "activation": "gelu",
    },
    "shared loss": {"how": {"share_loss": True, "micro": 2}, "tie": False},
    "norm across heads, all biases": {"qk_norm": "width", "qkv_bias": True, "out_bias": True, "mlp_bias": True},
    "translation with dropout": {
        "stack": "encoder-decoder",
        "encoding": {"kind": "t5", "bidirectional": True},
        "dropout": DROPOUT,
    },
}


HARD: dict[int, tuple[str, ...]] = {2: tuple(MESHES[2]), 4: ("CP 2 x TP 2",)}
"""The meshes on which the shorter runs are made as well."""


def main(steps: int) -> None:
    whole = World.start()
    processes = whole.size
    worlds = {name: World.start(MeshConfig(**sides)) for name, sides in MESHES[processes].items()}
    for models, meshes, length in ((LONG, worlds, steps), (SHORT, HARD[processes], 2)):
        for model, settings in models.items():
            config, how = {k: v for k, v in settings.items() if k != "how"}, settings.get("how", {})
            # On the one rank that compares.
            alone = train(config, ALONE, steps=length, **how) if whole.rank == 0 else None
            for mesh in meshes:
                report(mesh, model, alone, train(config, worlds[mesh], steps=length, **how), worlds[mesh])
    for mesh in HARD[processes]:
        repeat(mesh, worlds[mesh])
    if processes == 2:
        without_private_names(worlds["CP 2"])
    dist.destroy_process_group()


def without_private_names(world: World) -> None:
    """The collectives by public calls: the same numbers and gradients."""
    group = world.axis("cp").get_group()

    def collected() -> tuple[torch.Tensor, ...]:
        x = torch.arange(12.0).view(2, 3, 2).add(world.rank).requires_grad_()
        whole = torch_private.gathered(x, 1, group)
        (whole * torch.arange(6.0).view(6, 1) * (1 + world.rank)).sum().backward()
        assert x.grad is not None
        numbers = torch_private.gathered(torch.full((1, 2), world.rank), 1, group)
        return whole.detach(), x.grad, numbers, torch_private.summed(x.detach(), group)

    want = collected()
    with pytest.MonkeyPatch.context() as gone:
        gone.setitem(sys.modules, "torch.distributed._functional_collectives", None)
        got = collected()
    say({"without private names": all(torch.equal(a, b) for a, b in zip(want, got, strict=True))}, world)


def report(mesh: str, model: str, alone: Steps | None, here: Steps, world: World) -> None:
    together = all(world.same(weight) for weight in here.weights.values())
    if alone is None:
        return
    gradient, where = difference(alone.gradients, here.gradients)
    loss = max(abs(a - b) / abs(a) for a, b in zip(alone.losses, here.losses, strict=True))
    line = {"mesh": mesh, "model": model, "gradient": gradient, "where": where, "loss": loss, "together": together}
    say(line | {"norm": abs(alone.norms[0] - here.norms[0]) / alone.norms[0]}, world)


def repeat(mesh: str, world: World) -> None:
    """The same seed and world: the same bits."""
    first, second = (train({"encoding": "t5", "dropout": DROPOUT}, world, steps=3) for _ in range(2))
    same = all(torch.equal(first.weights[name], second.weights[name]) for name in first.weights)
    say({"mesh": mesh, "repeats": same and first.losses == second.losses}, world)


def say(line: dict[str, Any], world: World) -> None:
    if world.rank == 0:
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    ranks, steps = map(int, sys.argv[1:])
    sys.exit(max(map(abs, forked.run(lambda rank: main(steps), ranks, limit=1200))))
