"""The run of `ropewalk train` that tunes a model: its recipe, how many steps a time is, and pieces that end in time.

FOLDER/data/        texts as tokens
FOLDER/recipe.yaml  what is trained, for `torchrun ... -m ropewalk train FOLDER/recipe.yaml --out FOLDER/run` on a mesh:
                    steps that were made there are not made again here
FOLDER/run/         the run and its checkpoints
FOLDER/model/       the model at the end of a time; that of a number of steps is in the run
"""

from __future__ import annotations

import json
import os
import statistics
import time
from pathlib import Path

import torch

from ropewalk.checkpoints.engines.facts import Facts
from ropewalk.checkpoints.files.run_folder import EXPORT, committed, has_export
from ropewalk.checkpoints.resolve.read import read
from ropewalk.data.config import TextData
from ropewalk.data.drawn.skips import PoSE
from ropewalk.distributed.world import MeshConfig
from ropewalk.evaluate.engines.ours import scaled
from ropewalk.extend.asking import OutOfTime
from ropewalk.extend.candidates import Rope
from ropewalk.extend.tune.tuned import Tuning
from ropewalk.models import TransformerConfig
from ropewalk.scaling import Scaling
from ropewalk.train import metrics
from ropewalk.train.checkpoint.saved_model import export_run
from ropewalk.train.config import Recipe, SaveConfig, TrainConfig
from ropewalk.train.guard.drift import Drift
from ropewalk.train.guard.faults import FaultConfig
from ropewalk.train.optim import AdamW
from ropewalk.train.plan.estimate import estimate
from ropewalk.train.run import train
from ropewalk.train.schedule import Constant
from ropewalk.train.start.source import open_source
from ropewalk.yaml_text import to_yaml

BATCH = 8192
"""Tokens of an update, or one sequence where that is longer: small, since a laptop makes few updates."""
MICRO = 2048
"""Tokens of one pass, or one sequence where that is longer."""
PROBED = 3
"""Steps after which it is known how many more a time has."""
MOST = 1_000_000
"""Steps of the recipe where a time is given."""
SAVED = 300.0
"""Seconds after which what was trained is saved."""
DAY = 86_400.0


def recipe(path: Path, rope: Rope, scaling: Scaling, data: Path, tuning: Tuning) -> Recipe:
    """path: the checkpoint to start from."""
    rows = max(1, BATCH // rope.trained)
    steps = tuning.steps or MOST
    model = scaled(open_source(path).config, scaling, Facts(read(path)).windows_scale)
    return Recipe(
        # All of it said: of a scaling that was put in, a kind that is the default would count as unsaid.
        model=TransformerConfig.model_validate(model.model_dump()),
        data=TextData(path=str(data), length=rope.trained, positions=PoSE(reach=rope.to)),
        train=TrainConfig(
            start=str(path),
            steps=steps,
            batch=rows * rope.trained,
            micro=max(MICRO, rope.trained),
            optimizer=AdamW(lr=tuning.rate, decay=0.0),
            precision=tuning.precision,
            # It may end at any step, so the rate has no end to fall to.
            schedule=Constant(warmup=min(10, max(1, steps // 10)) if tuning.steps else PROBED),
            # Sequences are as long as the model was trained for, and this machine may not be the one that trained it.
            recompute=True,
            # Staged for a save in the background, the weights and the optimizer's averages would be held twice.
            save=SaveConfig(every=max(1, min(50, steps // 10)), asynchronous=False),
            # A step of a large model may take an hour here, and there is no other rank to wait for.
            faults=FaultConfig(hang=DAY),
        ),
    )


def trained(asked: Recipe, folder: Path, tuning: Tuning, *, end: float | None, shown: bool) -> tuple[Path, int, float]:
    """The directory of the trained model, its steps, and the seconds they took. end: of the time, by `time.monotonic`;
    what was trained till then is kept, and `OutOfTime` is raised."""
    run, model = folder / "run", folder / "model"
    device = "cuda" if torch.cuda.is_available() else "cpu"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.yaml").write_text(to_yaml(asked.model_dump(mode="json")), encoding="utf-8")
    goal = tuning.steps or PROBED
    while True:
        done = max((step for step, _ in committed(run / "checkpoints")), default=0)
        if tuning.minutes is not None and done >= PROBED:
            goal = _goal(folder / "steps.json", 60 * tuning.minutes, _seconds(run))
            if done >= goal:
                break
        elif done >= goal:
            break
        each = _seconds(run)
        until = min(goal, done + (PROBED if each is None else max(1, int(SAVED / each))))
        if end is not None:
            left = end - time.monotonic()
            until = min(until, done + (1 if each is None else max(1, int(left / each))))
            if left <= 0:
                raise OutOfTime(f"tune: {done:,} of {f'{goal:,}' if done else 'all'} steps")
        try:
            found = train(asked, run, resume=True, device=device, shown=shown, until=until)
        except Drift as error:
            raise error.within("training", folder) from None
        if found.step < until:
            raise OutOfTime(f"tune: stopped by a signal after {found.step:,} steps")
    if has_export(run):  # it came to the last step of its recipe
        model = run / EXPORT
    elif not model.is_dir():
        export_run(run, model, step=goal)
    return model, goal, sum(_each(run)[:goal])


def _goal(file: Path, seconds: float, each: float | None) -> int:
    """How many steps a time has: decided once, so that a run that continues has the same end."""
    if not file.exists():
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps({"steps": max(PROBED, int(seconds / (each or 1.0)))}), encoding="utf-8")
        partial.replace(file)
    return int(json.loads(file.read_text(encoding="utf-8"))["steps"])


def _seconds(run: Path) -> float | None:
    """Of a step; the first of a run is slower."""
    each = _each(run)
    return statistics.median(each[1:] or each) if each else None


def _each(run: Path) -> list[float]:
    """Seconds of each step; one that was made twice, after a kill, counts as it was made last."""
    file = run / "metrics.jsonl"
    return [one["seconds"] for one in metrics.read(file)["train"]] if file.is_file() else []


def fits(asked: Recipe) -> None:
    """Refuses a training that this machine has no memory for, before hours are spent on what to train."""
    if torch.cuda.is_available():
        return
    needed = estimate(asked, MeshConfig(dp_shard=1), 1).memory["peak"]
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise ValueError(
            f"--tune: training would take about {needed / 2**30:,.1f} GiB, and this machine has {there / 2**30:,.1f}; "
            "leave it out, or use a larger machine"
        )
