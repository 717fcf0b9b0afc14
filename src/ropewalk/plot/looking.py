"""A model and a text for it to read, for pictures of what happens inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from ropewalk.settings import Settings

TEXT = (
    "The cat sat on the mat because it was warm. When the dog came in, the cat that had been asleep on the mat got up, "
    "and the mat was empty until the cat came back."
)
MOST_TOKENS = 512


class Reading(Settings):
    """Settings of every picture of what a model does with a text."""

    text: str | None = Field(default=None, min_length=1, max_length=20_000)
    """What it reads; two sentences about a cat unless given."""
    ids: tuple[int, ...] | None = Field(default=None, min_length=2, max_length=MOST_TOKENS)
    """The ids of tokens, in place of a text."""


class Seen(NamedTuple):
    name: str
    model: Any
    tokens: Any  # (1, L)
    words: list[str]
    """Each token as its tokenizer writes it, or its id."""


def readable(thing: Any, options: Reading) -> Seen:
    """The model of a path or the caller's own, and the tokens it is to read. A model's tokenizer is in its folder; a
    model given in Python needs ids."""
    import torch

    if options.text is not None and options.ids is not None:
        raise ValueError("text= and ids= both say what to read; give one of them")
    tokenizer: Any = None
    if isinstance(thing, str | Path):
        from ropewalk.checkpoints.load.model import load

        name, model = Path(thing).absolute().name, load(thing)
        if options.ids is None:
            from ropewalk.checkpoints.tokens import tokenizer as tokenizers

            tokenizer = tokenizers.of(thing)
    else:
        name, model = type(thing).__name__, thing
        if options.ids is None:
            raise ValueError(
                "a model given in Python comes without its tokenizer; give ids=[...] of what it is to read"
            )
    ids = list(options.ids) if options.ids is not None else tokenizer.encode(options.text or TEXT)[:MOST_TOKENS]
    size = model.config.vocabulary
    if bad := [number for number in ids if not 0 <= number < size]:
        raise ValueError(f"ids: {bad[0]} is not one of the {size:,} tokens of {name}")
    if len(ids) < 2:
        raise ValueError(f"the text has {len(ids)} tokens; give two or more")
    words = [str(number) if tokenizer is None else _spelt(tokenizer, number) for number in ids]
    return Seen(name, model, torch.tensor([ids]), words)


def _spelt(tokenizer: Any, number: int) -> str:
    text = tokenizer.decode([number], special=True)
    return text.strip() or tokenizer.token(number) or str(number)
