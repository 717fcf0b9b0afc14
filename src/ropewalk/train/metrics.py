"""metrics.jsonl: one JSON object a line, appended as it happens. It is the record of a run; all else is made from it.

A run that was killed may have left half a line, and repeats the steps since its last checkpoint. `read` ignores the
first and keeps the last of the second.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ropewalk.outside import import_named

Tracker = Callable[[dict[str, Any]], None]


class Metrics:
    def __init__(self, path: Path, trackers: list[Tracker] | None = None) -> None:
        self.trackers = trackers or []
        torn = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
        self.file = path.open("a", encoding="utf-8")
        if torn:
            self.file.write("\n")

    def write(self, record: dict[str, Any]) -> None:
        # JSON has no infinity; a loss that is not finite is written as a word, which no reader takes for a number.
        plain = {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
        self.file.write(json.dumps(plain) + "\n")
        self.file.flush()
        for track in self.trackers:
            track(plain)

    def close(self) -> None:
        self.file.close()


def read(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Records by what they are (`train`, `valid`, `event`), each step once, in order."""
    found: dict[str, dict[Any, dict[str, Any]]] = {"train": {}, "valid": {}, "event": {}}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue  # half a line, left by a process that was killed
        kind = record.get("kind", "train")
        found[kind][number if kind == "event" else record["step"]] = record
    return {kind: [records[key] for key in sorted(records)] for kind, records in found.items()}


def tracker(name: str, run: str, recipe: dict[str, Any]) -> Tracker:
    """A tracker by name: `trackio`, or `my_pkg.module:make`, called with the run's name and recipe; what it returns is
    called with every record."""
    if name == "trackio":
        name = "ropewalk.train.track_trackio:make"
    module, _, made = name.partition(":")
    if not made:
        raise ValueError(f"train.track={name!r} is no tracker; write trackio, or my_pkg.module:make")
    return getattr(import_named(module), made)(run, recipe)
