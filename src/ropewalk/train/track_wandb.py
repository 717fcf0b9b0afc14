"""Records of a run to Weights & Biases. Its own variables are obeyed: WANDB_PROJECT, WANDB_MODE, WANDB_RUN_ID, ..."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from ropewalk.train.metrics import Tracker, numbers


def make(run: str, recipe: dict[str, Any]) -> Tracker:
    wandb = import_module("wandb")
    project = os.environ.get("WANDB_PROJECT", "ropewalk")
    # One that this process has finished training would otherwise get these records.
    again = {"resume": "allow", "reinit": "finish_previous"}
    started = wandb.init(project=project, name=run, group=run, config=recipe, **again)
    # A resumed run repeats the steps since its checkpoint; wandb drops records whose own step is not the next.
    started.define_metric("*", step_metric="step")

    def log(record: dict[str, Any]) -> None:
        if found := numbers(record):
            started.log({**found, "step": record.get("step")})

    return log
