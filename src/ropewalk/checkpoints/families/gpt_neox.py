"""GPT-NeoX and Pythia: a part of each head rotates, attention and MLP side by side, q, k, v of a head together."""

from __future__ import annotations

from typing import Any

from ropewalk.checkpoints.families.base import Form, ModelKeys

BLOCK, LAYER = "decoder.blocks.{i}", "gpt_neox.layers.{i}"
NAMES: dict[str, str | tuple[str, ...]] = {
    "tokens": "gpt_neox.embed_in",
    "head": "embed_out",
    "decoder.final_norm": "gpt_neox.final_layer_norm",
    f"{BLOCK}.attention.qkv": f"{LAYER}.attention.query_key_value",
    f"{BLOCK}.attention.out": f"{LAYER}.attention.dense",
    f"{BLOCK}.mlp.up": f"{LAYER}.mlp.dense_h_to_4h",
    f"{BLOCK}.mlp.down": f"{LAYER}.mlp.dense_4h_to_h",
    f"{BLOCK}.residual_attention.before": f"{LAYER}.input_layernorm",
    f"{BLOCK}.residual_mlp.before": f"{LAYER}.post_attention_layernorm",
}
FORMS: dict[str, Form] = {f"{BLOCK}.attention.qkv": "by head"}
# Masks, which old code stored.
SPARE = (r"(gpt_neox\.)?layers\.\d+\.attention\.(bias|masked_bias)",)


def shape(keys: ModelKeys) -> dict[str, Any]:
    placement = "parallel" if keys.flag("use_parallel_residual", True) else "pre"
    return {
        "vocabulary": keys.count("vocab_size"),
        "width": keys.count("hidden_size"),
        "heads": keys.count("num_attention_heads"),
        "hidden": keys.count("intermediate_size"),
        "activation": keys.activation("hidden_act", default="gelu"),
        "norm": {"kind": "layer", "placement": placement, "eps": keys.number("layer_norm_eps", 1e-5)},
        "bias": keys.flag("attention_bias", True),
        "mlp_bias": True,
        "tie": keys.flag("tie_word_embeddings", False),
    }
