"""A run: a recipe, a folder, and everything in it.

RUN/recipe.yaml      what was run, every default written out
RUN/metrics.jsonl    what happened
RUN/tokenizer.json   of its data, where that is text
RUN/checkpoints/     the last few states, each whole and verified
RUN/export/          the model, when it is done
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from typing import Any

import torch

from ropewalk.checkpoints.load.native import Trained
from ropewalk.data.open import Data, open_data
from ropewalk.data.pairs import PairRows
from ropewalk.distributed.world import World
from ropewalk.encodings import compile_rotations
from ropewalk.models.config import TransformerConfig
from ropewalk.system import started as started_at
from ropewalk.train.checkpoint import saved_model
from ropewalk.train.checkpoint.manifest import digest
from ropewalk.train.checkpoint.model_directory import write_model
from ropewalk.train.checkpoint.store import Checkpoints, Found, sync
from ropewalk.train.config import Recipe, TrainConfig
from ropewalk.train.determinism import deterministic
from ropewalk.train.guard.drift import ABSENT, check_drift
from ropewalk.train.guard.faults import Watch
from ropewalk.train.guard.launcher import die_with_parent
from ropewalk.train.guard.lease import Lease
from ropewalk.train.guard.signals import Signals
from ropewalk.train.guard.watchdog import Watchdog
from ropewalk.train.loop import Loop, Restored, restore
from ropewalk.train.metrics import Metrics, Tracker, tracker
from ropewalk.train.objective import learner
from ropewalk.train.optim import optimizers
from ropewalk.train.plan.cost import gemm_peak, step_flops
from ropewalk.train.plan.sizes import sizes
from ropewalk.train.progress import Progress
from ropewalk.train.samples import Sampler
from ropewalk.train.start.kept import keep
from ropewalk.train.start.recipe import with_start
from ropewalk.train.start.source import fill, open_source
from ropewalk.train.start.tokens import check_data
from ropewalk.yaml_text import to_yaml

LAUNCH = "launch"
"""The file that says which start of torchrun a run is of."""


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
    kinds: Collection[str] = (),
) -> Result:
    """Trains what the recipe says. resume: from the newest whole checkpoint in `out`, or from the start if there is
    none. until: stop after so many steps, as a signal would. world: of processes that are there already. kinds:
    encodings of other packages to import where the checkpoint that the run starts from names them."""
    out = Path(out)
    die_with_parent()
    recipe = with_start(recipe, out, kinds)
    with deterministic(recipe.train.deterministic):
        if world is not None:
            return _train(recipe, out, world, resume, allow_drift, shown, until, kinds)
        world = World.start(recipe.mesh, device=device)
        try:
            return _train(recipe, out, world, resume, allow_drift, shown, until, kinds)
        finally:
            world.stop()


def _train(
    recipe: Recipe,
    out: Path,
    world: World,
    resume: bool,
    allow_drift: bool,
    shown: bool,
    until: int | None,
    kinds: Collection[str],
) -> Result:
    compile_rotations()
    config = recipe.train
    opened = partial(open_data, recipe.data, stack=recipe.model.stack, seed=config.seed)
    # Whoever opens large data first indexes it; the others read that.
    world.on_first(lambda: opened().fingerprint)
    data = opened()
    start, source, noted = config.start, None, []
    if start is not None and not any(out.glob("checkpoints/step-*")):
        source = open_source(start, kinds)
        noted = check_data(source, data, start)
    recipe = recipe.model_copy(update={"model": fitted(recipe.model, data)})
    check_positions(recipe.model, data)
    sampler = Sampler(config, data, recipe.model, world) if config.samples else None
    cut = sizes(config, data.length, world.dp_size)
    width = data.splits["train"].width
    first = world.rank == 0
    resume = world.on_first(lambda: claim(out, resume, world.launch))
    lease = Lease(out, world)
    with lease, Signals() as signals, Watchdog(config.faults, world, out / "stacks") as watchdog:
        written = recipe.model_dump(mode="json")
        checkpoints = Checkpoints(
            out / "checkpoints", world, keep=config.save.keep, lease=lease, asynchronous=config.save.asynchronous
        )
        facts = {"recipe": written, "data": data.fingerprint, "versions": versions()}
        mask = data.mask if recipe.model.stack == "encoder" else None
        # Sequences are filled up with the end token.
        trained = Trained(data.limit, data.source_length, data.start, data.end, mask=mask, pad=data.end)
        world.on_first(lambda: keep_tokenizer(data.tokenizer, out))
        found = checkpoints.newest() if resume else None
        begun: dict[str, Any] = {}
        if found is None and start is not None:
            watchdog.beat(0, "loading")
            source = source or open_source(start, kinds)
            begun = world.on_first(lambda: keep(source, start, recipe.model, trained, out))
        facts["start"] = begun.get("fingerprint") or started(start, found, kinds)
        drift = [] if found is None else check_drift(found.state, facts, allow=allow_drift)
        model = learner(
            recipe.model,
            world,
            seed=config.seed if found is None and source is None else None,
            precision=config.precision,
            recompute=config.recompute,
            compiled=config.compile,
            made=lambda: watchdog.beat(0, "initialising"),
        )
        made = optimizers(config.optimizer, model, config.peak(recipe.model.width))
        done, watch = Restored(0, frozenset(), {}), Watch(config.faults, world)
        if found is None and source is not None:
            fill(model, source, lambda: watchdog.beat(0, "loading"))
        if found is not None:
            watchdog.beat(0, "loading")
            done = restore(found, checkpoints, model, made, watch)
        aside = world.on_first(lambda: set_aside(out / "export")) if 0 < done.step < cut.steps else None
        # A run that left no checkpoint may have been another one: its record is not continued.
        before = world.on_first(lambda: set_aside(out / "metrics.jsonl")) if done.step == 0 else None
        if until is not None:
            signals.stop_after(until)
        if first:
            (out / "recipe.yaml").write_text(to_yaml(written), encoding="utf-8")
        with (
            Progress(cut.steps, done.step, shown=shown and first) as progress,
            Metrics(out / "metrics.jsonl", trackers(config, out, written)) if first else nullcontext() as metrics,
        ):
            loop = Loop(
                config, cut, data, world, model, made, checkpoints, watch, signals, watchdog, progress, metrics,
                facts=facts | saved_model.facts(trained, data.tokenizer), **done._asdict(),
                flops=step_flops(recipe.model, 1, width, data.source_length) / width,
                peak=gemm_peak(config.precision, world.device) if shown else None, sampler=sampler,
            )  # fmt: skip
            if resume:
                begins = f"no checkpoint in {out}: begins at step 1"
                progress.say(f"continues from step {found.step:,}: {found.folder}" if found else begins)
            if aside is not None:
                progress.say(f"{out / 'export'} is of a step before: it is {aside} now")
            if before is not None:
                progress.say(f"{before} is the record of what began here before and left no checkpoint")
            if begun:
                listed = [*begun["changes"], *noted, *([begun["why"]] if begun["why"] else [])]
                listed += [f"not trained and not exported: {name}" for name in begun["left_out"]]
                about = {key: begun[key] for key in ("path", "fingerprint", "family")}
                said = f"starts from {start}, fingerprint {begun['fingerprint'][:16]}"
                loop.event("start", "\n  ".join([said, *listed]), notes=listed, **about)
            if drift:
                loop.event("drift", "\n  ".join(["continues, with these differences:", *drift]), differences=drift)
            for split, rows in data.splits.items():
                if isinstance(rows, PairRows) and rows.left_out:
                    said = (
                        f"{split}: {rows.left_out:,} of {rows.source.documents:,} pairs are longer than data.length or"
                    )
                    progress.say(f"{said} data.source_length and left out")
            if not data.rows("valid"):
                progress.say("the data has no validation sequences: nothing is measured")
            if cut.batch != config.batch:
                said = f"train.batch={config.batch} is no multiple of {cut.length} tokens"
                progress.say(f"{said}: every update has {cut.batch}")
            if config.micro is not None and cut.micro * cut.length > config.micro:
                progress.say(f"train.micro={config.micro} is less than a sequence: every pass has {cut.length} tokens")
            if config.schedule.warmup >= cut.steps:
                said = f"the learning rate rises to the end: train.schedule.warmup={config.schedule.warmup}"
                progress.say(f"{said}, the run has {cut.steps} steps")
            finished = loop.run()
        export = None
        if finished:
            export = write_model(model, out / "export", world, trained, tokenizer=data.tokenizer, run=out)
        return Result(out, loop.step, cut.steps, loop.valid, export, signals.received)


def started(start: str | None, found: Found | None, kinds: Collection[str]) -> str:
    """The fingerprint of what a resumed run started from. Under the same path it is not looked at again: nothing of it
    is read, and it may be gone."""
    if start is None or found is None:
        return ABSENT
    saved = found.state.get("recipe", {}).get("train", {}).get("start")
    return found.state["start"] if start == saved else open_source(start, kinds).fingerprint()


def trackers(config: TrainConfig, out: Path, written: dict[str, Any]) -> list[Tracker]:
    return [tracker(config.track, out.name, written)] if config.track else []


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


def check_positions(model: TransformerConfig, data: Data) -> None:
    """The model has a meaning for every position of the data, and reads those that were chosen."""
    for side in model.sides:
        reading = side == "encoder" and data.source_length is not None and data.positions is None
        limit, key = (data.source_length, "data.source_length") if reading else (data.limit, "data.length")
        key = key if data.positions is None else "data.positions.reach"
        table = model.plan(side).table
        if table is not None and limit is not None and limit > table:
            raise ValueError(
                f"{key}={limit}: the {side}'s table has {table} positions; write {key}={table} or less, or raise "
                "model.encoding.longest"
            )
    layers = [layer for side in model.sides for layer in model.layer_kinds(side)]
    if data.positions is not None and all(each.encoding.kind == "none" and each.window is None for each in layers):
        raise ValueError(
            f"data.positions.kind={data.positions.kind} chooses positions, and no layer reads any (model.encoding is "
            "none); leave data.positions out, or choose another encoding"
        )


def claim(out: Path, resume: bool, launch: str) -> bool:
    """The folder of the run, made if need be; whether the run is resumed. A run does not overwrite another. What
    torchrun starts again is resumed unasked: another process has begun here, by the same start of torchrun."""
    file, partial = out / LAUNCH, out / f"{LAUNCH}.part"
    ours = [launch, f"{socket.gethostname()} {os.getpid()} {started_at(os.getpid())}"]
    theirs = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    resume = resume or (launch != "" and theirs[:1] == ours[:1] and theirs != ours)
    if not resume and any(out.glob("checkpoints/step-*")):
        raise ValueError(
            f"{out} holds a run already; continue it with --resume, or start another with --out ANOTHER_FOLDER"
        )
    out.mkdir(parents=True, exist_ok=True)
    partial.write_text("\n".join(ours), encoding="utf-8")
    partial.replace(file)
    return resume


def keep_tokenizer(tokenizer: Path | None, out: Path) -> None:
    """The tokenizer of the data beside the checkpoints: the data may be gone when a model is wanted."""
    kept = out / saved_model.TOKENIZER
    if tokenizer is None or (kept.is_file() and digest(kept) == digest(tokenizer)):
        return
    partial = kept.with_name(f"{kept.name}.partial")
    shutil.copyfile(tokenizer, partial)
    sync(partial)
    partial.replace(kept)
    sync(out)


def set_aside(made: Path) -> Path | None:
    """The model of a run that goes on is not the run's any more, and is not taken for it; nor is another's record."""
    if not made.exists():
        return None
    names = (made.with_name(f"{made.stem}-{n}{made.suffix}") for n in count(1))
    return made.rename(next(path for path in names if not path.exists()))


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "torch": torch.__version__}
    for package in ("ropewalk", "grain", "tokenizers"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    return found
