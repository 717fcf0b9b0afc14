"""Qwen2 (biased queries, keys and values) and Qwen3 (normalised queries and keys), otherwise as Llama."""

from __future__ import annotations

from typing import Any

from ropewalk.checkpoints.families import llama
from ropewalk.checkpoints.families.base import Keys

MODEL_TYPES = ("qwen2", "qwen3")

NAMES = {
    **llama.NAMES,
    f"{llama.BLOCK}.attention.q_norm": f"{llama.LAYER}.self_attn.q_norm",
    f"{llama.BLOCK}.attention.k_norm": f"{llama.LAYER}.self_attn.k_norm",
}
SPARE = llama.SPARE


def shape(keys: Keys) -> dict[str, Any]:
    if keys.config.get("model_type") == "qwen2":
        return {**llama.shape(keys), "qkv_bias": True, "out_bias": False}
    found = {**llama.shape(keys), "qk_norm": "head"}
    # transformers builds Qwen3 with heads of 128 where the config does not say.
    return {**found, "head_width": keys.count("head_dim", 128)}
