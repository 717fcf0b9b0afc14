"""BLOOM: ALiBi, a norm over the embeddings, q, k, v of a head together."""

from __future__ import annotations

from typing import Any

from ropewalk.checkpoints.families.base import Form, ModelKeys

BLOCK, LAYER = "decoder.blocks.{i}", "transformer.h.{i}"
NAMES: dict[str, str | tuple[str, ...]] = {
    "tokens": "transformer.word_embeddings",
    "head": "lm_head",
    "decoder.embedding_norm": "transformer.word_embeddings_layernorm",
    "decoder.final_norm": "transformer.ln_f",
    f"{BLOCK}.attention.qkv": f"{LAYER}.self_attention.query_key_value",
    f"{BLOCK}.attention.out": f"{LAYER}.self_attention.dense",
    f"{BLOCK}.mlp.up": f"{LAYER}.mlp.dense_h_to_4h",
    f"{BLOCK}.mlp.down": f"{LAYER}.mlp.dense_4h_to_h",
    f"{BLOCK}.residual_attention.before": f"{LAYER}.input_layernorm",
    f"{BLOCK}.residual_mlp.before": f"{LAYER}.post_attention_layernorm",
}
FORMS: dict[str, Form] = {f"{BLOCK}.attention.qkv": "by head"}
SPARE: tuple[str, ...] = ()


def shape(keys: ModelKeys) -> dict[str, Any]:
    keys.must("apply_residual_connection_post_layernorm", False)
    # `pretraining_tp` without `slow_but_exact` only says how it was trained.
    keys.must("slow_but_exact", False)
    width = keys.count("hidden_size" if "hidden_size" in keys else "n_embed")
    return {
        "vocabulary": keys.count("vocab_size"),
        "width": width,
        "heads": keys.heads("n_head"),
        "hidden": 4 * width,
        "activation": "gelu-tanh",
        "norm": {"kind": "layer", "placement": "pre", "eps": keys.number("layer_norm_epsilon", 1e-5)},
        "bias": True,
        "embedding_norm": True,
        "tie": keys.flag("tie_word_embeddings", True),
    }
