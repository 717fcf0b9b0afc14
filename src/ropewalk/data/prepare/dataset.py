"""Text into tokens on disk: streaming, in bounded memory, and resumable to the same bytes.

    DIR.part/plan.json     what was asked; of each input its hash, its size and where to cut   (survey)
    DIR.part/tokenizer.json                                                                    (train, or copy)
    DIR.part/state.json    how far each file is, and the part that comes next                  (tokens)
    DIR.part/data.json     hashes of everything; then DIR.part becomes DIR                     (finish)

A run that is killed at any of these goes on from the last that is whole. A document is for evaluation by the hash of
its content, a pair by that of its source without case and spacing: the same text is never on both sides.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np

from ropewalk import crash
from ropewalk.data.layout import FORMAT, STREAMS, describe, file_hash, names, staging
from ropewalk.data.options import Options
from ropewalk.data.prepare import inputs, parts
from ropewalk.data.prepare.parts import Asked, grouped
from ropewalk.data.prepare.tokenizer import Words, train_tokenizer
from ropewalk.data.prepare.writer import Writer, replace, sync
from ropewalk.data.urls import Located, Remote, located, stamp
from ropewalk.system import lock
from ropewalk.trials.jobs import Workers, mapped

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
REMOTE_POINTS = ("prepare.shipped", "prepare.uploaded")
"""The same, where the output is on another machine."""
TOKENIZER_BYTES = 8 << 20
"""Of text that a tokenizer is trained on: of more, a part chosen by hash."""
NOTES = ("plan.json", "state.json", "lock")
"""Files that only a preparation in progress has."""
PLAN = 3
"""Of the plan's form: parts of another one are cut elsewhere."""
COMMIT_SECONDS = 5.0
"""Between two notes of how far it is. They name every file: one after each would take time quadratic in the files."""
SPLITS = ("train", "valid")

Progress = Callable[[str, int, int], None]
"""Told a stage, and bytes done of bytes to do."""


def prepare(
    files: Iterable[str | Path],
    out: str | Path,
    options: Options,
    progress: Progress | None = None,
    workers: Workers = Workers(),  # noqa: B008
) -> dict[str, Any]:
    """Prepares files into a directory; gives what its data.json says. One that is there already is left as it is.
    The bytes that are written are the same for any number of workers."""
    paths = inputs.files([located(file) for file in files], options.kind)
    final = located(out)
    part = staging(final)
    if (final / "data.json").is_file() if isinstance(final, Remote) else final.exists():
        return _already(final, paths, options)
    part.mkdir(parents=True, exist_ok=True)
    with _alone(part):
        # A tokenizer has threads for all cores of its own.
        alone = workers._replace(environment={"TOKENIZERS_PARALLELISM": "false", **workers.environment})
        run = _Run(part, final, paths, options, progress or (lambda *_: None), alone)
        if (part / "data.json").is_file() and not isinstance(final, Remote):
            _already(part, paths, options)  # killed on the last few lines of this
        else:
            run.survey()
            if not (part / "data.json").is_file():
                run.tokenizer()
                run.tokens()
                run.finish()
        if isinstance(final, Remote):
            _upload(part, final)
        else:
            for name in NOTES:
                (part / name).unlink(missing_ok=True)
            crash.here("prepare.cleaned")
            part.rename(final)
            sync(final.parent)
            crash.here("prepare.renamed")
    return describe(final)


class _Run:
    def __init__(
        self,
        part: Path,
        final: Located,
        paths: list[Located],
        options: Options,
        progress: Progress,
        workers: Workers,
    ) -> None:
        self.part, self.final, self.paths, self.options = part, final, paths, options
        self.progress, self.workers = progress, workers
        self.valid = options.valid
        self.surveyed: list[dict[str, Any]] = []
        self.state: dict[str, Any] = {}

    def survey(self) -> None:
        """Reads everything once: mistakes in line 9,000,000 are told before hours of work, not after them."""
        asked = self.options.model_dump()
        stats = [stamp(path) for path in self.paths]
        files = [str(path if isinstance(path, Remote) else path.resolve()) for path in self.paths]
        known = [{"file": file, "size": size, "time": at} for file, (size, at) in zip(files, stats, strict=True)]
        out = str(self.final) if isinstance(self.final, Remote) else None
        fresh: dict[str, Any] = {"plan": PLAN, "out": out, "asked": asked, "inputs": known, "found": []}
        before = _load(self.part / "plan.json") or fresh
        same = all(before.get(key) == fresh[key] for key in ("plan", "out", "asked", "inputs"))
        if not same and not (self.part / "state.json").is_file():
            # No token is written yet: what was asked for now is what is meant.
            (self.part / "tokenizer.json").unlink(missing_ok=True)
            before, same = fresh, True
        if not same:
            raise ValueError(
                f"{self.part} was begun with {_difference(before, fresh)}; "
                f"give the same again, or remove it to start anew: rm -r {self.part}"
            )
        self.surveyed = before["found"]
        first, noted = len(self.surveyed), time.monotonic()
        before_each = [0, *accumulate(size for size, _ in stats)]
        total = before_each[-1]

        def seen(further: int) -> None:
            self.progress("reading", min(before_each[len(self.surveyed)] + further, total), total)

        # A function cannot be sent to another process, which would have nobody to tell.
        size = parts.part_size(self.options, total)
        here = Asked(self.options, self.valid, size, seen=seen if self.workers.here else None)
        groups = grouped(self.paths[first:], [size for size, _ in stats[first:]], size)
        for found in mapped(parts.survey, here, groups, self.workers):
            self.surveyed += found
            seen(0)
            if time.monotonic() - noted >= COMMIT_SECONDS or len(self.surveyed) == len(self.paths):
                replace(self.part / "plan.json", _json({**before, "found": self.surveyed}))
                noted = time.monotonic()
                crash.here("prepare.survey")
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
        self.parts = parts.spans(self.paths, self.surveyed, size)

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
        self.source = path.read_text(encoding="utf-8")
        self.words = self._words(self.source)

    def _words(self, source: str) -> Words:
        return Words(source, self._where(), self.options.special())

    def _where(self) -> str:
        return self.options.tokenizer or str(self.part / "tokenizer.json")

    def _sample(self) -> Iterator[str]:
        share = TOKENIZER_BYTES / max(sum(found["bytes"] for found in self.surveyed), 1)
        asked = Asked(self.options, self.valid, share=share)
        return chain.from_iterable(mapped(parts.sample, asked, self.parts, self.workers))

    def tokens(self) -> None:
        """Parts are encoded by the workers and written by this process alone, in their order."""
        start: dict[str, Any] = {"part": 0, "bytes": {}, "files": {}, "sha256": {}}
        self.state = _load(self.part / "state.json") or start
        width = self.words.dtype.itemsize
        streams = [(split, stream) for split in SPLITS for stream in STREAMS[self.options.kind]]
        self.writers = {
            f"{split}/{stream}": Writer(
                self.part / split,
                stream,
                self.options.shard_tokens,
                self.state["files"].get(f"{split}/{stream}", []),
                width,
            )
            for split, stream in streams
        }
        total, noted = sum(found["bytes"] for found in self.surveyed), time.monotonic()
        asked = Asked(self.options, self.valid, tokenizer=self.source, where=self._where())
        for encoded in mapped(parts.encode, asked, self.parts[self.state["part"] :], self.workers):
            for name, found in encoded.items():
                self.writers[name].write(found.tokens, found.lengths)
                self.state["bytes"][name] = self.state["bytes"].get(name, 0) + found.text
            self.state["part"] += 1
            crash.here("prepare.chunk")
            self.progress("tokens", sum(self.state["bytes"].values()), total)
            if time.monotonic() - noted >= COMMIT_SECONDS or self.state["part"] == len(self.parts):
                self._commit()
                noted = time.monotonic()
        for writer in self.writers.values():
            writer.close()
        crash.here("prepare.tokens")

    def _commit(self) -> None:
        self.state["files"] = {name: writer.commit() for name, writer in self.writers.items()}
        ended = [
            (name, shard)
            for name, sizes in self.state["files"].items()
            for shard in range(len(self.state["sha256"].setdefault(name, [])), len(sizes) - 1)
        ]
        for name, shard in ended:
            self.state["sha256"][name].append([file_hash(file) for file in self._shard(name, shard)])
        replace(self.part / "state.json", _json(self.state))
        crash.here("prepare.state")
        self._ship()

    def _ship(self) -> None:
        """Shards that have ended go to another machine as they do: they need not all have room on this one."""
        if not isinstance(self.final, Remote):
            return
        for name, hashes in self.state["sha256"].items():
            for shard in range(len(hashes)):
                for file in self._shard(name, shard):
                    if file.is_file():
                        (self.final / str(file.relative_to(self.part))).upload(file)
                        crash.here("prepare.shipped")
                        file.unlink()

    def _shard(self, name: str, shard: int) -> list[Path]:
        split, stream = name.split("/")
        return [self.part / split / file for file in names(stream, shard)]

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
        about["threshold"] = self.valid
        replace(self.part / "data.json", _json(about))
        crash.here("prepare.manifest")

    def _described(self, split: str) -> dict[str, Any]:
        streams = {}
        for stream in STREAMS[self.options.kind]:
            name = f"{split}/{stream}"
            sizes = self.writers[name].sizes
            hashes = [*self.state["sha256"].get(name, [])]
            hashes += [[*map(file_hash, self._shard(name, shard))] for shard in range(len(hashes), len(sizes))]
            shards = [{**size, "sha256": found} for size, found in zip(sizes, hashes, strict=True)]
            text = self.state["bytes"].get(name, 0)
            streams[stream] = {"tokens": sum(size["tokens"] for size in sizes), "bytes": text, "shards": shards}
        documents = sum(size["documents"] for size in self.writers[f"{split}/{STREAMS[self.options.kind][0]}"].sizes)
        return {"documents": documents, "streams": streams}


def _upload(part: Path, final: Remote) -> None:
    """data.json is the last file to appear there: without it a directory is not complete."""
    for file in sorted(file for file in part.rglob("*") if file.is_file() and file.name not in (*NOTES, "data.json")):
        (final / str(file.relative_to(part))).upload(file)
    crash.here("prepare.uploaded")
    (final / "data.json").upload(part / "data.json")
    old = Path(f"{part}.old")
    shutil.rmtree(old, ignore_errors=True)
    part.rename(old)
    shutil.rmtree(old)


def _already(final: Located, paths: list[Located], options: Options) -> dict[str, Any]:
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


def _difference(before: dict[str, Any], fresh: dict[str, Any]) -> str:
    if before.get("plan") != PLAN:
        return "another version of ropewalk"
    if before["out"] != fresh["out"]:
        return f"--out {before['out'] or 'a local directory'}"
    if before["inputs"] != fresh["inputs"]:
        return "other input files, or they have changed since"
    asked = fresh["asked"]
    return ", ".join(f"{k} {v}, not {asked.get(k)}" for k, v in before["asked"].items() if v != asked.get(k))


def _load(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _json(data: Any) -> bytes:
    return (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode()
