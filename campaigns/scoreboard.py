"""Every library that is installed, run against every requirement: the scoreboard.

    python -m campaigns.scoreboard [LIBRARY...] [--peers DIRECTORY] [--page]

`ropewalk verify --library all`, each library in a process of its own, on one thread, for at most half an hour. Those
that cannot live in one environment with the rest may stand in DIRECTORY (pip install --no-deps --target DIRECTORY ...),
which is looked at only for what is not found otherwise. Named libraries are run and take the place of their old
columns; one that cannot be run keeps its last, which the page says. --page draws the page again, of the last result.
Writes campaigns/results/scoreboard.json and docs/scoreboard.html; the exit code is 1 if a library breaks what is not on
its list.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULT, PAGE = ROOT / "campaigns" / "results" / "scoreboard.json", ROOT / "docs" / "scoreboard.html"
SECONDS = 1800


def main() -> int:
    from ropewalk.report import scoreboard, scoreboard_page

    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("libraries", nargs="*", metavar="LIBRARY", help=", ".join(scoreboard.LIBRARIES))
    given.add_argument("--peers", metavar="DIRECTORY", help="where else libraries are looked for")
    given.add_argument("--page", action="store_true", help="only draw the page of the last result")
    given.add_argument("--one", metavar="OUT", help=argparse.SUPPRESS)
    asked = given.parse_args()
    if asked.one:
        return one(asked.libraries[0], Path(asked.one))
    before = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.is_file() else {"libraries": [], "not_run": {}}
    data = before
    if not asked.page:
        entries = {entry["library"]: entry for entry in before["libraries"]}
        not_run = dict(before["not_run"]) if asked.libraries else {}
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        for library in asked.libraries or scoreboard.LIBRARIES:
            found, why = run(library, asked.peers)
            not_run.pop(library, None)
            if found is None:
                last = entries.get(library)
                not_run[library] = f"{why}; shown as last measured, {last.get('date', before['date'])}" if last else why
            else:
                entries[library] = {**found, "date": date}
            print(scoreboard.said(found) if found else f"{library}: not run, {why}", flush=True)
            ordered = [entries[name] for name in scoreboard.LIBRARIES if name in entries]
            command = "python -m campaigns.scoreboard" + (" --peers DIRECTORY" if asked.peers else "")
            command = before.get("command", command) if asked.libraries else command
            data = scoreboard.board(ordered, date=date, command=command, not_run=not_run)
            # After each, so that a run that was ended keeps what it has.
            scoreboard_page.write(data, RESULT, PAGE)
    scoreboard_page.write(data, RESULT, PAGE)
    return 1 if scoreboard.unexpected(data) else 0


def one(library: str, out: Path) -> int:
    """In the process of one library."""
    import torch

    from ropewalk.report import scoreboard

    torch.set_num_threads(1)
    try:
        found: dict[str, Any] = scoreboard.gather(library)
    except ImportError as error:
        found = {"missing": str(error)}
    out.write_text(json.dumps(found), encoding="utf-8")
    return 0


def run(library: str, peers: str | None) -> tuple[dict[str, Any] | None, str]:
    """What it was found to be, or why it was not run."""
    why = ""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "found.json"
        for more in (None, peers) if peers else (None,):
            path = os.pathsep.join(part for part in (more, os.environ.get("PYTHONPATH")) if part)
            ambient = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
            command = [sys.executable, "-m", "campaigns.scoreboard", library, "--one", str(out)]
            try:
                done = subprocess.run(command, cwd=ROOT, env=ambient, capture_output=True, text=True, timeout=SECONDS)
            except subprocess.TimeoutExpired:
                return None, f"not done after {SECONDS} s"
            if done.returncode or not out.is_file():
                return None, f"ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}"
            found = json.loads(out.read_text(encoding="utf-8"))
            if "missing" not in found:
                return found, ""
            why = found["missing"]
    return None, why


if __name__ == "__main__":
    sys.exit(main())
