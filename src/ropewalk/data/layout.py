"""What a directory of prepared data holds, and what says so.

DIR/data.json                         what is here, from what, and a fingerprint of it
DIR/tokenizer.json  token_bytes.npy   (bytes of text that each id stands for)
DIR/train/tokens-00000.bin            ids, uint16 or uint32, documents end to end: start ... end
DIR/train/offsets-00000.npy           int64: where each document starts in its shard, and where the last one stops
pairs: source-*.bin, source-offsets-*.npy, target-*.bin, target-offsets-*.npy
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ropewalk.data.corpora import CORPORA
from ropewalk.data.urls import Located, Remote, located

HEADER = 128
"""Bytes before the numbers of an offsets file: numpy's header has this size up to any number of documents."""
FORMAT = 1
STREAMS = {"text": ("tokens",), "pairs": ("source", "target")}


class BadData(ValueError):
    """A data directory that is not what `ropewalk data prepare` wrote."""


def names(stream: str, shard: int) -> tuple[str, str]:
    """The two files of a shard."""
    return f"{stream}-{shard:05}.bin", ("" if stream == "tokens" else f"{stream}-") + f"offsets-{shard:05}.npy"


def describe(path: str | Path | Remote) -> dict[str, Any]:
    """What data.json says."""
    folder = path if isinstance(path, Remote) else located(path)
    file = folder / "data.json"
    if not file.is_file():
        part = staging(folder)
        hint = f"its preparation was cut off; run it again to go on ({part})" if part.is_dir() else "prepare it first"
        known = folder.name if folder.name in CORPORA else "INPUT..."
        raise BadData(f"{folder}: no data.json there; {hint}: ropewalk data prepare {known} --out {folder}")
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise BadData(f"{file}: format {FORMAT} is read here; prepare the data again with this version of ropewalk")
        if found["kind"] not in STREAMS or found["dtype"] not in ("uint16", "uint32"):
            raise BadData(f"{file}: kind {found['kind']!r}, dtype {found['dtype']!r} are not known; prepare it again")
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError) as error:
        raise BadData(f"{file}: not readable as JSON of this format ({error!r}); prepare the data again") from None
    return found


def staging(folder: Located) -> Path:
    """Where it is made: beside it, or in the current folder for one that is elsewhere."""
    return Path(f"{folder.name}.part" if isinstance(folder, Remote) else f"{folder}.part")


def changed(path: str | Path) -> list[str]:
    """The files that are not as they were written, by their hashes."""
    folder, about = located(path), describe(path)
    wanted = {"tokenizer.json": about["tokenizer"]}
    for split, found in about["splits"].items():
        for stream, held in found["streams"].items():
            for number, shard in enumerate(held["shards"]):
                for name, digest in zip(names(stream, number), shard["sha256"], strict=True):
                    wanted[f"{split}/{name}"] = digest
    return [str(folder / name) for name, digest in wanted.items() if file_hash(folder / name) != digest]


def file_hash(path: Located) -> str | None:
    """SHA-256 of a file; None where there is none."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
