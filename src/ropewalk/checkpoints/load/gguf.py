"""A GGUF file in transformers' terms, so that one family file reads both: its config keys, and its tensors' names.

llama.cpp stores the queries and keys of Llama with features of a pair side by side (layout pairs): they are loaded as
they lie, and the plan says so. Gemma's norms are stored with 1 added to their weights, which is taken off again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ropewalk.checkpoints import families
from ropewalk.checkpoints.architectures.in_engines import InGGUF
from ropewalk.checkpoints.architectures.table import GGUF_TYPES, TABLE, gguf_name
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.families.base import ModelKeys
from ropewalk.checkpoints.files.weights import Weights
from ropewalk.checkpoints.resolve.resolved import Resolved

SIZES = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
SPARE = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Part of the positions, which are resolved before any weights are read."""


def as_transformers(resolved: Resolved, weights: Weights) -> dict[str, Any]:
    """config.json's keys, as far as a family reads them, from the metadata."""
    arch = str(resolved.config.get("general.architecture"))
    model_type, known = _known(resolved, arch)
    keys = ModelKeys({name.removeprefix(f"{arch}."): value for name, value in resolved.config.items()}, resolved.where)
    found = {theirs: keys.config[ours] for theirs, ours in SIZES.items() if ours in keys}
    if keys.config.get("attention.value_length") not in (None, keys.config.get("attention.key_length")):
        raise BadInput(
            resolved.where,
            f"{arch}.attention.value_length",
            "is not the key length",
            "such models are not supported yet",
        )
    if "token_embd.weight" not in weights.names:
        raise BadInput(resolved.name, "token_embd.weight", "is missing", "the file does not hold a whole model")
    return {
        **found,
        "model_type": model_type,
        "vocab_size": weights.shape("token_embd.weight")[0],
        "tie_word_embeddings": "output.weight" not in weights.names,
        "attention_bias": "blk.0.attn_q.bias" in weights.names and not known.always_biased,
        "mlp_bias": "blk.0.ffn_up.bias" in weights.names,
        **({} if known.scale_by_width_at is None else {"query_pre_attn_scalar": _scalar(resolved, keys, known)}),
    }


def _known(resolved: Resolved, arch: str) -> tuple[str, InGGUF]:
    files = {name: row.gguf for name, row in TABLE.items() if row.gguf is not None and row.gguf.loads}
    model_type = GGUF_TYPES.get(arch, "")
    if model_type not in files:
        known = ", ".join(map(gguf_name, files))
        raise BadInput(
            resolved.where, "general.architecture", f"{arch!r} does not load from GGUF", f"these do: {known}"
        )
    return model_type, files[model_type]


def _scalar(resolved: Resolved, keys: ModelKeys, known: InGGUF) -> float:
    heads, layers = keys.count("attention.head_count"), len(resolved.plan.layers)
    largest = layers == known.scale_by_width_at
    if not largest:
        return keys.count("attention.key_length")
    width = keys.count("embedding_length")
    return width // heads if width % heads == 0 else width / heads  # transformers refuses 168.0


class Renamed:
    """Weights under other names."""

    def __init__(self, weights: Weights, theirs: dict[str, str], shifted: bool) -> None:
        self._weights, self._theirs, self._shifted = weights, theirs, shifted
        self.names = tuple(theirs)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._weights.shape(self._theirs[name])

    def dtype(self, name: str) -> torch.dtype:
        return self._weights.dtype(self._theirs[name])

    def read(self, name: str) -> Tensor:
        tensor = self._weights.read(self._theirs[name])
        return tensor - 1 if self._shifted and name.endswith("norm.weight") else tensor


def renamed(weights: Weights, resolved: Resolved, config: dict[str, Any]) -> Weights:
    """The tensors of a GGUF file under transformers' names; what has none keeps its own, to be found left over."""
    from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, get_tensor_name_map

    arch = resolved.config["general.architecture"]
    number = next(value for value in MODEL_ARCH if MODEL_ARCH_NAMES[value] == arch)
    layers = len(resolved.plan.layers)
    table = get_tensor_name_map(number, layers)
    theirs: dict[str, str] = {}
    for pattern in families.find(config["model_type"], resolved.where).NAMES.values():
        for one in (pattern,) if isinstance(pattern, str) else pattern:
            for i in range(layers) if "{i}" in one else (0,):
                for leaf in (".weight", ".bias"):
                    name = one.replace("{i}", str(i)) + leaf
                    known = table.get_name(name, try_suffixes=(leaf,))
                    if known in weights.names:
                        theirs[name] = known
    taken = set(theirs.values())
    rest = {name: name for name in weights.names if name not in taken and name not in SPARE}
    return Renamed(weights, {**theirs, **rest}, shifted=_known(resolved, arch)[1].norms_plus_one)
