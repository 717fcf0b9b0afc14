"""The smallest recipe that is trained by everything a large one is: tens of kilobytes of weights, a task as data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ropewalk.distributed.world import MeshConfig
from ropewalk.train.config import Recipe
from ropewalk.yaml_text import to_yaml


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


VARIANTS: dict[str, dict[str, Any]] = {
    "FSDP 2": {},
    "FSDP 2, bfloat16, two passes": {"precision": "bfloat16", "micro": 32},
    "TP 2": {"mesh": {"tp": 2}},
    "CP 2, two passes": {"mesh": {"cp": 2}, "micro": 64},
}
"""What a campaign that has two ranks takes in turn."""


def variant(name: str, steps: int, every: int, **train: Any) -> Recipe:
    changes = dict(VARIANTS[name])
    mesh = MeshConfig(**changes.pop("mesh", {}))
    return recipe(steps, every, **train, **changes).model_copy(update={"mesh": mesh})


def text(recipe: Recipe) -> str:
    """As a file. The size of the vocabulary is left to the data."""
    return to_yaml(recipe.model_dump(mode="json", exclude_unset=True))


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
