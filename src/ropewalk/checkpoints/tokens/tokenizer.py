"""Text to token ids and back, by the `tokenizers` library, from a model directory or a GGUF file.

Read are the vocabulary and the ids that begin and end a text; chat templates are programs and are not. A tokenizer.json
may hold settings that cut long texts or pad short ones, made for training batches: here no text is cut or padded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.files.gguf import GGUF
from ropewalk.checkpoints.files.sniff import kind_of, meant
from ropewalk.checkpoints.files.strict_json import read_bytes, read_json
from ropewalk.checkpoints.tokens.ends import Ends

if TYPE_CHECKING:
    import tokenizers

MOST_BYTES = 100 << 20
BROKEN = "\ufffd"
"""Stands for bytes that are no character, or not yet."""
CONVERT = (
    'where you trust it, write one:  python -c "import sys, transformers; '
    'transformers.AutoTokenizer.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[1])" DIRECTORY'
)
OTHER_FILE = "is the file whole, and of a version that the installed `tokenizers` reads?"

T = TypeVar("T")


class Tokenizer:
    """stops: the ids that end a generation. bos and eos: of a text, None where the model has none. before and after:
    the ids that `encode` puts around a text."""

    def __init__(self, inner: tokenizers.Tokenizer, ends: Ends, where: str) -> None:
        self.inner, self.where = inner, where
        self.bos, self.eos = ends.bos, ends.eos
        inner.no_truncation()
        inner.no_padding()
        self.size = inner.get_vocab_size(with_added_tokens=True)
        self.stops = tuple(dict.fromkeys(ends.stops or ([] if ends.eos is None else [ends.eos])))
        self.before, self.after = self._around(ends)

    def __len__(self) -> int:
        return self.size

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The ids of a text; special: with the tokens the model expects around it, such as a BOS in front.

        Names of special tokens inside the text (<|im_start|>) are read as those tokens.
        """
        ids = self._ids(text, False)
        return [*self.before, *ids, *self.after] if special else ids

    def encode_document(self, text: str) -> list[int]:
        """The ids of a text to measure: nothing is put around it, and names of special tokens in it are text, as in
        training data. A manual that says <s> does not begin anew there."""
        self.inner.encode_special_tokens = True
        try:
            return self._ids(text, False)
        finally:
            self.inner.encode_special_tokens = False

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """The text of ids; special: with the names of special tokens."""
        return self._run(lambda: self.inner.decode(list(ids), skip_special_tokens=not special))

    def stream(self, after: Sequence[int] = (), *, special: bool = False) -> Stream:
        """To decode ids one by one; after: the text they continue, whose words they may be part of."""
        return Stream(self, after, special)

    def token(self, number: int) -> str | None:
        """How the vocabulary spells a token."""
        return self.inner.id_to_token(number)

    def _around(self, ends: Ends) -> tuple[list[int], list[int]]:
        """What the tokenizer puts before and after a text, as the config corrects it."""
        bare, full = self._probe()
        start = next((n for n in range(len(full)) if full[n : n + len(bare)] == bare), None)
        if start is None:
            raise BadInput(self.where, "post_processor", "changes the text's own tokens", OTHER_FILE)
        before, after = full[:start], full[start + len(bare) :]
        for add, number, side in ((ends.add_bos, ends.bos, before), (ends.add_eos, ends.eos, after)):
            if add and number is None:
                raise BadInput(self.where, "add_bos_token or add_eos_token", "is true of a token that is not given")
            if add and number is not None and number not in side:
                side.insert(0, number)
            elif add is False and side == [number]:
                side.clear()
        return before, after

    def _probe(self) -> tuple[list[int], list[int]]:
        """The ids of a character that the vocabulary has, without and with what goes around it."""
        for text in "a0.\u4e00":
            if bare := self._ids(text, False):
                return bare, self._ids(text, True)
        raise BadInput(self.where, "vocabulary", "has none of the characters a, 0, . and \u4e00", OTHER_FILE)

    def _ids(self, text: str, special: bool) -> list[int]:
        return self._run(lambda: self.inner.encode(text, add_special_tokens=special).ids)

    def _run(self, call: Callable[[], T]) -> T:
        return _guarded(call, self.where)


class Stream:
    """Text as its tokens come. What `push` and `finish` say is together what `decode` says of all the tokens.

    A token may hold part of a character, and how one begins can depend on the one before (a leading space is dropped
    only at the start): a few tokens are decoded again, and what is new is told when it ends in a whole character.
    """

    def __init__(self, tokenizer: Tokenizer, after: Sequence[int] = (), special: bool = False) -> None:
        self.tokenizer, self.special = tokenizer, special
        self.told = list(after)  # tokens of the last text that was told
        self.open: list[int] = []  # tokens after them

    def push(self, number: int) -> str:
        self.open.append(number)
        text = self._text(self.told + self.open)
        # A token without text leaves what was told in place: alone at the front, it would not stand for the start.
        return "" if text.endswith(BROKEN) or text == self._text(self.told) else self._tell(text)

    def finish(self) -> str:
        """What was held back: the rest of a character that never came, as U+FFFD."""
        return self._tell(self._text(self.told + self.open)) if self.open else ""

    def _tell(self, text: str) -> str:
        before = self._text(self.told)
        # Broken bytes can spoil those before them, which were told already.
        new = text[len(before) :] if text.startswith(before) else self._text(self.open)
        self.told, self.open = self.open, []
        return new

    def _text(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, special=self.special)


def of(path: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer of a checkpoint: a model directory, a file in one, or a GGUF file."""
    place = meant(path)
    kind = kind_of(place)
    if kind == "gguf":
        return from_gguf(GGUF(place))
    return from_directory(place if kind == "directory" else place.parent)


def from_directory(path: str | os.PathLike[str]) -> Tokenizer:
    """From tokenizer.json, with the ids that tokenizer_config.json, generation_config.json and config.json name."""
    from tokenizers import Tokenizer as Inner

    directory = Path(path)
    file = directory / "tokenizer.json"
    if not file.is_file():
        there = [name for name in ("tokenizer.model", "vocab.json", "vocab.txt") if (directory / name).is_file()]
        also = f"; {there[0]} alone does not say how text is tokenized" if there else ""
        raise BadInput(directory, "tokenizer.json", f"is missing{also}", CONVERT)
    data = read_bytes(file, MOST_BYTES)
    inner = _guarded(lambda: Inner.from_buffer(data), str(file))
    return Tokenizer(inner, _ends(directory, inner), str(file))


def from_gguf(file: GGUF) -> Tokenizer:
    """From the vocabulary in a GGUF file."""
    from ropewalk.checkpoints.tokens.gguf import build

    where = str(file.path)
    inner, ends = _guarded(lambda: build(file.metadata, where), where)
    return Tokenizer(inner, ends, where)


def _ends(directory: Path, inner: tokenizers.Tokenizer) -> Ends:
    names = ("tokenizer_config.json", "generation_config.json", "config.json")
    words, generation, config = (read_json(directory / n) if (directory / n).is_file() else {} for n in names)

    def number(key: str) -> int | None:
        """A token by its name in tokenizer_config.json, or by its number in the others."""
        said = words.get(key)
        said = said.get("content") if isinstance(said, Mapping) else said
        if isinstance(said, str):
            return inner.token_to_id(said)
        return next(iter(_numbers(config, f"{key}_id", directory)), None)

    def flag(key: str) -> bool | None:
        said = words.get(key)
        if said is not None and not isinstance(said, bool):
            raise BadInput(directory / names[0], key, f"is {said!r}, not true or false")
        return said

    stops = _numbers(generation, "eos_token_id", directory) or _numbers(config, "eos_token_id", directory)
    return Ends(number("bos_token"), number("eos_token"), stops, flag("add_bos_token"), flag("add_eos_token"))


def _numbers(data: Mapping[str, Any], key: str, where: Path) -> tuple[int, ...]:
    said = data.get(key)
    numbers = said if isinstance(said, list) else [] if said is None else [said]
    wrong = [number for number in numbers if type(number) is not int or number < 0]
    if wrong:
        raise BadInput(where, key, f"is {said!r}; a token is a whole number, 0 or more")
    return tuple(numbers)


def _guarded(call: Callable[[], T], where: str) -> T:
    """A mistake in the file as an error of ours. A panic in the library's Rust code is a bare BaseException."""
    try:
        return call()
    except (BadInput, KeyboardInterrupt, SystemExit, MemoryError, ImportError):
        raise
    except BaseException as error:
        raise BadInput(where, "tokenizer", f"cannot be used ({error})", OTHER_FILE) from None
