"""Campaigns about training cut short, in one process: python -m tests.train.campaigns_run FOLDER NAME=COUNT ...

Each runs as by its own command, so many trials of it, and leaves FOLDER/NAME.json; the imports are done once for all.
What breaks one is a failure in its file, and the next is begun.
"""

from __future__ import annotations

import json
import sys
import traceback
from importlib import import_module
from pathlib import Path

from campaigns import kills, pieces


def run(folder: Path, name: str, count: str) -> None:
    sys.argv = [name, "--out", str(folder / f"{name}.json")]
    if name == "kills":
        sys.argv += ["--kills", count, "--steps", "24", "--state", str(folder / "state")]
        kills.main()
        return
    module = import_module(f"campaigns.{name}")
    sys.argv += ["--count", count, "--piece", count]
    pieces.main(module.__doc__, name, module.piece, module.whole, trials=0, piece=0, sources=module.SOURCES)


if __name__ == "__main__":
    folder, *campaigns = sys.argv[1:]
    for name, _, count in (each.partition("=") for each in campaigns):
        try:
            run(Path(folder), name, count)
        except Exception:
            broken = {"trials": 0, "failures": [traceback.format_exc()]}
            (Path(folder) / f"{name}.json").write_text(json.dumps({"pieces": {"broken": broken}}), encoding="utf-8")
