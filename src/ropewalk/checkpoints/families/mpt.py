"""MPT: ALiBi, no biases at all, the norms' included."""

from __future__ import annotations

from typing import Any

from ropewalk.checkpoints.families.base import ModelKeys

BLOCK, LAYER = "decoder.blocks.{i}", "transformer.blocks.{i}"
NAMES: dict[str, str | tuple[str, ...]] = {
    "tokens": "transformer.wte",
    "head": "lm_head",
    "decoder.final_norm": "transformer.norm_f",
    f"{BLOCK}.attention.qkv": f"{LAYER}.attn.Wqkv",
    f"{BLOCK}.attention.out": f"{LAYER}.attn.out_proj",
    f"{BLOCK}.mlp.up": f"{LAYER}.ffn.up_proj",
    f"{BLOCK}.mlp.down": f"{LAYER}.ffn.down_proj",
    f"{BLOCK}.residual_attention.before": f"{LAYER}.norm_1",
    f"{BLOCK}.residual_mlp.before": f"{LAYER}.norm_2",
}
SPARE: tuple[str, ...] = ()


def shape(keys: ModelKeys) -> dict[str, Any]:
    keys.must("no_bias", True)
    keys.must("norm_type", "low_precision_layernorm", "layernorm")
    keys.must("logit_scale", None)
    inner = ModelKeys(keys.config.get("attn_config") or {}, f"{keys.where}: attn_config")
    inner.must("attn_type", "multihead_attention")
    inner.must("clip_qkv", None)
    inner.must("qk_ln", False)
    inner.must("prefix_lm", False)
    width, heads = keys.count("d_model"), keys.heads("n_heads")
    return {
        "vocabulary": keys.count("vocab_size"),
        "width": width,
        "heads": heads,
        "hidden": keys.count("expansion_ratio", 4) * width,
        "activation": "gelu",
        "norm": {"kind": "layer", "placement": "pre", "bias": False, "eps": keys.number("layer_norm_epsilon", 1e-5)},
        "scale": inner.number("softmax_scale", None),
        "tie": keys.flag("tie_word_embeddings", True),
    }
