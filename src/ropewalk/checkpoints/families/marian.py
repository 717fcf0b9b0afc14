"""Marian: the 2017 encoder-decoder with sinusoids in halves, post-norm, swish, and a bias on the logits."""

from __future__ import annotations

from typing import Any

from ropewalk.checkpoints.families.base import ModelKeys


def _stack(side: str) -> dict[str, str | tuple[str, ...]]:
    block, layer = f"{side}.blocks.{{i}}", f"model.{side}.layers.{{i}}"
    return {
        f"{block}.attention.qkv": tuple(f"{layer}.self_attn.{part}_proj" for part in "qkv"),
        f"{block}.attention.out": f"{layer}.self_attn.out_proj",
        f"{block}.residual_attention.after": f"{layer}.self_attn_layer_norm",
        f"{block}.mlp.up": f"{layer}.fc1",
        f"{block}.mlp.down": f"{layer}.fc2",
        f"{block}.residual_mlp.after": f"{layer}.final_layer_norm",
    }


CROSS, LOOK = "decoder.blocks.{i}.cross", "model.decoder.layers.{i}.encoder_attn"
NAMES: dict[str, str | tuple[str, ...]] = {
    "tokens": "model.shared",
    "head": "lm_head",
    "output_bias": "final_logits_bias",
    **_stack("encoder"),
    **_stack("decoder"),
    f"{CROSS}.q": f"{LOOK}.q_proj",
    f"{CROSS}.kv": (f"{LOOK}.k_proj", f"{LOOK}.v_proj"),
    f"{CROSS}.out": f"{LOOK}.out_proj",
    "decoder.blocks.{i}.residual_cross.after": "model.decoder.layers.{i}.encoder_attn_layer_norm",
}
SINUSOIDS = {f"{side}.embed_positions.weight": side for side in ("encoder", "decoder")}
SPARE: tuple[str, ...] = ()
SAME = {
    "model.encoder.embed_tokens.weight": "model.shared.weight",
    "model.decoder.embed_tokens.weight": "model.shared.weight",
}


def shape(keys: ModelKeys) -> dict[str, Any]:
    heads = keys.heads("encoder_attention_heads")
    keys.count("decoder_attention_heads")  # transformers has 16 where it is left out
    keys.must("decoder_attention_heads", heads)
    hidden = keys.count("encoder_ffn_dim")
    keys.must("decoder_ffn_dim", hidden)
    keys.must("decoder_vocab_size", keys.count("vocab_size"), None)
    keys.must("share_encoder_decoder_embeddings", True)
    keys.must("normalize_before", False)
    keys.must("normalize_embedding", False)
    keys.must("add_final_layer_norm", False)
    keys.must("static_position_embeddings", True)
    return {
        "stack": "encoder-decoder",
        "vocabulary": keys.count("vocab_size"),
        "width": keys.count("d_model"),
        "heads": heads,
        "hidden": hidden,
        "activation": keys.activation("activation_function", default="gelu"),
        "norm": {"kind": "layer", "placement": "post", "eps": 1e-5},
        "bias": True,
        "scale_embedding": keys.flag("scale_embedding", False),
        "output_bias": True,
        "tie": keys.flag("tie_word_embeddings", True),
    }
