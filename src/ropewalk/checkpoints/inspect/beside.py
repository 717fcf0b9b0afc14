"""Lengths that files beside config.json state, below which longer texts are cut off without an error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ropewalk.checkpoints.files.strict_json import read_bytes
from ropewalk.checkpoints.tokens.tokenizer import MOST_BYTES

STATED = {
    "tokenizer_config.json": ("model_max_length", "where transformers cuts texts off with truncation=True"),
    "tokenizer.json": ("truncation.max_length", "where the tokenizers library cuts every text off"),
    "sentence_bert_config.json": (
        "max_seq_length", "where sentence-transformers cuts texts off, and past which vLLM refuses them",
    ),
    "generation_config.json": ("max_length", "where transformers ends generation, with the prompt counted"),
}  # fmt: skip
"""By file: the key of its length, and what that does."""


def to_raise(directory: Path, before: int | None, to: int) -> Iterator[str]:
    """What to know before texts of `to` tokens are read, in words. before: the length that the config states."""
    for name, (key, does) in STATED.items():
        if (directory / name).is_file() and (length := _raised(directory / name, before, to)[1]) is not None:
            yield f"{name} has {key} {length:,}, {does}: raise it too."


def copy_raised(file: Path, out: Path, before: int | None, to: int) -> str | None:
    """Copies one of these files byte for byte, but for its length, which becomes `to`: what changed, or None."""
    data, length = _raised(file, before, to)
    out.write_bytes(data)
    return None if length is None else f"{STATED[file.name][0]} in {file.name} from {length:,} to {to:,}"


def _raised(file: Path, before: int | None, to: int) -> tuple[bytes, int | None]:
    """What the file becomes, and the length that is too short. A short end of generation is a choice, and not the
    model's length, which is unknown where the config states none."""
    least = (to if before is None else before) if file.name == "generation_config.json" else 0
    short: list[int] = []

    def number(match: re.Match[bytes]) -> bytes:
        if not least <= int(match[2]) < to:
            return match[0]
        short.append(int(match[2]))
        return match[1] + str(to).encode()

    return _place(STATED[file.name][0]).sub(number, read_bytes(file, MOST_BYTES)), min(short, default=None)


def _place(key: str) -> re.Pattern[bytes]:
    """Of a key and its number. Inside a string, quotes have a backslash before them: what matches is a key."""
    *outer, last = key.split(".")
    opened = "".join(rf'"{one}"\s*:\s*\{{[^{{}}]*' for one in outer)
    return re.compile(rf'({opened}"{last}"\s*:\s*)(\d{{1,40}})(?=\s*[,}}])'.encode())
