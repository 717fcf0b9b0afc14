"""The smallest recipe that is trained by everything a large one is: tens of kilobytes of weights, a task as data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ropewalk.train.config import Recipe


def recipe(steps: int = 12, every: int = 2, **train: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "model": {"width": 16, "heads": 2, "layers": 2, "hidden": 32, "fused": False},
            "data": {"kind": "task", "task": "copy", "length": 16, "vocabulary": 32},
            "train": {
                "steps": steps,
                "batch": 128,
                "evaluate": {"every": steps, "tokens": 128},
                "save": {"every": every, "keep": 2, "asynchronous": False},
                **train,
            },
        }
    )


def losses(out: Path) -> dict[int, list[float]]:
    """Every loss that was written for a step; a run that was killed has some steps more than once."""
    found: dict[int, list[float]] = {}
    file = out / "metrics.jsonl"
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if "kind" not in record:
            found.setdefault(record["step"], []).append(record["loss"])
    return found
