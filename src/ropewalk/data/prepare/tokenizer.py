"""Text to ids for preparation: a tokenizer trained here, or one that is given.

Trained ones work on bytes, so every text has ids and comes back from them as it was: byte-level BPE (arXiv:1508.07909)
or unigram (arXiv:1804.10959) over the same bytes. Names of special tokens inside a text are read as plain text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ropewalk.data.layout import BadData

if TYPE_CHECKING:
    import tokenizers

Model = Literal["bpe", "unigram"]
START, END, MASK = "<start>", "<end>", "<mask>"
KNOWN = {
    "start": (START, "<s>", "<bos>", "<|begin_of_text|>", "<|startoftext|>", "[CLS]"),
    "end": (END, "</s>", "<eos>", "<|end_of_text|>", "<|endoftext|>", "[SEP]"),
    "mask": (MASK, "[MASK]", "<|mask|>"),
}
"""What tokenizers call the tokens that every document gets, first match first."""
LEAST = 256 + 3
PIECE = 1 << 20
"""Characters encoded at once: a longer document is encoded in pieces, where that gives the same ids."""
CUT = re.compile(r"(?<=\S)(?:\n(?=\S)|(?= \S))")
"""After a lone line break or before a lone space."""


def train_tokenizer(texts: Iterable[str], *, vocabulary: int, model: Model) -> str:
    """The JSON of a tokenizer trained on texts; it has at most that many ids."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    if vocabulary < LEAST:
        raise ValueError(f"--vocabulary {vocabulary}: {LEAST} is the least, one id for each byte and three marks")
    options: dict[str, Any] = {
        "vocab_size": vocabulary,
        "special_tokens": [START, END, MASK],
        "initial_alphabet": sorted(pre_tokenizers.ByteLevel.alphabet()),
        "show_progress": False,
    }
    made = Tokenizer(models.BPE() if model == "bpe" else models.Unigram())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(**options) if model == "bpe" else trainers.UnigramTrainer(**options)
    made.train_from_iterator((piece for text in texts for piece in pieces(text)), trainer=trainer)
    return made.to_str(pretty=True)


class Words:
    """A tokenizer as preparation uses it. special: the ids of start, end and mask."""

    def __init__(self, source: str, where: str, chosen: dict[str, str | None]) -> None:
        from tokenizers import Tokenizer

        try:
            self.inner: tokenizers.Tokenizer = Tokenizer.from_str(source)
        except Exception as error:  # the library raises bare Exception
            raise BadData(f"{where}: not a tokenizer.json that the installed tokenizers reads ({error})") from None
        self.inner.no_truncation()
        self.inner.no_padding()
        self.inner.encode_special_tokens = True
        self.where = where
        self.size = self.inner.get_vocab_size(with_added_tokens=True)
        self.special = {name: self._special(name, chosen.get(name)) for name in KNOWN}
        self.special["start"] = self.special["start"] if self.special["start"] is not None else self.special["end"]
        self.dtype = np.dtype("uint16" if self.size <= 2**16 else "uint32")

    @cached_property
    def parts(self) -> bool:
        """Whether a text has the ids of its pieces: not where a space is put before each text."""
        ids = [self.inner.encode(text, add_special_tokens=False).ids for text in ("a\n", "b c", "a\nb c", "a\nb", " c")]
        return ids[0] + ids[1] == ids[2] == ids[3] + ids[4]

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Each text as start, its ids, end."""
        parts = [list(pieces(text)) if len(text) > PIECE and self.parts else [text] for text in texts]
        found = iter(
            self.inner.encode_batch_fast([piece for part in parts for piece in part], add_special_tokens=False)
        )
        out = []
        for part in parts:
            ids = [self.special["start"], *(n for _ in part for n in next(found).ids), self.special["end"]]
            out.append(np.array(ids, dtype=np.int64))
            if (worst := int(out[-1].max())) >= self.size:
                raise BadData(f"{self.where}: gave id {worst}, its vocabulary has {self.size}; it contradicts itself")
        return [ids.astype(self.dtype) for ids in out]

    def token_bytes(self) -> np.ndarray:
        """How many bytes of text each id stands for; 0 for special tokens."""
        about = json.loads(self.inner.to_str())
        special = {token["id"] for token in about["added_tokens"] if token["special"]}
        level = "ByteLevel" in json.dumps([about["decoder"], about["pre_tokenizer"]])
        names = [self.inner.id_to_token(number) for number in range(self.size)]
        sizes = [0 if n in special or name is None else _bytes(name, level) for n, name in enumerate(names)]
        return np.array(sizes, dtype=np.uint16)

    def _special(self, name: str, chosen: str | None) -> int | None:
        tried = (chosen,) if chosen else KNOWN[name]
        found = next((n for word in tried if (n := self.inner.token_to_id(word)) is not None), None)
        if found is None and (chosen or name == "end"):
            flag = {"start": "--bos-token", "end": "--eos-token", "mask": "--mask-token"}[name]
            raise ValueError(f"{self.where}: no token {' or '.join(tried)} in it; name one that is: {flag} TOKEN")
        return found


def pieces(text: str) -> Iterator[str]:
    """A long text in pieces, cut where a byte-level tokenizer parts words anyway: after a line break or before a space
    that stands alone. Where half a piece has neither, it is cut anywhere."""
    start = 0
    while len(text) - start > PIECE:
        stop = max((cut.end() for cut in CUT.finditer(text, start + PIECE // 2, start + PIECE)), default=start + PIECE)
        yield text[start:stop]
        start = stop
    yield text[start:]


def _bytes(name: str, byte_level: bool) -> int:
    if byte_level:
        return len(name)
    if re.fullmatch(r"<0x[0-9A-F]{2}>", name):
        return 1
    return len(name.replace("\u2581", " ").removeprefix("##").encode("utf-8"))
