"""Which data a run reads and how sequences are made of it: the `data` of a recipe.

data: {kind: text, path: data/long-english, length: 1024}
data: {kind: pairs, path: data/en-de, length: 128, source_length: 128}
data: {kind: task, task: copy, length: 64}
data: {kind: tasks, of: [copy, addition, sort, recall, parity], longest: 20}
data: {kind: mixture, length: 1024, of: [{path: data/web, weight: 4}, {path: data/books, weight: 1}]}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ropewalk.data.drawn.skips import AnySkips
from ropewalk.overrides import refusal
from ropewalk.settings import Settings

Length = Annotated[int, Field(ge=2, le=2**30)]


class Long(Settings):
    """Long documents more often than others, in training."""

    at_least: Length
    """Tokens of a document that is long."""
    times: int = Field(ge=2, le=1_000)
    """How often an epoch has each of them; others once."""


class Spread(Settings):
    """Sequences of `length` tokens that may be trained at positions farther apart."""

    length: Length
    positions: AnySkips | None = None
    """{kind: pose, reach: 32768} or {kind: random, reach: 32768}: positions that leave some out; null: 0, 1, 2, ..."""

    @model_validator(mode="after")
    def _farther(self) -> Self:
        if self.positions is not None and self.positions.reach <= self.length:
            says = f"reach {self.positions.reach} leaves nothing out of {self.length} tokens (data.length); raise it"
            raise refusal(("positions", self.positions, says))
        return self


class Documents(Settings):
    """One directory of documents, and how sequences are cut from it."""

    path: str
    """A directory written by `ropewalk data prepare`."""
    packing: Literal["stream", "document"] = "stream"
    """stream: documents end to end, cut into sequences. document: a sequence is a piece of one document, padded."""
    isolate: bool = True
    """Packed documents attend to themselves only, each from position 0; false: a sequence is one text. For stream."""
    long: Long | None = None
    """{at_least: 8192, times: 5}: long documents more often (upsampling); null: every document once an epoch."""


class TextData(Documents, Spread):
    """Documents of one language, for decoders (the next token) and encoders (masked tokens)."""

    kind: Literal["text"] = "text"
    length: Length = 1024
    """Tokens of a sequence."""


class Part(Documents):
    """One data set of a mixture."""

    weight: float = Field(gt=0, lt=1e6)
    """Its share of the sequences is this over the sum of all weights."""


class MixtureData(Spread):
    """Several data sets of text with one tokenizer, in shares of the sequences that do not depend on their sizes."""

    kind: Literal["mixture"] = "mixture"
    of: tuple[Part, ...] = Field(min_length=1)
    """{path, weight} of each, and if need be its packing, isolate and long."""
    length: Length = 1024
    """Tokens of a sequence."""

    def texts(self) -> list[TextData]:
        """Each as a data set of its own."""
        return [TextData(length=self.length, **part.model_dump(exclude={"weight"})) for part in self.of]


class PairsData(Settings):
    """Texts and their translations, for encoder-decoders; several short pairs share a sequence, each alone."""

    kind: Literal["pairs"] = "pairs"
    path: str
    """A directory written by `ropewalk data prepare --kind pairs`."""
    length: Length = 128
    """Tokens of a target sequence; a pair with a longer side is left out."""
    source_length: Length = 128
    """Tokens of a source sequence."""


class TaskData(Spread):
    """Generated on the fly, without files: a sample is a function of the seed and its number."""

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


TASKS = ("copy", "addition", "sort", "recall", "parity")


def task_tokens(tasks: Sequence[str], size: int) -> int:
    """Tokens of the longest sample of so many symbols: task, question, separator, answer."""
    needed = {"copy": 2 * size, "sort": 2 * size, "addition": 3 * size + 2, "recall": 2 * size + 9, "parity": size + 1}
    return 2 + max(needed[task] for task in tasks)


class TaskSetData(Settings):
    """Several tasks for one decoder, told apart by the first token of a sample."""

    kind: Literal["tasks"] = "tasks"
    of: tuple[Literal["copy", "addition", "sort", "recall", "parity"], ...] = Field(default=TASKS, min_length=1)
    longest: int = Field(default=20, ge=1, le=4096)
    """Symbols of the longest question in training. Shorter ones are drawn as often; where `length` has room for little
    more than one sample, more of them fit."""
    length: Length = Field(default_factory=lambda given: task_tokens(given["of"], given["longest"]))
    """Tokens of a sequence, filled with as many samples as fit; as many as the longest one has unless given."""
    vocabulary: int = Field(default=72, ge=32, le=65536)
    """Ids: those that mark start, end, mask and separator, the symbols, and one for each task."""
    samples: int = Field(default=1_000_000, ge=1, lt=2**32)
    """Sequences of an epoch of training."""
    valid_samples: int = Field(default=1000, ge=1, lt=2**32)
    """Sequences to evaluate on."""
    positions: AnySkips | None = None
    """As of text."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.length < (least := task_tokens(self.of, self.longest)):
            says = f"{self.length} tokens hold no sample of longest={self.longest}; write {least}, or leave length out"
            raise refusal(("length", self.length, says))
        if self.positions is not None and self.positions.reach <= self.length:
            says = f"reach {self.positions.reach} leaves nothing out of {self.length} tokens (data.length); raise it"
            raise refusal(("positions", self.positions, says))
        return self


AnyData = Annotated[TextData | MixtureData | PairsData | TaskData | TaskSetData, Field(discriminator="kind")]
