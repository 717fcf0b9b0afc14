"""OLMo 2: norms after each sublayer and before the sum, queries and keys normalised over all heads together."""

from __future__ import annotations

from typing import Any

from ropewalk.checkpoints.families import llama
from ropewalk.checkpoints.families.base import ModelKeys

BLOCK, LAYER = llama.BLOCK, llama.LAYER
NAMES = {
    **{ours: theirs for ours, theirs in llama.NAMES.items() if not ours.endswith(".before")},
    f"{BLOCK}.residual_attention.branch": f"{LAYER}.post_attention_layernorm",
    f"{BLOCK}.residual_mlp.branch": f"{LAYER}.post_feedforward_layernorm",
    f"{BLOCK}.attention.q_norm.norm": f"{LAYER}.self_attn.q_norm",
    f"{BLOCK}.attention.k_norm.norm": f"{LAYER}.self_attn.k_norm",
}
SPARE = llama.SPARE


def shape(keys: ModelKeys) -> dict[str, Any]:
    keys.must("clip_qkv", None)
    norm = {"kind": "rms", "placement": "output", "eps": keys.number("rms_norm_eps", 1e-5)}
    return {**llama.shape(keys), "mlp_bias": False, "norm": norm, "qk_norm": "width"}
