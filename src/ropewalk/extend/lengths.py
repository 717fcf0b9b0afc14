"""Lengths that files beside config.json state, below which longer texts are cut off without an error.

Only the number changes: the file is otherwise copied byte for byte.
"""

from __future__ import annotations

import re
from pathlib import Path

from ropewalk.checkpoints.files.strict_json import read_bytes
from ropewalk.checkpoints.tokens.tokenizer import MOST_BYTES

NUMBER = rb"(\d{1,40})(?=\s*[,}])"
# Inside a string, quotes have a backslash before them: what matches is a key.
STATED = {
    "tokenizer_config.json": ("model_max_length", re.compile(rb'("model_max_length"\s*:\s*)' + NUMBER)),
    "tokenizer.json": (
        "truncation.max_length",
        re.compile(rb'("truncation"\s*:\s*\{[^{}]*"max_length"\s*:\s*)' + NUMBER),
    ),
    "sentence_bert_config.json": ("max_seq_length", re.compile(rb'("max_seq_length"\s*:\s*)' + NUMBER)),
    "generation_config.json": ("max_length", re.compile(rb'("max_length"\s*:\s*)' + NUMBER)),
}
"""By file: the key, and where its number is. transformers cuts texts off at the first with truncation=True, the
tokenizers library at the second at every call, sentence-transformers and vLLM at the third. The last ends generation,
with the prompt counted."""


def copy_raised(file: Path, out: Path, *, before: int | None, to: int) -> str | None:
    """Copies one of these files, with its length raised to `to`: what changed, or None. before: the length that the
    config stated; a smaller end of generation is a choice that has nothing to do with it."""
    key, place = STATED[file.name]
    least = (before or 0) if file.name == "generation_config.json" else 0
    found: list[int] = []

    def number(match: re.Match[bytes]) -> bytes:
        if not least <= int(match[2]) < to:
            return match[0]
        found.append(int(match[2]))
        return match[1] + str(to).encode()

    out.write_bytes(place.sub(number, read_bytes(file, MOST_BYTES)))
    return f"{key} in {file.name} from {found[0]:,} to {to:,}" if found else None
