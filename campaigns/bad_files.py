"""Ten thousand bad files, each answered in words: the long form of tests/checkpoints/bad/test_bad_files.py.

    python -m campaigns.bad_files [--from 0] [--count 10000] [--piece 1000] [--json]

Pieces that campaigns/results/bad_files.json already has, from the same sources, are not run again; each is written when
it is done, so a run that was ended goes on where it was. The bars: no file that is answered wrongly, none that takes
more than 2 s, none that takes more than 75 MB and 1.1 times its size beyond a process that has imported the readers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks import bars

REPOSITORY = Path(__file__).parents[1]
RESULTS = REPOSITORY / "campaigns" / "results" / "bad_files.json"
COMMAND = "OMP_NUM_THREADS=1 python -m campaigns.bad_files"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--from", type=int, default=0, dest="start")
    options.add_argument("--count", type=int, default=10_000)
    options.add_argument("--piece", type=int, default=1000)
    options.add_argument("--json", action="store_true", help="print the result as JSON")
    given = options.parse_args()
    pieces = before()
    for start in range(given.start, given.start + given.count, given.piece):
        count = min(given.piece, given.start + given.count - start)
        name = f"{start} to {start + count - 1}"
        if name not in pieces:
            pieces[name] = in_a_process(start, count)
            keep(pieces)
        print(f"{name}: {len(pieces[name]['failures'])} failures", file=sys.stderr, flush=True)
    result = whole(pieces)
    return bars.tell(result, as_json=given.json)


def in_a_process(start: int, count: int) -> dict[str, Any]:
    """One piece, by a fresh process: each file is answered in a fork of it, and its memory counts."""
    import subprocess

    arguments = ["-m", "tests.checkpoints.bad.bad_files_run", "--from", str(start), "--count", str(count)]
    paths = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=REPOSITORY, stdout=subprocess.PIPE, check=False
    )
    return json.loads(done.stdout)


def sources() -> str:
    """What the answers depend on: the readers and the corpus."""
    digest = hashlib.sha256()
    for folder in ("src/ropewalk/checkpoints", "src/ropewalk/scaling", "tests/checkpoints"):
        for file in sorted((REPOSITORY / folder).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def commit() -> str:
    """Where these sources can be looked up; `-dirty` where they were changed since."""
    import subprocess

    asked = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    return subprocess.run(asked, cwd=REPOSITORY, capture_output=True, text=True, check=False).stdout.strip()


def before() -> dict[str, Any]:
    """The pieces that were run before, of these sources."""
    if not RESULTS.exists():
        return {}
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found["pieces"] if found.get("sources") == sources() else {}


def keep(pieces: dict[str, Any]) -> None:
    partial = RESULTS.with_suffix(".part")
    partial.write_text(json.dumps(whole(pieces), indent=2) + "\n", encoding="utf-8")
    partial.replace(RESULTS)


def whole(pieces: dict[str, Any]) -> dict[str, Any]:
    counts: dict[str, int] = {}
    for piece in pieces.values():
        for verdicts in piece["groups"].values():
            for verdict, number in verdicts.items():
                counts[verdict] = counts.get(verdict, 0) + number
    return {
        "command": COMMAND,
        "bars": {
            "files answered wrongly": bars.bar(
                sum(len(piece["failures"]) for piece in pieces.values()), 0, at_least=False
            ),
            "slowest answer, s": bars.bar(
                max(piece["slowest"]["seconds"] for piece in pieces.values()), 2.0, at_least=False
            ),
            "peak memory beyond the process and 1.1 times the file, MB": bars.bar(
                max(piece["largest"]["megabytes"] for piece in pieces.values()), 75.0, at_least=False
            ),
        },
        "measured": {
            "files": sum(piece["files"] for piece in pieces.values()),
            **counts,
            "the process itself, MB": max(piece["parent"]["megabytes"] for piece in pieces.values()),
        },
        "versions": bars.versions(("safetensors", "gguf", "numpy")),
        "sources": sources(),
        "commit": commit(),
        "pieces": pieces,
    }


if __name__ == "__main__":
    sys.exit(main())
