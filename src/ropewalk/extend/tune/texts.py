"""What a model is trained on: the given texts that the tournament did not use, as tokens of the model's tokenizer."""

from __future__ import annotations

import hashlib
import json
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
from ropewalk.extend.copies import Copies


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
    used = Copies()
    for digest, one in by_digest.items():
        if digest in found:
            used.add(one.read_of(found[digest]))
    alike = {digest for digest, text in other.items() if used.has(text)}
    kept = {digest: text for digest, text in other.items() if digest not in alike}
    if not kept:
        raise ValueError(
            f"none of the {len(found):,} texts is left to train on: {len(found) - len(other):,} search, select or "
            f"judge and {len(alike):,} are near copies of those; give more with --text"
        )
    return kept, len(alike)


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
