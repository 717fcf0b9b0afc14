"""A checkpoint opened for evaluation: the engine, its tokenizer, and a digest of its weights."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from ropewalk.checkpoints.files.sniff import meant
from ropewalk.checkpoints.load.model import load
from ropewalk.checkpoints.tokens.tokenizer import of
from ropewalk.evaluate.ours import Ours

WEIGHTS = (".safetensors", ".gguf", "config.json")


def opened(
    path: str | Path, *, dtype: str | None = None, kinds: Collection[str] = ()
) -> tuple[Ours, Callable[[str], Sequence[int]]]:
    """The engine, and what turns a text into its tokens without special ones."""
    tokenizer = of(Path(path))
    engine = Ours(load(path, dtype=dtype, kinds=kinds), model=digest(meant(Path(path))))
    return engine, lambda text: tokenizer.encode(text, special=False)


def digest(path: Path) -> str:
    """SHA-256 over config and weights, so that a stored measurement is never taken for another model's."""
    files = sorted(file for file in path.iterdir() if file.name.endswith(WEIGHTS)) if path.is_dir() else [path]
    whole = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened_file:
            whole.update(file.name.encode() + hashlib.file_digest(opened_file, "sha256").digest())
    return whole.hexdigest()
