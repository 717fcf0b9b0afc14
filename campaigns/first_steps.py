"""README's first steps from an empty environment, in both languages: each command, its exit code and its seconds.

    python -m campaigns.first_steps

A checkout without anything built, a new virtual environment for each README, torch's CPU build first, as README says.
Then README's own lines, in its order: those of its first block (an inspected checkpoint, a verified module), the lines
that install extras and draw pictures, and `ropewalk quickstart`, which ends with a report. The bar: ten minutes each.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import bars
from campaigns import pieces

READMES = ("README.md", "README.zh-CN.md")
SOURCES = READMES
LINES = re.compile(
    r'^\$ (pip install \.|pip install "\.\[(?:data|plot)\]"|ropewalk (?:inspect|verify|plot) .*)$', re.MULTILINE
)
REPORT = "ropewalk quickstart first --no-open"
FINDINGS = 1
"""Exit code of `inspect` where engines disagree, which is an answer."""
MINUTES = 10


def main() -> int:
    transcripts = {name: followed(name) for name in READMES}
    failures = [
        f"{name}: {step['command']}" for name, steps in transcripts.items() for step in steps if not step["answered"]
    ]
    times = {name: sum(step["seconds"] for step in steps) / 60 for name, steps in transcripts.items()}
    said = {
        "command": "python -m campaigns.first_steps",
        "bars": {
            "commands that gave no answer": bars.bar(len(failures), 0, at_least=False),
            **{f"{name}: minutes, at most": bars.bar(t, MINUTES, at_least=False) for name, t in times.items()},
        },
        "failures": failures,
        "transcripts": transcripts,
        "versions": bars.versions(()),
        "sources": pieces.digest(SOURCES),
    }
    pieces.keep(pieces.RESULTS / "first_steps.json", said)
    return bars.tell({"measured": {}} | said, as_json=False)


def commands(text: str) -> list[str]:
    """The first block's lines, and of those below the ones that install an extra or draw, each once."""
    start, rest = text.index("$ pip install ."), text.index("```", text.index("$ pip install ."))
    first = LINES.findall(text[start - 1 : rest])
    drawn = [line for line in LINES.findall(text[rest:]) if line.startswith(("pip", "ropewalk plot"))]
    return list(dict.fromkeys([*first, *drawn, REPORT]))


def followed(name: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="first-steps-") as folder:
        checkout, home = Path(folder) / "ropewalk", Path(folder) / "venv"
        subprocess.run(["git", "clone", "--quiet", str(pieces.REPOSITORY), str(checkout)], check=True)
        torch = next(line for line in (checkout / "constraints.txt").read_text().split() if line.startswith("torch=="))
        lines = [
            f"{sys.executable} -m venv {home}",
            f"pip install {torch}",
            *commands((checkout / name).read_text("utf-8")),
        ]
        ambient = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
        # A constraint in the environment: without it pip may replace torch's CPU build by another.
        ambient |= {"PATH": f"{home / 'bin'}:/usr/bin:/bin", "PIP_CONSTRAINT": str(checkout / "constraints.txt")}
        return [step(line, checkout, ambient, folder) for line in lines]


def step(line: str, checkout: Path, ambient: dict[str, str], folder: str) -> dict[str, Any]:
    print(line.replace(folder, "."), file=sys.stderr, flush=True)
    began = time.monotonic()
    done = subprocess.run(line, shell=True, cwd=checkout, env=ambient, capture_output=True, text=True, check=False)
    spent = round(time.monotonic() - began, 1)
    answered = done.returncode == 0 or (done.returncode == FINDINGS and "inspect" in line)
    shown = [] if line.startswith("pip") else [part.replace(folder, ".") for part in done.stdout.splitlines()[:3]]
    if not answered:
        print(done.stdout[-2000:] + done.stderr[-2000:], file=sys.stderr)
    command = line.replace(f"{sys.executable} -m venv {folder}/", "python3 -m venv ")
    return {"command": command, "code": done.returncode, "seconds": spent, "answered": answered, "shown": shown}


if __name__ == "__main__":
    sys.exit(main())
