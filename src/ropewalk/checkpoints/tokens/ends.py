"""The tokens that begin and end a text."""

from __future__ import annotations

from typing import NamedTuple


class Ends(NamedTuple):
    """What begins and ends texts: ids, and whether a prompt gets them."""

    bos: int | None = None
    eos: int | None = None
    stops: tuple[int, ...] = ()
    add_bos: bool | None = None  # None: as the tokenizer itself does
    add_eos: bool | None = None
