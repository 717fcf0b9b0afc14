"""Phi-3, 3.5 and 4: Llama with one matrix for q, k, v and one for gate and values; LongRoPE where it is long."""

from __future__ import annotations

from typing import Any

from ropewalk.checkpoints.families import llama
from ropewalk.checkpoints.families.base import ModelKeys

NAMES = {
    **llama.NAMES,
    f"{llama.BLOCK}.attention.qkv": f"{llama.LAYER}.self_attn.qkv_proj",
    f"{llama.BLOCK}.mlp.up": f"{llama.LAYER}.mlp.gate_up_proj",
}
SPARE = llama.SPARE


def shape(keys: ModelKeys) -> dict[str, Any]:
    return {**llama.shape(keys), "bias": False, "mlp_bias": False}
