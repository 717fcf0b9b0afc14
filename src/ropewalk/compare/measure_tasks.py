"""Exact match of a task by the size of its questions: what the model would write, token after token, is all right.

The answer is read with the right tokens before each of its tokens. A causal model that is right about every one of them
writes the same answer alone, and one that is wrong about the first wrong one does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ropewalk import positions
from ropewalk.compare.measure_text import CANNOT, DRAWN
from ropewalk.data.batch import IGNORE
from ropewalk.data.config import TaskSetData
from ropewalk.data.drawn.skips import Randomised, measured_at
from ropewalk.data.task_set import TaskSetRows
from ropewalk.models import Transformer

SEED = 0x5EED
"""Of the questions: the same for every arm and seed."""


def measure(model: Transformer, data: TaskSetData, asked: dict[str, Any]) -> dict[str, Any]:
    """The share of right answers, by task and size."""
    rows, skips = TaskSetRows(data, "decoder", SEED, valid=True), measured_at(data.positions)
    return {
        "exact": {
            task: {size: _share(model, rows, skips, task, size, asked["samples"]) for size in asked["lengths"]}
            for task in data.of
        }
    }


@torch.inference_mode()
def _share(
    model: Transformer, rows: TaskSetRows, skips: Randomised | None, task: str, size: int, count: int
) -> float | str:
    rng = np.random.default_rng([SEED, size])
    told = [rows.told(task, rows.sample(task, size, rng)) for _ in range(count)]
    tokens, target = (torch.from_numpy(np.stack(part)) for part in zip(*told, strict=True))
    length = tokens.shape[1]
    table = model.plan.table if skips is None else skips.reach
    if table is not None and length > table:
        return CANNOT
    logits = model(tokens, _places(skips, length, count))
    right = (logits.argmax(-1) == target) | (target == IGNORE)
    return float(right.all(-1).double().mean())


def _places(skips: Randomised | None, length: int, count: int) -> positions.Positions:
    if skips is None:
        return positions.plain(length, batch=count)
    rng = np.random.default_rng([DRAWN, length])
    drawn = np.stack([skips.draw(length, rng) for _ in range(count)])
    return positions.explicit(torch.from_numpy(drawn), limit=skips.reach)
