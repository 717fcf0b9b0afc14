"""Every row by its `model_type`, and what holds for all of them."""

from __future__ import annotations

import re
from difflib import get_close_matches

from ropewalk.checkpoints.architectures.architecture import Architecture
from ropewalk.checkpoints.architectures.generated import engine_names
from ropewalk.checkpoints.architectures.rows import gemma, latent, llama, qwen, rotating, several_parts, still

_LINEAGES = (gemma, latent, llama, qwen, rotating, still)
TABLE: dict[str, Architecture] = dict(
    sorted((name, row) for lineage in _LINEAGES for name, row in lineage.ROWS.items())
)
SEVERAL_PARTS, REMOTE, UNREADABLE = several_parts.ROWS, several_parts.REMOTE, several_parts.UNREADABLE
PARTS = {name: row.text for name, row in SEVERAL_PARTS.items()}
"""Models of several parts, and what their `text_config` is where it does not say."""

TEXTS = (("text_config",), ("llm_config",), ("language_config",), ("thinker_config", "text_config"))
"""Where models of several parts have their text part."""

_FOR_PEOPLE = "a length, which changes no position"

ANYWHERE = {
    "max_seq_length": _FOR_PEOPLE,
    "max_sequence_length": _FOR_PEOPLE,
    "model_max_length": _FOR_PEOPLE,
    "tokenizer_model_max_length": _FOR_PEOPLE,
    "seq_length": _FOR_PEOPLE,
    "max_seq_len": _FOR_PEOPLE,
    "rope_ratio": "ChatGLM's key, folded into rope_theta by the conversion",
}
"""Keys that mean nothing on any architecture unless it reads them."""

REPEATS = {
    "theta": "rope_theta",
    "sliding_window_size": "sliding_window",
    "n_ctx": "n_positions",
    "_sliding_window_pattern": "layer_types",
}
"""Keys that say again what another one says: equal to it, or an error."""


def find(model_type: str) -> Architecture | None:
    return TABLE.get(model_type)


def gguf_name(model_type: str) -> str:
    """The general.architecture that a model type is converted to."""
    row = TABLE.get(model_type)
    return model_type if row is None or row.gguf_name is None else row.gguf_name


GGUF_TYPES = {gguf_name(model_type): model_type for model_type, row in TABLE.items() if row.gguf is not None}
"""general.architecture to model type."""


def names() -> tuple[str, ...]:
    return tuple(sorted({*TABLE, *PARTS}))


def nearest(model_type: str) -> str:
    """What to say of a name that is not known: the one it misspells. A name that an engine has for an architecture of
    its own, and one that adds to a known name or has another number, is another architecture and no misspelling."""
    if any(model_type in engine_names(engine)["types"] for engine in ("transformers5", "transformers4")):
        return ""
    for close in get_close_matches(model_type, names(), 3, 0.85):
        added = close.startswith(model_type) or model_type.startswith(close)
        if not added and re.findall(r"\d+", close) == re.findall(r"\d+", model_type):
            return f" (did you mean {close!r}?)"
    return ""
