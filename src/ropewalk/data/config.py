"""Which data a run reads and how sequences are made of it: the `data` of a recipe.

data: {kind: text, path: data/long-english, length: 1024}
data: {kind: pairs, path: data/en-de, length: 128, source_length: 128}
data: {kind: task, task: copy, length: 64}
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ropewalk.settings import Settings

Length = Annotated[int, Field(ge=2, le=2**30)]


class TextData(Settings):
    """Documents of one language, for decoders (the next token) and encoders (masked tokens)."""

    kind: Literal["text"] = "text"
    path: str
    """A directory written by `ropewalk data prepare`."""
    length: Length = 1024
    """Tokens of a sequence."""
    packing: Literal["stream", "document"] = "stream"
    """stream: documents end to end, cut into sequences. document: a sequence is a piece of one document, padded."""
    isolate: bool = True
    """Packed documents attend to themselves only, each from position 0; false: a sequence is one text. For stream."""


class PairsData(Settings):
    """Texts and their translations, for encoder-decoders; several short pairs share a sequence, each alone."""

    kind: Literal["pairs"] = "pairs"
    path: str
    """A directory written by `ropewalk data prepare --kind pairs`."""
    length: Length = 128
    """Tokens of a target sequence; a pair with a longer side is left out."""
    source_length: Length = 128
    """Tokens of a source sequence."""


class TaskData(Settings):
    """Made as it is asked for, without files: a sample is a function of the seed and its number."""

    kind: Literal["task"] = "task"
    task: Literal["copy", "reverse", "addition", "passkey"] = "copy"
    length: Length = 64
    """Tokens of a sequence; samples are as long as fits."""
    shortest: int | None = Field(default=None, ge=1)
    """Symbols of the shortest sample; null: all as long as fits."""
    vocabulary: int = Field(default=32, ge=5, le=65536)
    """Ids, the four that mark start, end, mask and separator among them."""
    samples: int = Field(default=1_000_000, ge=1, lt=2**32)
    """Samples of an epoch of training."""
    valid_samples: int = Field(default=1000, ge=1, lt=2**32)
    """Samples to evaluate on; none of their questions is in training."""


AnyData = Annotated[TextData | PairsData | TaskData, Field(discriminator="kind")]
