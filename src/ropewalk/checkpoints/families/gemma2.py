"""Gemma 2: sandwich norms whose weights are distances from 1, soft caps."""

from __future__ import annotations

from typing import Any

from ropewalk.checkpoints.families import llama
from ropewalk.checkpoints.families.base import ModelKeys

BLOCK, LAYER = llama.BLOCK, llama.LAYER
NAMES = {
    **llama.NAMES,
    f"{BLOCK}.residual_attention.branch": f"{LAYER}.post_attention_layernorm",
    f"{BLOCK}.residual_mlp.before": f"{LAYER}.pre_feedforward_layernorm",
    f"{BLOCK}.residual_mlp.branch": f"{LAYER}.post_feedforward_layernorm",
}
SPARE = llama.SPARE


def shape(keys: ModelKeys) -> dict[str, Any]:
    keys.must("use_bidirectional_attention", False, None)
    key = "hidden_activation" if "hidden_activation" in keys else "hidden_act"
    return {
        "vocabulary": keys.count("vocab_size"),
        "width": keys.count("hidden_size"),
        "heads": keys.count("num_attention_heads"),
        "key_heads": keys.count("num_key_value_heads"),
        "head_width": keys.count("head_dim", 256),
        "hidden": keys.count("intermediate_size"),
        "activation": keys.activation(key, default="gelu_pytorch_tanh", gated=True),
        "norm": {"kind": "rms", "placement": "sandwich", "shifted": True, "eps": keys.number("rms_norm_eps", 1e-6)},
        "bias": keys.flag("attention_bias", False),
        "mlp_bias": False,
        "scale": keys.number("query_pre_attn_scalar", 256) ** -0.5,
        "soft_cap": keys.cap("attn_logit_softcapping", 50.0),
        "output_cap": keys.cap("final_logit_softcapping", 30.0),
        "scale_embedding": True,
        "tie": keys.flag("tie_word_embeddings", True),
    }
