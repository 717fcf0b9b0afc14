"""A checkpoint of one world read in another: python -m tests.train.worlds_run [--steps 50] prints the differences.

moved: tensors that are not bit for bit the same after a way through another mesh. losses: of a run that was begun on
two ranks and resumed on others, relative to the run that stayed, the largest over so many steps. read: tensors that one
process reads otherwise from the last checkpoint than the ranks wrote them into the export.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch

from ropewalk.distributed.apply import parallelise
from ropewalk.distributed.world import MeshConfig, World
from ropewalk.models.config import TransformerConfig
from ropewalk.train.checkpoint.store import Checkpoints, Found
from ropewalk.train.objective import Learner
from ropewalk.train.optim import AdamW, Muon, optimizers
from tests.train import forked, small_recipe

# Every kind of parameter that is sharded, sliced or kept whole.
MODEL = TransformerConfig.model_validate(
    {
        "vocabulary": 37, "width": 32, "heads": 4, "key_heads": 2, "layers": 2, "hidden": 48, "fused": False,
        "tie": False, "sink": True, "qk_norm": "head", "qkv_bias": True, "encoding": "t5",
    }
)  # fmt: skip
MESHES: dict[str, tuple[int, dict[str, int]]] = {
    "FSDP 2": (2, {}),
    "FSDP 3": (3, {}),
    "TP 2": (2, {"tp": 2}),
    "CP 2": (2, {"cp": 2}),
    "FSDP 2 x TP 2": (4, {"tp": 2}),
    "HSDP 2 x 2": (4, {"dp_replicate": 2}),
}
OPTIMIZERS = {"AdamW": False, "Muon": True}


def make(world: World, seed: int, muon: bool) -> tuple[Learner, list[Any]]:
    model = parallelise(lambda: Learner(MODEL), world, seed=seed)
    assert isinstance(model, Learner)
    return model, optimizers(Muon(), model, 1e-3) if muon else optimizers(AdamW(), model, 1e-3)


def spread(made: list[Any], model: Learner) -> None:
    """Optimizers with something to remember: one step with gradients that differ from number to number."""
    for parameter in model.parameters():
        parameter.grad = (parameter.detach() * 3).sin()
    for optimizer in made:
        optimizer.step()
        optimizer.zero_grad()


def begin(folder: Path) -> None:
    def work(rank: int) -> None:
        world = World.start()
        for name, muon in OPTIMIZERS.items():
            model, made = make(world, 1, muon)
            spread(made, model)
            Checkpoints(folder / name, world).save(1, model, made, {"step": 1})

    assert not any(forked.run(work)), "no checkpoint to begin with"


def move(before: Path, after: Path, ranks: int, mesh: dict[str, int]) -> list[int]:
    """Read in this world, and written by it."""

    def work(rank: int) -> None:
        world = World.start(MeshConfig(**mesh))
        for name, muon in OPTIMIZERS.items():
            model, made = make(world, 2, muon)
            checkpoints = Checkpoints(before / name, world)
            found = checkpoints.newest()
            assert found is not None
            state = checkpoints.load(found, model, made)
            Checkpoints(after / name, world).save(state["step"], model, made, state)

    return forked.run(work, ranks)


def held(folder: Path, muon: bool) -> dict[str, torch.Tensor]:
    from ropewalk.train.checkpoint import tensors

    world = World.start()
    checkpoints = Checkpoints(folder, world)
    found: Found | None = checkpoints.newest()
    assert found is not None
    model, made = make(world, 3, muon)
    checkpoints.load(found, model, made)
    return tensors.collect(model, made)


def moved(folder: Path) -> dict[str, dict[str, Any]]:
    start = folder / "start"
    begin(start)
    wanted = {name: held(start / name, muon) for name, muon in OPTIMIZERS.items()}
    said: dict[str, dict[str, Any]] = {name: {} for name in OPTIMIZERS}
    for mesh, (ranks, sides) in MESHES.items():
        failed = any(move(start, folder / mesh, ranks, sides))
        for name, muon in OPTIMIZERS.items():
            said[name][mesh] = "failed" if failed else differing(wanted[name], held(folder / mesh / name, muon))
    return said


def differing(wanted: dict[str, torch.Tensor], got: dict[str, torch.Tensor]) -> list[str]:
    wrong = [key for key in wanted if key not in got or not torch.equal(wanted[key], got[key])]
    return sorted({*wrong, *(got.keys() - wanted.keys())})


def resumed(folder: Path, steps: int) -> tuple[dict[str, float], dict[str, list[str]]]:
    from ropewalk.train.run import train

    def run(out: Path, ranks: int, until: int | None, encoding: str = "rope", fused: bool = False, **mesh: int) -> None:
        recipe = small_recipe.recipe(steps + 4, steps + 4, batch=128)  # saved where it stops, and no more often
        changes = {"encoding": encoding, "fused": fused}
        model = TransformerConfig.model_validate({**recipe.model.model_dump(exclude_unset=True), **changes})
        recipe = recipe.model_copy(update={"mesh": MeshConfig(**mesh), "model": model})
        assert not any(forked.run(lambda rank: train(recipe, out, resume=True, until=until), ranks, limit=300))

    whole, begun = folder / "whole", folder / "begun"
    run(whole, 2, None)
    run(begun, 2, 4)
    wanted = small_recipe.losses(whole)
    said, read = {}, {}
    for name, ranks, mesh in (("1", 1, {}), ("4", 4, {}), ("TP 2", 2, {"tp": 2}), ("CP 2", 2, {"cp": 2})):
        out = folder / f"on {name}"
        shutil.copytree(begun, out)
        run(out, ranks, None, **mesh)
        got = small_recipe.losses(out)
        assert sorted(got) == sorted(wanted)
        said[f"2 to {name}"] = max(abs(got[step][0] / wanted[step][0] - 1) for step in wanted)
        read[f"2 to {name}"] = read_alone(out)
    # One process with the matrices of q, k and v in one; two ranks, who need them apart.
    run(folder / "fused", 1, None, fused=True)
    run(folder / "fused to TP 2", 1, 4, fused=True)
    run(folder / "fused to TP 2", 2, None, tp=2)
    wanted, got = small_recipe.losses(folder / "fused"), small_recipe.losses(folder / "fused to TP 2")
    said["fused to TP 2"] = max(abs(got[step][0] / wanted[step][0] - 1) for step in wanted)
    read["fused to TP 2"] = read_alone(folder / "fused to TP 2")
    # It learns numbers that are no vectors.
    run(folder / "fire", 2, None, "fire")
    read["FIRE"] = read_alone(folder / "fire")
    return said, read


def read_alone(out: Path) -> list[str]:
    from safetensors.torch import load_file

    from ropewalk.train.checkpoint.saved_model import export_run

    alone = out.with_name(f"{out.name} alone")
    export_run(out, alone)
    together, one = (load_file(each / "model.safetensors") for each in (out / "export", alone))
    assert one.keys() == together.keys()
    return [key for key in one if not torch.equal(one[key], together[key])]


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--steps", type=int, default=50)
    given = options.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    forked.warm()
    with tempfile.TemporaryDirectory(prefix="ropewalk-worlds-") as made:
        folder = Path(made)
        losses, read = resumed(folder, given.steps)
        said = {"moved": moved(folder), "losses": losses, "read": read}
    print(json.dumps(said))
    return 0


if __name__ == "__main__":
    sys.exit(main())
