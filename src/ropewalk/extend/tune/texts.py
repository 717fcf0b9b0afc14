"""What a model is trained on: the given texts that the tournament did not use, as tokens of the model's tokenizer."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ropewalk.checkpoints.files.gguf import GGUF
from ropewalk.checkpoints.files.sniff import kind_of, meant
from ropewalk.checkpoints.files.strict_json import read_json
from ropewalk.checkpoints.tokens.ends import answer_start
from ropewalk.checkpoints.tokens.tokenizer import of
from ropewalk.data.options import Options
from ropewalk.data.prepare.dataset import prepare
from ropewalk.data.prepare.tokenizer import KNOWN
from ropewalk.evaluate.documents import Document, cut, texts

UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Thai, Lao, Burmese, Khmer, kana and Han."""
WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
WORDS = 8
"""Of a shingle: so many in a row are seldom the same by chance."""
ALIKE = 0.5
"""Share of the shingles of the shorter of two texts from which on they are taken for one text."""


def to_train_on(
    paths: Sequence[Path], documents: Sequence[Document], encode: Callable[[str], Sequence[int]]
) -> tuple[dict[str, str], int]:
    """Each text by its digest, without the documents of the tournament, and how many were left out because they are
    nearly one of those, as another edition is. The same text under another name is the same, and so is one that begins
    with all that is read of it."""
    found = {hashlib.sha256(text.encode()).hexdigest(): text for _, text in texts(paths)}
    by_digest, read = {one.digest: one for one in documents}, {one.tokens.tobytes() for one in documents}
    longest = len(documents[0].tokens)

    def taken(digest: str) -> bool:
        document = None if digest in by_digest else cut("", found[digest], encode, longest)
        return digest in by_digest or (document is not None and document.tokens.tobytes() in read)

    other = {digest: found[digest] for digest in sorted(found) if not taken(digest)}
    # Of each document what is read: the rest of its text may be trained on.
    begun = [
        found[digest].encode()[: one.bytes].decode(errors="ignore")
        for digest, one in by_digest.items() if digest in found
    ]  # fmt: skip
    alike = near_copies(other, begun)
    kept = {digest: text for digest, text in other.items() if digest not in alike}
    if not kept:
        raise ValueError(
            f"none of the {len(found):,} texts is left to train on: {len(found) - len(other):,} search, select or "
            f"judge and {len(alike):,} are near copies of those; give more with --text"
        )
    return kept, len(alike)


def near_copies(given: Mapping[str, str], of: Sequence[str]) -> set[str]:
    """Names of the texts that share more than `ALIKE` of their shingles, or of the other's, with one of these."""
    sizes, where = [], dict[int, list[int]]()
    for number, text in enumerate(of):
        every = _shingles(text)
        sizes.append(len(every))
        for shingle in every:
            where.setdefault(shingle, []).append(number)
    alike = set()
    for name, text in given.items():
        every = _shingles(text)
        shared = Counter(number for shingle in every for number in where.get(shingle, ()))
        if any(count > ALIKE * min(len(every), sizes[number]) for number, count in shared.items()):
            alike.add(name)
    return alike


def _shingles(text: str) -> set[int]:
    """Hashes of every `WORDS` words in a row; of a text of fewer, of all of them. In a script without spaces a
    character is a word: a whole clause as one would differ by any slip in it."""
    words = WORD.findall(text.lower())
    return {hash(tuple(words[start : start + WORDS])) for start in range(max(1, len(words) - WORDS + 1))}


def write_data(kept: Mapping[str, str], model: Path, folder: Path) -> None:
    """A data set for training, unless it is there."""
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    file = folder.with_name("texts.jsonl")
    if not file.exists():  # preparation continues only with the very file that it began with
        partial = file.with_suffix(".part")
        partial.write_text("".join(json.dumps({"text": text}) + "\n" for text in kept.values()), encoding="utf-8")
        partial.replace(file)
    own = tokenizer_of(str(model), folder.with_name("tokenizer.json"))
    prepare([file], folder, Options.model_validate({"valid": 0.0, **own}))
    file.unlink()


def tokenizer_of(model: str, file: Path) -> dict[str, str | None]:
    """Of a model directory or .gguf file: its tokenizer.json, which of a .gguf is written to `file`, and the tokens it
    has around a text: those that it declares, or else what preparation finds by their usual names."""
    made, source = of(model), meant(model)
    config = (source if source.is_dir() else source.parent) / "config.json"
    about = GGUF(source).small if kind_of(source) == "gguf" else read_json(config) if config.is_file() else {}
    place = Path(made.where)
    if place.suffix != ".json":
        place = file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(made.inner.to_str(), encoding="utf-8")
    # An encoder-decoder is asked for what follows its own first token, whatever its tokenizer puts before a text.
    first = next((n for n in (answer_start(about), *made.before, made.bos) if n is not None), None)
    # A chat model's EOS ends a turn; what ends its texts is among its stops. A usual name alone says nothing.
    stops = [n for word in KNOWN["end"] if (n := made.inner.token_to_id(word)) in made.stops]
    last = next((n for n in (*stops, made.eos) if n is not None), None)
    return {
        "tokenizer": str(place),
        "start": None if first is None else made.token(first),
        "end": None if last is None else made.token(last),
    }
