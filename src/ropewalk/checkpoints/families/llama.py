"""Llama 2, 3, 3.1, 3.2, SmolLM2 (all `llama`) and Mistral: pre-norm, RMSNorm, SwiGLU, grouped keys."""

from __future__ import annotations

from typing import Any

from ropewalk.checkpoints.families.base import ModelKeys

BLOCK = "decoder.blocks.{i}"
LAYER = "model.layers.{i}"
ATTENTION = {
    f"{BLOCK}.attention.qkv": tuple(f"{LAYER}.self_attn.{part}_proj" for part in "qkv"),
    f"{BLOCK}.attention.out": f"{LAYER}.self_attn.o_proj",
}
NAMES: dict[str, str | tuple[str, ...]] = {
    "tokens": "model.embed_tokens",
    "head": "lm_head",
    "decoder.final_norm": "model.norm",
    **ATTENTION,
    f"{BLOCK}.mlp.up": (f"{LAYER}.mlp.gate_proj", f"{LAYER}.mlp.up_proj"),
    f"{BLOCK}.mlp.down": f"{LAYER}.mlp.down_proj",
    f"{BLOCK}.residual_attention.before": f"{LAYER}.input_layernorm",
    f"{BLOCK}.residual_mlp.before": f"{LAYER}.post_attention_layernorm",
}
SPARE: tuple[str, ...] = ()


def shape(keys: ModelKeys) -> dict[str, Any]:
    # `pretraining_tp` says how it was trained: no modelling code of transformers 5 reads it.
    width, heads = keys.count("hidden_size"), keys.count("num_attention_heads")
    return {
        "vocabulary": keys.count("vocab_size"),
        "width": width,
        "heads": heads,
        "key_heads": keys.count("num_key_value_heads", heads),
        "head_width": keys.count("head_dim", width // heads),
        "hidden": keys.count("intermediate_size"),
        "activation": keys.activation("hidden_act", default="silu", gated=True),
        "norm": {"kind": "rms", "placement": "pre", "eps": keys.number("rms_norm_eps")},
        "bias": keys.flag("attention_bias", False),
        "mlp_bias": keys.flag("mlp_bias", False),
        "tie": keys.flag("tie_word_embeddings", False),
    }
