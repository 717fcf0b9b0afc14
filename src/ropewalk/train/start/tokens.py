"""Whether data and checkpoint mean the same by an id: every token of the data has the same id in the model."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from ropewalk.checkpoints.export.vocabulary import SAMPLES
from ropewalk.checkpoints.tokens.tokenizer import Tokenizer, from_directory
from ropewalk.data.corpora import CORPORA
from ropewalk.data.layout import describe
from ropewalk.data.open import Data
from ropewalk.train.start.source import Source


def check_data(source: Source, data: Data, start: str) -> list[str]:
    """An error where the data's ids are not the model's, or its answers begin otherwise; what else is to be known."""
    own, folder = source.tokenizer(), None if data.tokenizer is None else data.tokenizer.parent
    if folder is not None and own is not None:
        check_tokens(folder, own, start)
    if data.vocabulary > source.config.vocabulary:
        cure = "start from a model of these ids" if folder is None else f"prepare it anew: {command(folder, start)}"
        raise ValueError(
            f"the data has {data.vocabulary} tokens and {start} a table of {source.config.vocabulary}; {cure}"
        )
    first = source.answer_start()
    if first is not None and data.start != first:
        cure = "start from a model of these ids" if folder is None else "prepare it anew"
        option = [] if own is None or (name := own.token(first)) is None else ["--bos-token", name]
        line = "" if folder is None else f": {command(folder, start, option)}"
        raise ValueError(
            f"answers in the data begin with {_named(own, data.start)}, those of {start} with {_named(own, first)} "
            f"(decoder_start_token_id); {cure}{line}"
        )
    if folder is not None and own is None:
        return [f"{start} has no tokenizer.json: that the data's ids are the model's is not checked"]
    if folder is not None and own is not None and own.stops and data.end not in own.stops:
        stops = " or ".join(_named(own, number) for number in own.stops)
        said = (
            f"texts in the data end with {_named(own, data.end)}, those of {start} with {stops}; where it is to go on"
        )
        return [f"{said} ending them so, prepare the data anew: {command(folder, start)}"]
    return []


def _named(own: Tokenizer | None, number: int | None) -> str:
    name = None if own is None or number is None else own.token(number)
    return f"token {number}" + ("" if name is None else f" ({name})")


def check_tokens(data: Path, own: Tokenizer, start: str) -> None:
    """data: a directory of prepared data. Ids that only the model has, such as padding of its table, do no harm."""
    given = from_directory(data)
    for number in range(len(given)):
        token = given.token(number)
        if token is not None and token != own.token(number):
            raise ValueError(
                f"{data}: token {number} is {token!r} in the data and {own.token(number)!r} in {start}; prepare the "
                f"data with the model's tokenizer: {command(data, start)}"
            )
    for text in SAMPLES:
        one, two = (words.encode(text, special=False) for words in (given, own))
        if one != two:
            raise ValueError(
                f"{data}: {text[:30]!r} is tokenized as {one[:8]} in the data and as {two[:8]} by {start}; prepare the "
                f"data with the model's tokenizer: {command(data, start)}"
            )


def command(data: Path, start: str, options: Sequence[str] = ()) -> str:
    """What prepares the same text with the tokenizer of the checkpoint."""
    about = describe(data)
    names = [source["name"] for source in about["sources"]]
    corpus = [name for name in CORPORA if names == [CORPORA[name].file]]
    kind = [] if about["kind"] == "text" else ["--kind", about["kind"]]
    out = f"{data}-{Path(start).stem}"
    given = [*(corpus or names), *kind, "--tokenizer", start, *options, "--out", out]
    return shlex.join(["ropewalk", "data", "prepare", *given])
