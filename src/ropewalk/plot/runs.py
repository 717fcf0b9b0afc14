"""Folders of training runs as arguments: where their records are, and names that tell them apart."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any


def named_runs(thing: Any) -> list[tuple[str, Path]]:
    """The name and the metrics.jsonl of each run: the folder's name, with as many folders above it as it takes to
    tell it from the others."""
    given = [thing] if isinstance(thing, str | Path) else list(thing)
    files = [path / "metrics.jsonl" if path.is_dir() else path for path in map(Path, given)]
    if missing := [path for path, file in zip(given, files, strict=True) if not file.is_file()]:
        raise ValueError(f"{missing[0]}: no run there; name a folder that ropewalk train wrote")
    if twice := [file for file, times in Counter(file.resolve() for file in files).items() if times > 1]:
        raise ValueError(f"{twice[0]} is named twice; name each run once")
    beside = Counter(file.absolute().parent for file in files)
    folders = [
        folder.parts if beside[folder := file.absolute().parent] == 1 else file.absolute().parts for file in files
    ]
    names = [parts[-1] for parts in folders]
    for depth in range(2, max(map(len, folders), default=0) + 1):
        equal = {name for name, times in Counter(names).items() if times > 1}
        names = [
            "/".join(parts[-depth:]) if name in equal else name for name, parts in zip(names, folders, strict=True)
        ]
    return list(zip(names, files, strict=True))
