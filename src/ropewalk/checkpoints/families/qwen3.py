"""Qwen3: Llama with normalised queries and keys."""

from __future__ import annotations

from typing import Any

from ropewalk.checkpoints.families import llama
from ropewalk.checkpoints.families.base import ModelKeys

NAMES = {
    **llama.NAMES,
    f"{llama.BLOCK}.attention.q_norm": f"{llama.LAYER}.self_attn.q_norm",
    f"{llama.BLOCK}.attention.k_norm": f"{llama.LAYER}.self_attn.k_norm",
}
SPARE = llama.SPARE


def shape(keys: ModelKeys) -> dict[str, Any]:
    # transformers builds Qwen3 with heads of 128 where the config does not say.
    return {**llama.shape(keys), "qk_norm": "head", "head_width": keys.count("head_dim", 128)}
