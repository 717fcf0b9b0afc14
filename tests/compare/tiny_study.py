"""A study of seconds: two arms, one task, four steps."""

from __future__ import annotations

from typing import Any

from ropewalk.compare.study import Study

RECIPE: dict[str, Any] = {
    "model": {"width": 16, "layers": 1, "heads": 2, "hidden": 16},
    "train": {
        "steps": 4,
        "batch": 96,
        "optimizer": {"kind": "adamw", "lr": 1e-2},
        "schedule": {"kind": "constant"},
        "evaluate": {"every": 2, "tokens": 96},
        "save": {"every": 2, "asynchronous": False},
    },
}
TASKS: dict[str, Any] = {
    "recipe": {"data": {"kind": "tasks", "of": ["copy"], "longest": 5}},
    "lengths": [2, 8],
    "samples": 4,
    "seeds": 1,
    "reference_seeds": None,
}


def study(**changes: Any) -> Study:
    given = {"recipe": RECIPE, "reference": "rope", "arms": {"rope": "rope", "alibi": "alibi"}, "tasks": TASKS}
    return Study(**{**given, "rates": None, **changes})
