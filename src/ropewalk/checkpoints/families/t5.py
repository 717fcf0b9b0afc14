"""T5, T5 1.1, Flan-T5: an encoder-decoder, bucketed bias, scores without 1/sqrt(K), ReLU (1.0) or GeGLU (1.1)."""

from __future__ import annotations

from typing import Any

import torch

from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.families.base import ACTIVATIONS, GATED, ModelKeys
from ropewalk.checkpoints.files.weights import Weights


def _stack(side: str, feed_forward: int) -> dict[str, str | tuple[str, ...]]:
    block, layer = f"{side}.blocks.{{i}}", f"{side}.block.{{i}}.layer"
    dense = f"{layer}.{feed_forward}.DenseReluDense"
    return {
        f"{side}.encodings.0": f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias",
        f"{side}.final_norm": f"{side}.final_layer_norm",
        f"{block}.attention.qkv": tuple(f"{layer}.0.SelfAttention.{part}" for part in "qkv"),
        f"{block}.attention.out": f"{layer}.0.SelfAttention.o",
        f"{block}.residual_attention.before": f"{layer}.0.layer_norm",
        f"{block}.mlp.up": (f"{dense}.wi_0", f"{dense}.wi_1"),
        f"{block}.mlp.down": f"{dense}.wo",
        f"{block}.residual_mlp.before": f"{layer}.{feed_forward}.layer_norm",
    }


CROSS, LOOK = "decoder.blocks.{i}.cross", "decoder.block.{i}.layer.1.EncDecAttention"
NAMES: dict[str, str | tuple[str, ...]] = {
    "tokens": "shared",
    "head": "lm_head",
    **_stack("encoder", 1),
    **_stack("decoder", 2),
    f"{CROSS}.q": f"{LOOK}.q",
    f"{CROSS}.kv": (f"{LOOK}.k", f"{LOOK}.v"),
    f"{CROSS}.out": f"{LOOK}.o",
    "decoder.blocks.{i}.residual_cross.before": "decoder.block.{i}.layer.1.layer_norm",
}
# A table of the first T5s that no layer reads: cross-attention has no bias.
SPARE = (r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",)
SAME = {"encoder.embed_tokens.weight": "shared.weight", "decoder.embed_tokens.weight": "shared.weight"}
"""Tensors that files write twice: each must equal the other."""


def names(config: Any) -> dict[str, str | tuple[str, ...]]:
    """Without a gate, the first map of the feed-forward is one tensor."""
    if config.activation in GATED.values():
        return NAMES
    return {
        ours: theirs[0].replace("wi_0", "wi") if ours.endswith(".mlp.up") else theirs for ours, theirs in NAMES.items()
    }


def by_files(shape: dict[str, Any], weights: Weights) -> dict[str, Any]:
    """transformers 5 writes every T5 as tied: whether it is, only the files tell."""
    names = ("lm_head.weight", "shared.weight")
    both = all(name in weights.names for name in names)
    return {**shape, "tie": not both or torch.equal(*(weights.read(name) for name in names))}


def shape(keys: ModelKeys) -> dict[str, Any]:
    # T5 1.1 does not scale, which transformers 4 writes as untied and 5 in a key of its own.
    tied = keys.flag("tie_word_embeddings", True)
    keys.must("scale_decoder_outputs", True, False)
    scaled = keys.flag("scale_decoder_outputs", tied)
    if scaled and not tied:
        raise keys.contradicts("scale_decoder_outputs", "tie_word_embeddings")
    return {**sizes(keys, "relu"), "scale_output": scaled}


def sizes(keys: ModelKeys, usual: str) -> dict[str, Any]:
    """usual: the feed-forward map where the config does not say."""
    said = keys.word("feed_forward_proj", usual)
    gated, name = said.startswith("gated-"), said.removeprefix("gated-")
    # transformers reads gated-gelu as the tanh form, for the T5s that were trained with it.
    name = "gelu_new" if said == "gated-gelu" else name
    if name not in ACTIVATIONS:
        raise BadInput(keys.where, "feed_forward_proj", f"no activation {said!r}", "relu and gated-gelu are known")
    activation = GATED[ACTIVATIONS[name]] if gated else ACTIVATIONS[name]
    # transformers writes what follows from feed_forward_proj beside it, and computes with that.
    if keys.activation("dense_act_fn", default=name) != ACTIVATIONS[name]:
        raise keys.contradicts("dense_act_fn", "feed_forward_proj")
    keys.must("is_gated_act", gated)
    return {
        "stack": "encoder-decoder",
        "vocabulary": keys.count("vocab_size"),
        "width": keys.count("d_model"),
        "heads": keys.heads("num_heads"),
        "head_width": keys.count("d_kv"),
        "hidden": keys.count("d_ff"),
        "activation": activation,
        "norm": {"kind": "rms", "placement": "pre", "eps": keys.number("layer_norm_epsilon", 1e-6)},
        "scale": 1.0,
        "tie": True,
    }
