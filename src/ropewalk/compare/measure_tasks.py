"""Exact match of a task by the size of its questions: what the model would write, token after token, is all right.

The answer is read with the right tokens before each of its tokens. A causal model that is right about every one of them
writes the same answer alone, and one that is wrong about the first wrong one does not. What one answer to all questions
would get right is measured beside it: of a bit that is half of them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ropewalk import positions
from ropewalk.compare.measure_text import CANNOT, DRAWN
from ropewalk.data.batch import IGNORE
from ropewalk.data.config import TaskSetData
from ropewalk.data.drawn.skips import Randomised, measured_at
from ropewalk.data.task_set import TaskSetRows
from ropewalk.models import Transformer

PROTOCOL = 4
"""Raised when a measurement changes."""
SEED = 0x5EED
"""Of the questions: the same for every arm and seed."""


def measure(model: Transformer, data: TaskSetData, asked: dict[str, Any]) -> dict[str, Any]:
    """By task and size: the share of right answers, and the largest that one answer to all questions has."""
    rows, skips = TaskSetRows(data, "decoder", SEED, valid=True), measured_at(data.positions)
    found: dict[str, dict[str, dict[int, Any]]] = {"exact": {}, "constant": {}}
    for task in data.of:
        for size in asked["lengths"]:
            tokens, target = _questions(rows, task, size, asked["samples"])
            found["exact"].setdefault(task, {})[size] = _share(model, tokens, target, skips)
            commonest = Counter(map(tuple, target.tolist())).most_common(1)[0][1]
            found["constant"].setdefault(task, {})[size] = commonest / len(target)
    return found


def _questions(rows: TaskSetRows, task: str, size: int, count: int) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng([SEED, size])
    told = [rows.told(task, rows.sample(task, size, rng)) for _ in range(count)]
    tokens, target = (torch.from_numpy(np.stack(part)) for part in zip(*told, strict=True))
    return tokens, target


@torch.inference_mode()
def _share(model: Transformer, tokens: Tensor, target: Tensor, skips: Randomised | None) -> float | str:
    count, length = tokens.shape
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
