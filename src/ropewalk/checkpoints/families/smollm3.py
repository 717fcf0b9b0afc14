"""SmolLM3: Llama, tied unless its config says otherwise."""

from __future__ import annotations

from typing import Any

from ropewalk.checkpoints.families import llama
from ropewalk.checkpoints.families.base import ModelKeys

NAMES = llama.NAMES
SPARE = llama.SPARE


def shape(keys: ModelKeys) -> dict[str, Any]:
    return {**llama.shape(keys), "tie": keys.flag("tie_word_embeddings", True)}
