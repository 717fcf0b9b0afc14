"""Text into tokens on disk: streaming, in bounded memory, and resumable to the same bytes.

    DIR.part/plan.json     what was asked, and of each input its hash and how much is in it    (survey)
    DIR.part/tokenizer.json                                                                    (train, or copy)
    DIR.part/state.json    how far each file is, and where reading goes on                     (tokens)
    DIR.part/data.json     hashes of everything; then DIR.part becomes DIR                     (finish)

A run that is killed at any of these goes on from the last that is whole. A document is for evaluation by the hash of
its content, a pair by that of its source without case and spacing: the same text is never on both sides.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ropewalk import crash
from ropewalk.data.layout import FORMAT, STREAMS, describe, file_hash, names
from ropewalk.data.options import Options
from ropewalk.data.prepare import inputs
from ropewalk.data.prepare.tokenizer import Words, train_tokenizer
from ropewalk.data.prepare.writer import Writer, replace, sync
from ropewalk.system import lock

POINTS = (
    "prepare.survey",
    "prepare.tokenizer",
    "prepare.chunk",
    "prepare.state",
    "prepare.shard",
    "prepare.tokens",
    "prepare.manifest",
    "prepare.cleaned",
    "prepare.renamed",
)
"""Where a test can have a preparation killed."""
TOKENIZER_BYTES = 8 << 20
"""Of text that a tokenizer is trained on: of more, a part chosen by hash."""
COMMIT_CHUNKS = 16
COMMIT_SECONDS = 5.0
"""Between two notes of how far it is. They name every file: one after each would take time quadratic in the files."""
SPLITS = ("train", "valid")

Progress = Callable[[str, int, int], None]
"""Told a stage, and bytes done of bytes to do."""


def prepare(
    files: Iterable[str | Path], out: str | Path, options: Options, progress: Progress | None = None
) -> dict[str, Any]:
    """Prepares files into a directory; gives what its data.json says. One that is there already is left as it is."""
    paths = inputs.files([Path(file) for file in files], options.kind)
    final = Path(out)
    part = Path(f"{final}.part")
    if final.exists():
        return _already(final, paths, options)
    part.mkdir(parents=True, exist_ok=True)
    with _alone(part):
        if (part / "data.json").is_file():
            _already(part, paths, options)  # killed on the last few lines of this
        else:
            run = _Run(part, paths, options, progress or (lambda *_: None))
            run.survey()
            run.tokenizer()
            run.tokens()
            run.finish()
        for name in ("plan.json", "state.json", "lock"):
            (part / name).unlink(missing_ok=True)
        crash.here("prepare.cleaned")
        part.rename(final)
        sync(final.parent)
        crash.here("prepare.renamed")
    return describe(final)


class _Run:
    def __init__(self, part: Path, paths: list[Path], options: Options, progress: Progress) -> None:
        self.part, self.paths, self.options, self.progress = part, paths, options, progress
        self.valid = options.valid
        self.surveyed: list[dict[str, Any]] = []
        self.state: dict[str, Any] = {}

    def survey(self) -> None:
        """Reads everything once: mistakes in line 9,000,000 are told before hours of work, not after them."""
        asked = self.options.model_dump()
        stats = [(path.stat().st_size, path.stat().st_mtime_ns) for path in self.paths]
        known = [{"file": str(p.resolve()), "size": s, "time": t} for p, (s, t) in zip(self.paths, stats, strict=True)]
        fresh: dict[str, Any] = {"asked": asked, "inputs": known, "found": []}
        before = _load(self.part / "plan.json") or fresh
        if not (self.part / "state.json").is_file() and (before["asked"] != asked or before["inputs"] != known):
            # No token is written yet: what was asked for now is what is meant.
            (self.part / "tokenizer.json").unlink(missing_ok=True)
            before = fresh
        if before["asked"] != asked or before["inputs"] != known:
            raise ValueError(
                f"{self.part} was begun with {_difference(before, asked, known)}; "
                f"give the same again, or remove it to start anew: rm -r {self.part}"
            )
        self.surveyed = before["found"]
        total, done, noted = sum(size for size, _ in stats), 0, time.monotonic()
        for number, path in enumerate(self.paths):
            if number == len(self.surveyed):
                self.surveyed.append(self._survey(path, done, total))
                if time.monotonic() - noted >= COMMIT_SECONDS or number == len(self.paths) - 1:
                    replace(self.part / "plan.json", _json({**before, "found": self.surveyed}))
                    noted = time.monotonic()
                    crash.here("prepare.survey")
            done += stats[number][0]
        self.progress("reading", total, total)
        counts = {split: sum(found[split] for found in self.surveyed) for split in SPLITS}
        least, most = min(f["least"] for f in self.surveyed), max(f["most"] for f in self.surveyed)
        if self.options.valid and not counts["valid"] and least < most:
            # Few documents: the one that comes first by its hash is for evaluation.
            self.valid = math.nextafter(least, 1.0)
            counts = {"train": counts["train"] - 1, "valid": 1}
        what = {"text": "documents", "pairs": "pairs"}[self.options.kind]
        if not counts["train"] or (self.options.valid and not counts["valid"]):
            raise ValueError(
                f"of {sum(counts.values()):,} {what} {counts['train']:,} are for training and {counts['valid']:,} for "
                f"evaluation with --valid-fraction {self.options.valid}; give more {what} (see --document), or another "
                "fraction"
            )

    def _survey(self, path: Path, done: int, total: int) -> dict[str, Any]:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while data := file.read(1 << 20):
                digest.update(data)
        found: dict[str, Any] = {
            "name": path.name,
            "sha256": digest.hexdigest(),
            "bytes": 0,
            "empty": 0,
            "train": 0,
            "valid": 0,
            "least": 1.0,
            "most": 0.0,
        }
        for count, item in enumerate(inputs.read(path, self.options.kind, self.options.document)):
            if not all(text.strip() for text in item.texts):
                found["empty"] += 1
                continue
            found[self._split(item.texts)] += 1
            share = _share(self._key(item.texts), 0)
            found["least"], found["most"] = min(found["least"], share), max(found["most"], share)
            found["bytes"] += sum(len(text.encode()) for text in item.texts)
            if count % 1000 == 0:
                self.progress("reading", min(done + item.after.offset, total), total)
        return found

    def tokenizer(self) -> None:
        path = self.part / "tokenizer.json"
        if not path.is_file():
            if self.options.tokenizer:
                source = Path(self.options.tokenizer).read_text(encoding="utf-8")
            else:
                self.progress("training the tokenizer", 0, 1)
                source = train_tokenizer(self._sample(), vocabulary=self.options.vocabulary, model=self.options.model)
            self._words(source)  # refused before it is kept
            replace(path, source.encode())
            crash.here("prepare.tokenizer")
        self.words = self._words(path.read_text(encoding="utf-8"))

    def _words(self, source: str) -> Words:
        where = self.options.tokenizer or str(self.part / "tokenizer.json")
        return Words(source, where, self.options.special())

    def _sample(self) -> Iterator[str]:
        """Training text for a tokenizer, some of it where there is much."""
        share = TOKENIZER_BYTES / max(sum(found["bytes"] for found in self.surveyed), 1)
        for path in self.paths:
            for item in inputs.read(path, self.options.kind, self.options.document):
                if self._split(item.texts) == "train" and _share(item.texts[0], 8) < share:
                    yield from item.texts

    def tokens(self) -> None:
        start: dict[str, Any] = {"input": 0, "place": [0, 0], "bytes": {}, "files": {}}
        self.state = _load(self.part / "state.json") or start
        streams = [(split, stream) for split in SPLITS for stream in STREAMS[self.options.kind]]
        width = self.words.dtype.itemsize
        self.writers = {
            (split, stream): Writer(
                self.part / split,
                stream,
                self.options.shard_tokens,
                self.state["files"].get(f"{split}/{stream}", []),
                width,
            )
            for split, stream in streams
        }
        total, noted = sum(found["bytes"] for found in self.surveyed), time.monotonic()
        for number in range(self.state["input"], len(self.paths)):
            self.state["input"] = number
            place = inputs.Place(*self.state["place"])
            reading = inputs.read(self.paths[number], self.options.kind, self.options.document, place)
            for count, chunk in enumerate(_chunks(reading, self.options.chunk), 1):
                self._append([item.texts for item in chunk if all(text.strip() for text in item.texts)])
                self.state["place"] = list(chunk[-1].after)
                crash.here("prepare.chunk")
                self.progress("tokens", sum(self.state["bytes"].values()), total)
                if count % COMMIT_CHUNKS == 0:
                    self._commit()
            self.state |= {"input": number + 1, "place": [0, 0]}
            if time.monotonic() - noted >= COMMIT_SECONDS or number == len(self.paths) - 1:
                self._commit()
                noted = time.monotonic()
        for writer in self.writers.values():
            writer.close()
        crash.here("prepare.tokens")

    def _append(self, items: list[tuple[str, ...]]) -> None:
        streams = STREAMS[self.options.kind]
        encoded = iter(self.words.encode(list(chain.from_iterable(items))))
        for texts in items:
            split = self._split(texts)
            for stream, text in zip(streams, texts, strict=True):
                self.writers[split, stream].write([next(encoded)])
                sizes = self.state["bytes"]
                sizes[f"{split}/{stream}"] = sizes.get(f"{split}/{stream}", 0) + len(text.encode())

    def _commit(self) -> None:
        self.state["files"] = {f"{split}/{stream}": writer.commit() for (split, stream), writer in self.writers.items()}
        replace(self.part / "state.json", _json(self.state))
        crash.here("prepare.state")

    def finish(self) -> None:
        np.save(self.part / "token_bytes.npy", self.words.token_bytes())
        about: dict[str, Any] = {
            "format": FORMAT,
            "kind": self.options.kind,
            "licence": self.options.licence,
            "vocabulary": self.words.size,
            "dtype": self.words.dtype.name,
            "special": self.words.special,
            "tokenizer": file_hash(self.part / "tokenizer.json"),
            "splits": {split: self._described(split) for split in SPLITS},
        }
        about["fingerprint"] = hashlib.sha256(_json({k: v for k, v in about.items() if k != "licence"})).hexdigest()
        about["sources"] = [{"name": found["name"], "sha256": found["sha256"]} for found in self.surveyed]
        about["empty"] = sum(found["empty"] for found in self.surveyed)
        about["asked"] = self.options.asked()
        replace(self.part / "data.json", _json(about))
        crash.here("prepare.manifest")

    def _described(self, split: str) -> dict[str, Any]:
        streams = {}
        for stream in STREAMS[self.options.kind]:
            sizes = self.writers[split, stream].sizes
            hashes = [[file_hash(self.part / split / name) for name in names(stream, n)] for n in range(len(sizes))]
            shards = [{**size, "sha256": found} for size, found in zip(sizes, hashes, strict=True)]
            text = self.state["bytes"].get(f"{split}/{stream}", 0)
            streams[stream] = {"tokens": sum(size["tokens"] for size in sizes), "bytes": text, "shards": shards}
        documents = sum(size["documents"] for size in self.writers[split, STREAMS[self.options.kind][0]].sizes)
        return {"documents": documents, "streams": streams}

    def _split(self, texts: tuple[str, ...]) -> str:
        return "valid" if _share(self._key(texts), 0) < self.valid else "train"

    def _key(self, texts: tuple[str, ...]) -> str:
        return texts[0] if self.options.kind == "text" else " ".join(texts[0].casefold().split())


def _share(text: str, start: int) -> float:
    """A number in [0, 1) that a text always has."""
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[start : start + 8], "big") / 2**64


def _chunks(items: Iterator[inputs.Item], size: int) -> Iterator[list[inputs.Item]]:
    held: list[inputs.Item] = []
    characters = 0
    for item in items:
        held.append(item)
        characters += sum(map(len, item.texts)) + 1
        if characters >= size:
            yield held
            held, characters = [], 0
    if held:
        yield held


def _already(final: Path, paths: list[Path], options: Options) -> dict[str, Any]:
    about = describe(final)
    sources = [{"name": path.name, "sha256": file_hash(path)} for path in paths]
    given = options.tokenizer is None or file_hash(Path(options.tokenizer)) == about["tokenizer"]
    if about["asked"] != options.asked() or about["sources"] != sources or not given:
        raise ValueError(
            f"{final} is there already, from other text or with other options; give another --out, or remove it"
        )
    return about


@contextmanager
def _alone(part: Path) -> Iterator[None]:
    with (part / "lock").open("w") as file:
        try:
            lock(file.fileno())
        except OSError:
            raise ValueError(f"{part}: another process is preparing it; wait for it, or give another --out") from None
        yield


def _difference(before: dict[str, Any], asked: dict[str, Any], known: list[dict[str, Any]]) -> str:
    if before["inputs"] != known:
        return "other input files, or they have changed since"
    return ", ".join(f"{k} {v}, not {asked.get(k)}" for k, v in before["asked"].items() if v != asked.get(k))


def _load(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _json(data: Any) -> bytes:
    return (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode()
