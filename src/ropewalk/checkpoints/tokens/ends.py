"""The tokens that begin and end a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Ends(NamedTuple):
    """What begins and ends texts: ids, and whether a prompt gets them."""

    bos: int | None = None
    eos: int | None = None
    stops: tuple[int, ...] = ()
    add_bos: bool | None = None  # None: as the tokenizer itself does
    add_eos: bool | None = None


def answer_start(config: Mapping[str, Any]) -> int | None:
    """The token that an encoder-decoder's answers begin with, by its config.json or the metadata of a GGUF file."""
    keys = ("decoder_start_token_id", f"{config.get('general.architecture')}.decoder_start_token_id")
    return next((config[key] for key in keys if type(config.get(key)) is int), None)
