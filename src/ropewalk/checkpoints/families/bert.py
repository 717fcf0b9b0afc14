"""BERT and MiniLM: an encoder with learned positions and types of text, post-norm."""

from __future__ import annotations

from typing import Any

from ropewalk.checkpoints.families.base import ModelKeys, without_output
from ropewalk.checkpoints.files.weights import Weights

BLOCK, LAYER = "encoder.blocks.{i}", "bert.encoder.layer.{i}"
NAMES: dict[str, str | tuple[str, ...]] = {
    "tokens": "bert.embeddings.word_embeddings",
    "types": "bert.embeddings.token_type_embeddings",
    "encoder.encodings.0": "bert.embeddings.position_embeddings",
    "encoder.embedding_norm": "bert.embeddings.LayerNorm",
    f"{BLOCK}.attention.qkv": tuple(f"{LAYER}.attention.self.{part}" for part in ("query", "key", "value")),
    f"{BLOCK}.attention.out": f"{LAYER}.attention.output.dense",
    f"{BLOCK}.residual_attention.after": f"{LAYER}.attention.output.LayerNorm",
    f"{BLOCK}.mlp.up": f"{LAYER}.intermediate.dense",
    f"{BLOCK}.mlp.down": f"{LAYER}.output.dense",
    f"{BLOCK}.residual_mlp.after": f"{LAYER}.output.LayerNorm",
    "transform.linear": "cls.predictions.transform.dense",
    "transform.norm": "cls.predictions.transform.LayerNorm",
    "output_bias": "cls.predictions.bias",
    "head": "cls.predictions.decoder",
}
# The pooler and the next-sentence head read whole texts; we return one vector a token.
SPARE = (
    r"(bert\.)?embeddings\.position_ids",
    r"(bert\.)?pooler\.dense\.(weight|bias)",
    r"cls\.seq_relationship\.(weight|bias)",
)
SAME = {"cls.predictions.decoder.bias": "cls.predictions.bias"}


def by_files(shape: dict[str, Any], weights: Weights) -> dict[str, Any]:
    """A file without an output map is an encoder alone."""
    return shape if "cls.predictions.transform.dense.weight" in weights.names else without_output(shape)


def shape(keys: ModelKeys) -> dict[str, Any]:
    keys.must("is_decoder", False)
    keys.must("add_cross_attention", False)
    keys.must("position_embedding_type", "absolute", None)
    return {
        "stack": "encoder",
        "vocabulary": keys.count("vocab_size"),
        "types": keys.count("type_vocab_size", 2),
        "width": keys.count("hidden_size"),
        "heads": keys.count("num_attention_heads"),
        "hidden": keys.count("intermediate_size"),
        "activation": keys.activation("hidden_act", default="gelu"),
        "norm": {"kind": "layer", "placement": "post", "eps": keys.number("layer_norm_eps", 1e-12)},
        "bias": True,
        "embedding_norm": True,
        "output_transform": True,
        "output_bias": True,
        "tie": keys.flag("tie_word_embeddings", True),
    }
