"""MPNet: BERT without types, with T5's bias beside its learned positions."""

from __future__ import annotations

from typing import Any

from ropewalk.checkpoints.families import bert
from ropewalk.checkpoints.families.base import ModelKeys, without_output
from ropewalk.checkpoints.files.weights import Weights

BLOCK, LAYER = "encoder.blocks.{i}", "mpnet.encoder.layer.{i}"
NAMES: dict[str, str | tuple[str, ...]] = {
    "tokens": "mpnet.embeddings.word_embeddings",
    "encoder.encodings.0.parts.0": "mpnet.embeddings.position_embeddings",
    "encoder.encodings.0.parts.1": "mpnet.encoder.relative_attention_bias",
    "encoder.embedding_norm": "mpnet.embeddings.LayerNorm",
    f"{BLOCK}.attention.qkv": tuple(f"{LAYER}.attention.attn.{part}" for part in "qkv"),
    f"{BLOCK}.attention.out": f"{LAYER}.attention.attn.o",
    f"{BLOCK}.residual_attention.after": f"{LAYER}.attention.LayerNorm",
    f"{BLOCK}.mlp.up": f"{LAYER}.intermediate.dense",
    f"{BLOCK}.mlp.down": f"{LAYER}.output.dense",
    f"{BLOCK}.residual_mlp.after": f"{LAYER}.output.LayerNorm",
    "transform.linear": "lm_head.dense",
    "transform.norm": "lm_head.layer_norm",
    "output_bias": "lm_head.bias",
    "head": "lm_head.decoder",
}
SPARE = (
    r"(mpnet\.)?embeddings\.position_ids",
    r"(mpnet\.)?pooler\.dense\.(weight|bias)",
)
SAME = {"lm_head.decoder.bias": "lm_head.bias"}


def by_files(shape: dict[str, Any], weights: Weights) -> dict[str, Any]:
    """A file without an output map is an encoder alone."""
    return shape if "lm_head.dense.weight" in weights.names else without_output(shape)


def shape(keys: ModelKeys) -> dict[str, Any]:
    keys.must("hidden_act", "gelu")  # its output map has no other, whatever this says
    return {**bert.shape(keys), "types": 0}
