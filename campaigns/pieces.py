"""Campaigns of many trials, run in pieces: each is kept when it is done, so a run that was ended goes on where it was.

Every piece carries the digest of the sources it was run on. One that the result file already has, from the sources of
today, is not run again; one of other sources is left out. `--minutes` ends a run between two pieces; the same command
runs the rest. `python -m campaigns.stale` names results whose sources have changed since.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks import bars

REPOSITORY = Path(__file__).parents[1]
RESULTS = REPOSITORY / "campaigns" / "results"
UNFINISHED = 3

Piece = Callable[[int, int], dict[str, Any]]
Sum = Callable[[list[dict[str, Any]]], tuple[dict[str, Any], dict[str, Any]]]


def main(
    about: str | None, name: str, run: Piece, whole: Sum, *, trials: int, piece: int, sources: Iterable[str]
) -> int:
    """run(start, count) does trials start, start + 1, ...; whole(pieces) gives the bars and what was measured."""
    options = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=trials, help=f"trials; {trials} unless given")
    options.add_argument("--piece", type=int, default=piece, help=f"trials of a piece; {piece} unless given")
    options.add_argument("--minutes", type=float, default=25.0, help="no piece is begun after this; 25 unless given")
    options.add_argument("--out", type=Path, default=RESULTS / f"{name}.json", help="where pieces are kept")
    options.add_argument("--json", action="store_true", help="print the result as JSON")
    given = options.parse_args()
    command = f"OMP_NUM_THREADS=1 python -m campaigns.{name}"
    if (given.count, given.piece) != (trials, piece):
        command += f" --count {given.count} --piece {given.piece}"
    known = digest(sources)
    pieces = before(given.out, known)
    end = time.monotonic() + 60 * given.minutes
    for start in range(0, given.count, given.piece):
        count = min(given.piece, given.count - start)
        key = f"{start} to {start + count - 1}"
        if key not in pieces:
            if time.monotonic() > end:
                print(f"{key} and what follows is left; the same command goes on", file=sys.stderr)
                return UNFINISHED
            began = time.monotonic()
            pieces[key] = run(start, count) | {"sources": known}
            pieces[key]["seconds"] = round(time.monotonic() - began, 1)
            keep(given.out, result(command, pieces, whole, known))
        print(f"{key}: {len(pieces[key]['failures'])} failures", file=sys.stderr, flush=True)
    said = result(command, pieces, whole, known)
    return bars.tell(said, as_json=given.json)


def result(command: str, pieces: dict[str, Any], whole: Sum, known: str) -> dict[str, Any]:
    found, measured = whole(list(pieces.values()))
    return {
        "command": command,
        "bars": found,
        "measured": measured,
        "versions": bars.versions(()),
        "sources": known,
        "pieces": pieces,
    }


def digest(sources: Iterable[str]) -> str:
    """What the outcome depends on: files, and the Python files of folders."""
    found = hashlib.sha256()
    for source in sources:
        path = REPOSITORY / source
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            found.update(file.read_bytes())
    return found.hexdigest()[:16]


def before(out: Path, known: str) -> dict[str, Any]:
    if not out.exists():
        return {}
    found = json.loads(out.read_text(encoding="utf-8"))
    every = found.get("pieces", {})
    return {key: piece for key, piece in every.items() if piece.get("sources", found.get("sources")) == known}


def keep(out: Path, said: dict[str, Any]) -> None:
    partial = out.with_suffix(".part")
    partial.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
    os.replace(partial, out)


def summed(pieces: list[dict[str, Any]], key: str) -> int:
    return sum(piece[key] for piece in pieces)


def failures(pieces: list[dict[str, Any]]) -> int:
    return sum(len(piece["failures"]) for piece in pieces)
