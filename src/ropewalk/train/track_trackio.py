"""Records of a run to trackio (local, no account), and the pattern for any other tracker: make(run, recipe) -> log."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ropewalk.train.metrics import Tracker, numbers


def make(run: str, recipe: dict[str, Any]) -> Tracker:
    # By name: it is an extra, and a checker that does not have it need not know.
    trackio = import_module("trackio")
    started = trackio.init(project="ropewalk", name=run, config=recipe, resume="allow")

    def log(record: dict[str, Any]) -> None:
        if found := numbers(record):
            started.log(found, step=record.get("step"))

    return log
