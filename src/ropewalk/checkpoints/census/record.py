"""The record of a census: DIR/record.jsonl, one line for each checkpoint and config, only ever appended to.

A checkpoint is in the state of its last line. A line is added where the state changed: other bytes, other rules, gone.
Who was asked in this pass is in pass.jsonl, which is removed when the pass is done, so the next run asks everybody
again. Lines of the record are written before those of the pass: a kill between the two asks again, finds the same
bytes, and adds nothing. A line that a kill cut is taken away before the next is written.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from ropewalk.checkpoints.census.fetch import NO_ANSWER
from ropewalk.checkpoints.errors import BadInput
from ropewalk.system import lock

RECORD, PASS, LIST, LOCK = "record.jsonl", "pass.jsonl", "list.txt", "lock"


class Known(NamedTuple):
    key: str
    """SHA-256 of the config, or the state of a checkpoint without one."""
    etag: str | None
    rules: str
    at: int
    """Where its last line begins."""


class Found(NamedTuple):
    """What a worker brings back of one checkpoint."""

    name: str
    answer: str
    """content, same (sent whole, and known), unchanged (304), or the state of one without a config."""
    key: str = ""
    etag: str | None = None
    row: dict[str, Any] | None = None
    retries: int = 0


class Record:
    """Of one folder, and this process's alone."""

    def __init__(self, folder: Path, rules: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.rules = folder, rules
        self._lock = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR)
        try:
            lock(self._lock)
        except BlockingIOError:
            os.close(self._lock)
            problem = "is in use by another census"
            raise BadInput(folder, "lock", problem, "wait until it is done, or give another --out") from None
        self.broken = 0
        """Lines of the record that are not JSON: a disk that lost them, never a kill."""
        self.known: dict[str, Known] = {}
        for at, line in _lines(folder / RECORD):
            one = _parsed(line)
            if one is None:
                self.broken += 1
            else:
                self.known[one["name"]] = Known(one["key"], one["etag"], one["rules"], at)
        self.asked: dict[str, tuple[str, int]] = {}
        for _, line in _lines(folder / PASS):
            if (one := _parsed(line, ("name", "answer", "retries"))) is not None:
                self.asked[one["name"]] = (one["answer"], one["retries"])
        self._record = (folder / RECORD).open("ab", buffering=0)
        self._pass = (folder / PASS).open("ab", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._record.close()
        self._pass.close()
        os.close(self._lock)

    def current(self, name: str) -> Known | None:
        """What is known by today's rules."""
        known = self.known.get(name)
        return known if known is not None and known.rules == self.rules else None

    def add(self, found: Sequence[Found]) -> None:
        """What was found is on the disk when this returns."""
        lines = bytearray()
        at = self._record.seek(0, os.SEEK_END)
        for one in found:
            if one.row is None:
                continue
            before = self.known.get(one.name)
            # A hub that does not answer takes nothing away from what it said before.
            if before is not None and (one.answer == NO_ANSWER or (before.key, before.rules) == (one.key, self.rules)):
                continue
            self.known[one.name] = Known(one.key, one.etag, self.rules, at + len(lines))
            said = {"name": one.name, "key": one.key, "etag": one.etag, "rules": self.rules, **one.row}
            lines += json.dumps(said, ensure_ascii=True, allow_nan=False).encode() + b"\n"
        _append(self._record, bytes(lines))
        self.asked |= {one.name: (one.answer, one.retries) for one in found}
        # Those who did not answer are asked again where this run does not come to its end.
        done = (
            {"name": one.name, "answer": one.answer, "retries": one.retries} for one in found if one.answer != NO_ANSWER
        )
        _append(self._pass, "".join(json.dumps(one) + "\n" for one in done).encode())

    def rows(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """The last line of each of these, in the order of the record; memory does not grow with it."""
        wanted = set(names)
        for at, line in _lines(self.folder / RECORD):
            one = _parsed(line)
            if one is not None and one["name"] in wanted and self.known[one["name"]].at == at:
                yield one

    def answers(self) -> dict[str, int]:
        """Of this pass: how many answered what, and how often one was asked again."""
        counts = Counter(answer for answer, _ in self.asked.values())
        return {**counts, "retries": sum(retries for _, retries in self.asked.values())}

    def end(self) -> None:
        """The pass is done, and the next run asks again."""
        for name in (LIST, PASS):
            (self.folder / name).unlink(missing_ok=True)


def _parsed(line: bytes, keys: tuple[str, ...] = ("name", "key", "etag", "rules")) -> dict[str, Any] | None:
    try:
        one = json.loads(line)
    except ValueError:
        return None
    return one if isinstance(one, dict) and one.keys() >= set(keys) else None


def _append(file: Any, data: bytes) -> None:
    if data:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
        os.fsync(file.fileno())


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """Each whole line and where it begins; what follows the last one was cut by a kill, and is taken away."""
    if not file.exists():
        return
    at = 0
    with file.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                break
            yield at, line
            at += len(line)
        else:
            return
    os.truncate(file, at)
