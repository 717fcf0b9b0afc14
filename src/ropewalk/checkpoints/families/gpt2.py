"""GPT-2: learned positions, pre-norm, weights stored as (in, out)."""

from __future__ import annotations

from typing import Any

from ropewalk.checkpoints.families.base import Form, ModelKeys

BLOCK, LAYER = "decoder.blocks.{i}", "transformer.h.{i}"
NAMES: dict[str, str | tuple[str, ...]] = {
    "tokens": "transformer.wte",
    "head": "lm_head",
    "decoder.encodings.0": "transformer.wpe",
    "decoder.final_norm": "transformer.ln_f",
    f"{BLOCK}.attention.qkv": f"{LAYER}.attn.c_attn",
    f"{BLOCK}.attention.out": f"{LAYER}.attn.c_proj",
    f"{BLOCK}.mlp.up": f"{LAYER}.mlp.c_fc",
    f"{BLOCK}.mlp.down": f"{LAYER}.mlp.c_proj",
    f"{BLOCK}.residual_attention.before": f"{LAYER}.ln_1",
    f"{BLOCK}.residual_mlp.before": f"{LAYER}.ln_2",
}
FORMS: dict[str, Form] = dict.fromkeys(
    (f"{BLOCK}.{part}" for part in ("attention.qkv", "attention.out", "mlp.up", "mlp.down")), "transposed"
)
# Masks, which old code stored.
SPARE = (r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)",)


def shape(keys: ModelKeys) -> dict[str, Any]:
    keys.must("scale_attn_by_inverse_layer_idx", False)
    keys.must("add_cross_attention", False)
    width = keys.count("n_embd")
    return {
        "vocabulary": keys.count("vocab_size"),
        "width": width,
        "heads": keys.heads("n_head"),
        "hidden": keys.count("n_inner", 4 * width),
        "activation": keys.activation("activation_function", default="gelu_new"),
        "norm": {"kind": "layer", "placement": "pre", "eps": keys.number("layer_norm_epsilon", 1e-5)},
        "bias": True,
        "scale": None if keys.flag("scale_attn_weights", True) else 1.0,
        "tie": keys.flag("tie_word_embeddings", True),
    }
