"""A run: a recipe, a folder, and everything in it.

RUN/recipe.yaml      what was run, every default written out
RUN/metrics.jsonl    what happened
RUN/checkpoints/     the last few states, each whole and verified
RUN/export/          the model, when it is done
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from ropewalk.checkpoints.native import Trained
from ropewalk.data.open import Data, open_data
from ropewalk.distributed.world import World
from ropewalk.encodings import compile_rotations
from ropewalk.models.config import TransformerConfig
from ropewalk.overrides import to_yaml
from ropewalk.train.checkpoint import Checkpoints
from ropewalk.train.config import Recipe
from ropewalk.train.cost import gemm_peak, step_flops
from ropewalk.train.drift import check_drift
from ropewalk.train.faults import Signals, Watch, Watchdog
from ropewalk.train.lease import Lease, die_with_parent
from ropewalk.train.loop import Loop
from ropewalk.train.metrics import Metrics, tracker
from ropewalk.train.objective import learner
from ropewalk.train.optim import optimizers
from ropewalk.train.progress import Progress
from ropewalk.train.sizes import sizes
from ropewalk.train.write import write_model


@dataclass
class Result:
    out: Path
    step: int
    steps: int
    valid: dict[str, Any]
    export: Path | None
    signal: int | None = None
    """That ended it early."""

    @property
    def finished(self) -> bool:
        return self.step == self.steps


def train(
    recipe: Recipe,
    out: str | Path,
    *,
    resume: bool = False,
    allow_drift: bool = False,
    device: str = "cpu",
    shown: bool = False,
    until: int | None = None,
    world: World | None = None,
) -> Result:
    """Trains what the recipe says. resume: from the newest whole checkpoint in `out`, or from the start if there is
    none. until: stop after so many steps, as a signal would. world: of processes that are there already."""
    out = Path(out)
    die_with_parent()
    if world is not None:
        return _train(recipe, out, world, resume, allow_drift, shown, until)
    world = World.start(recipe.mesh, device=device)
    try:
        return _train(recipe, out, world, resume, allow_drift, shown, until)
    finally:
        world.stop()


def _train(
    recipe: Recipe, out: Path, world: World, resume: bool, allow_drift: bool, shown: bool, until: int | None
) -> Result:
    compile_rotations()
    config = recipe.train
    data = open_data(recipe.data, stack=recipe.model.stack, seed=config.seed)
    recipe = recipe.model_copy(update={"model": fitted(recipe.model, data)})
    cut = sizes(config, data.length, world.dp_size)
    first = world.rank == 0
    if first:
        refuse_another(out, resume)
        out.mkdir(parents=True, exist_ok=True)
    lease = Lease(out, world)
    with lease, Signals() as signals, Watchdog(config.faults, world, out / "stacks") as watchdog:
        model = learner(
            recipe.model,
            world,
            seed=config.seed,
            precision=config.precision,
            recompute=config.recompute,
            compiled=config.compile,
        )
        made = optimizers(config.optimizer, model, config.peak(recipe.model.width))
        written = recipe.model_dump(mode="json")
        checkpoints = Checkpoints(
            out / "checkpoints", keep=config.save.keep, lease=lease, asynchronous=config.save.asynchronous
        )
        loop = Loop(
            config, cut, data, world, model, made, checkpoints, Watch(config.faults, world), signals, watchdog,
            progress=Progress(cut.steps, 0, shown=False), metrics=None,
            facts={"recipe": written, "data": data.fingerprint, "versions": versions()},
        )  # fmt: skip
        if resume and (found := checkpoints.newest()) is not None:
            check_drift(found.state, loop.facts, allow=allow_drift)
            loop.restore(found)
        if first:
            (out / "recipe.yaml").write_text(to_yaml(written), encoding="utf-8")
            trackers = [tracker(config.track, out.name, written)] if config.track else []
            loop.metrics = Metrics(out / "metrics.jsonl", trackers)
            loop.progress = Progress(cut.steps, loop.step, shown=shown)
        loop.flops = step_flops(recipe.model, cut.rows, cut.length, data.source_length)
        loop.peak = gemm_peak(config.precision, world.device) if shown else None
        if until is not None:
            signals.stop_after(until)
        try:
            with loop.progress:
                finished = loop.run()
        finally:
            if loop.metrics is not None:
                loop.metrics.close()
        export = None
        if finished:
            trained = Trained(cut.length, data.source_length, data.start, data.end)
            export = write_model(model, out / "export", world, trained, tokenizer=data.tokenizer)
        return Result(out, loop.step, cut.steps, loop.valid, export, signals.received)


def fitted(model: TransformerConfig, data: Data) -> TransformerConfig:
    """The model with as many tokens as the data has, where the recipe leaves that open."""
    if "vocabulary" not in model.model_fields_set:
        return TransformerConfig.model_validate({**model.model_dump(), "vocabulary": data.vocabulary})
    if model.vocabulary < data.vocabulary:
        raise ValueError(
            f"model.vocabulary={model.vocabulary} and the data has tokens up to {data.vocabulary - 1}; leave "
            f"model.vocabulary out, or write model.vocabulary={data.vocabulary}"
        )
    return model


def refuse_another(out: Path, resume: bool) -> None:
    """A run is not written over another."""
    if not resume and any(out.glob("checkpoints/step-*")):
        raise ValueError(
            f"{out} holds a run already; go on with it by --resume, or begin another with --out ANOTHER_FOLDER"
        )


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "torch": torch.__version__}
    for package in ("ropewalk", "grain", "tokenizers"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    return found
