"""What a preparation is asked for."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ropewalk.settings import Settings


class Options(Settings):
    kind: Literal["text", "pairs"] = "text"
    tokenizer: str | None = None
    """A tokenizer.json to use; null: one is trained."""
    vocabulary: int = Field(default=8192, ge=2, le=2**24)
    """Ids of a trained tokenizer, at most."""
    model: Literal["bpe", "unigram"] = "bpe"
    """Of a trained tokenizer."""
    valid: float = Field(default=0.01, ge=0, lt=1)
    """Share of the documents, or of the pairs' sources, to evaluate on."""
    document: Literal["file", "line", "blank"] = "file"
    """What is one document of a .txt: the file, a line, or what stands between blank lines."""
    licence: str = ""
    """Of the text, to be kept with it."""
    start: str | None = None
    """The token before each document; null: the tokenizer's own, by its usual names."""
    end: str | None = None
    mask: str | None = None
    shard_tokens: int = Field(default=2**30, ge=1)
    """Tokens of a file, about."""
    chunk: int = Field(default=2**20, ge=1)
    """Characters encoded at a time; changes nothing but memory and speed."""

    def special(self) -> dict[str, str | None]:
        return {"start": self.start, "end": self.end, "mask": self.mask}

    def asked(self) -> dict[str, Any]:
        """What the result depends on, where a path on this machine does not matter."""
        return {**self.model_dump(exclude={"chunk", "licence"}), "tokenizer": "given" if self.tokenizer else "trained"}
