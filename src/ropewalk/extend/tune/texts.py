"""What a model is trained on: the given texts without those that judge, as tokens of the model's own tokenizer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from ropewalk.checkpoints.export.hf import around
from ropewalk.checkpoints.tokens.tokenizer import of
from ropewalk.data.options import Options
from ropewalk.data.prepare.dataset import prepare
from ropewalk.data.prepare.tokenizer import KNOWN
from ropewalk.evaluate.documents import texts


def to_train_on(paths: Sequence[Path], left_out: Collection[str]) -> dict[str, str]:
    """Each text by its digest. left_out: digests of those that judge; the same text under another name is the same."""
    found = {hashlib.sha256(text.encode()).hexdigest(): text for _, text in texts(paths)}
    kept = {digest: found[digest] for digest in sorted(found) if digest not in left_out}
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
    has around a text: what it puts there itself, or else those that preparation finds by their usual names."""
    made = of(model)
    place = Path(made.where)
    if place.suffix != ".json":
        place = file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(made.inner.to_str(), encoding="utf-8")
    before, _ = around(made)
    # A model may end its texts by a token of any name, and says which.
    named = any(made.inner.token_to_id(word) is not None for word in KNOWN["end"])
    return {
        "tokenizer": str(place),
        "start": made.token(before[0]) if before else None,
        "end": made.token(made.eos) if made.eos is not None and not named else None,
    }
