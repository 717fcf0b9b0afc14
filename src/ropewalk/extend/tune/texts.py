"""What a model is trained on: the given texts without those that judge, as tokens of the model's own tokenizer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ropewalk.checkpoints.export.hf import around
from ropewalk.checkpoints.files.gguf import GGUF
from ropewalk.checkpoints.files.sniff import kind_of, meant
from ropewalk.checkpoints.files.strict_json import read_json
from ropewalk.checkpoints.tokens.ends import answer_start
from ropewalk.checkpoints.tokens.tokenizer import of
from ropewalk.data.options import Options
from ropewalk.data.prepare.dataset import prepare
from ropewalk.data.prepare.tokenizer import KNOWN
from ropewalk.evaluate.documents import Document, cut, texts


def to_train_on(
    paths: Sequence[Path], judges: Sequence[Document], encode: Callable[[str], Sequence[int]]
) -> dict[str, str]:
    """Each text by its digest, without those that judge; the same text under another name is the same, and so is one
    that begins with all that is read of it."""
    found = {hashlib.sha256(text.encode()).hexdigest(): text for _, text in texts(paths)}
    digests, read = {one.digest for one in judges}, {one.tokens.tobytes() for one in judges}
    longest = len(judges[0].tokens)

    def judging(digest: str) -> bool:
        document = None if digest in digests else cut("", found[digest], encode, longest)
        return digest in digests or (document is not None and document.tokens.tobytes() in read)

    kept = {digest: found[digest] for digest in sorted(found) if not judging(digest)}
    if not kept:
        raise ValueError("every text judges, and none is left to train on; give more with --text")
    return kept


def write_data(kept: Mapping[str, str], model: Path, folder: Path) -> None:
    """A data set for training, unless it is there."""
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    file = folder.with_name("texts.jsonl")
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in kept.values()), encoding="utf-8")
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
    before, _ = around(made)
    # An encoder-decoder is asked for what follows its own first token, whatever its tokenizer puts before a text.
    first = next((n for n in (answer_start(about), *before, made.bos) if n is not None), None)
    # A chat model's EOS ends a turn; what ends its texts is among its stops. A usual name alone says nothing.
    stops = [n for word in KNOWN["end"] if (n := made.inner.token_to_id(word)) in made.stops]
    last = next((n for n in (*stops, made.eos) if n is not None), None)
    return {
        "tokenizer": str(place),
        "start": None if first is None else made.token(first),
        "end": None if last is None else made.token(last),
    }
