"""One rank of test_parity: training on each mesh of this many processes against the same training on one process.

Prints, from rank 0, one line of JSON for each mesh and model.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import torch.distributed as dist

from ropewalk.distributed import MeshConfig, World
from tests.distributed.steps import ALONE, Steps, difference, train

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
    processes = World.start(timeout=60).size
    worlds = {name: World.start(MeshConfig(**sides)) for name, sides in MESHES[processes].items()}
    for models, meshes, length in ((LONG, worlds, steps), (SHORT, HARD[processes], 2)):
        for model, settings in models.items():
            config, how = {k: v for k, v in settings.items() if k != "how"}, settings.get("how", {})
            alone = train(config, ALONE, steps=length, **how)
            for mesh in meshes:
                report(mesh, model, alone, train(config, worlds[mesh], steps=length, **how), worlds[mesh])
    for mesh in HARD[processes]:
        repeat(mesh, worlds[mesh])
    dist.destroy_process_group()


def report(mesh: str, model: str, alone: Steps, here: Steps, world: World) -> None:
    gradient, where = difference(alone.gradients, here.gradients)
    loss = max(abs(a - b) / abs(a) for a, b in zip(alone.losses, here.losses, strict=True))
    together = all(world.same(weight) for weight in here.weights.values())
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
    torch.set_num_threads(1)
    main(int(sys.argv[1]))
