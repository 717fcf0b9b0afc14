"""mT5: T5 1.1, whose output is never scaled."""

from __future__ import annotations

from typing import Any

from ropewalk.checkpoints.families import t5
from ropewalk.checkpoints.families.base import ModelKeys

NAMES, SPARE, SAME = t5.NAMES, t5.SPARE, t5.SAME
names, by_files = t5.names, t5.by_files


def shape(keys: ModelKeys) -> dict[str, Any]:
    return {**t5.sizes(keys, "gated-gelu"), "scale_output": False}
