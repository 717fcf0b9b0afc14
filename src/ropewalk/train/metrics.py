"""metrics.jsonl: one JSON object a line, appended as it happens. It is the record of a run; all else is made from it.

A run that was killed may have left half a line, and repeats the steps since its last checkpoint. `read` ignores the
first and keeps the last of the second.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ropewalk.outside import import_named
from ropewalk.system import tell

Tracker = Callable[[dict[str, Any]], None]


class Metrics:
    def __init__(self, path: Path, trackers: list[Tracker] | None = None) -> None:
        self.trackers = trackers or []
        self.path, self.failing = path, False
        torn = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
        self.file = path.open("ab", buffering=0)
        self.unwritten = b"\n" if torn else b""

    def write(self, record: dict[str, Any]) -> None:
        # JSON has no infinity; a loss that is not finite is written as a word, which no reader takes for a number.
        plain = {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
        self.unwritten += json.dumps(plain).encode() + b"\n"
        self._flush()
        for track in self.trackers:
            track(plain)

    def _flush(self) -> None:
        """What a full disk does not take is kept for the next time: a run does not end for its record."""
        try:
            while self.unwritten:
                self.unwritten = self.unwritten[self.file.write(self.unwritten) :]
            self.failing = False
        except OSError as error:
            if not self.failing:
                tell(f"{self.path}: {error.strerror}; records are kept in memory until there is room")
            self.failing = True

    def close(self) -> None:
        self._flush()
        if self.unwritten:
            tell(f"{self.path}: the last {self.unwritten.count(10)} records are lost")
        self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def read(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Records by what they are (`train`, `valid`, `event`, `sample`), each step once, in order."""
    found: dict[str, dict[Any, dict[str, Any]]] = {"train": {}, "valid": {}, "event": {}, "sample": {}}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue  # half a line, left by a process that was killed
        kind = record.get("kind", "train")
        found[kind][number if kind == "event" else record["step"]] = record
    return {kind: [records[key] for key in sorted(records)] for kind, records in found.items()}


def numbers(record: dict[str, Any]) -> dict[str, float]:
    """What of a record a tracker draws, without its step; `valid/` stands before measurements."""
    prefix = "valid/" if record.get("kind") == "valid" else ""
    found = {key: value for key, value in record.items() if isinstance(value, (int, float)) and key != "step"}
    return {prefix + key: value for key, value in found.items()}


def tracker(name: str, run: str, recipe: dict[str, Any]) -> Tracker:
    """A tracker by name: `trackio`, `wandb`, or `my_pkg.module:make`, called with the run's name and recipe; what it
    returns is called with every record."""
    if name in ("trackio", "wandb"):
        name = f"ropewalk.train.track_{name}:make"
    module, _, made = name.partition(":")
    if not made:
        raise ValueError(f"train.track={name!r} is no tracker; write trackio, wandb, or my_pkg.module:make")
    return getattr(import_named(module), made)(run, recipe)
