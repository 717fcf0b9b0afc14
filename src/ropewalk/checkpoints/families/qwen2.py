"""Qwen2: Llama with biased queries, keys and values."""

from __future__ import annotations

from typing import Any

from ropewalk.checkpoints.families import llama
from ropewalk.checkpoints.families.base import ModelKeys

NAMES = llama.NAMES
SPARE = llama.SPARE


def shape(keys: ModelKeys) -> dict[str, Any]:
    return {**llama.shape(keys), "qkv_bias": True, "out_bias": False}
