"""A thousand bad files, each answered in words; and the judge itself, which must see what it is there to see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints.bad.bad_files import corpus, hand_made, mutant

REPOSITORY = Path(__file__).parents[3]


def python(*arguments: str) -> Any:
    """What a Python without this one's memory and threads prints, as JSON; files are answered in forks of it."""
    paths = [str(REPOSITORY / "src"), str(REPOSITORY)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_a_thousand_files_are_answered() -> None:
    found = python("-m", "tests.checkpoints.bad.bad_files_run", "--count", "1000")
    assert found["files"] == 1000
    assert found["failures"] == []
    assert sum(counts.get("valid", 0) for counts in found["groups"].values()) >= 26


def test_the_corpus_is_the_same_each_time() -> None:
    made = hand_made()
    assert len(made) >= 300
    assert sum(case.expected == "bad" for case in made) >= 250
    start = len(made) - 5
    first, again = (list(islice(corpus(start, 100), 100)) for _ in range(2))
    assert first[5:] == again[5:]
    assert first[5] == mutant(len(made))
    assert len({case.name for case in first}) == 100
    assert mutant(5000) != mutant(5000, seed=1)


JUDGED = """
import json, os, signal, socket, subprocess, tempfile, time
from pathlib import Path
from ropewalk.checkpoints.errors import BadInput
from tests.checkpoints.bad import bad_files_run as run
from tests.checkpoints.bad.bad_files import Case

hoard = []

def refuse(path):
    raise BadInput(path, "field", "is bad")

def raises(error):
    def entry(path):
        raise error
    return entry

ways = {
    "refuses": refuse,
    "takes": lambda path: None,
    "without a field": raises(BadInput("a.bin", "", "is bad")),
    "without the file": raises(BadInput("b", "field", "is bad")),
    "key error": raises(KeyError("a.bin")),
    "memory error": raises(MemoryError("a.bin")),
    "subclass of ValueError": raises(UnicodeDecodeError("utf-8", b"", 0, 1, "a.bin")),
    "system": lambda path: os.system("touch canary"),
    "subprocess": lambda path: subprocess.run(["true"]),
    "socket": lambda path: socket.socket(),
    "writes": lambda path: path.write_bytes(b""),
    "makes a directory": lambda path: (path.parent / "new").mkdir(),
    "runs text": lambda path: eval("1 + 1"),
    "changes the file unseen": lambda path: os.utime(str(path), (1, 1)),
    "sleeps": lambda path: time.sleep(0.5),
    "hangs": lambda path: time.sleep(60),
    "crashes": lambda path: os.abort(),
    "hoards": lambda path: hoard.append(bytearray(os.urandom(1) * 400_000_000)),
}
found = {}
for name, entry in ways.items():
    run.ENTRY_POINTS = {"it": entry}
    run.SECONDS, run.HANGS = (20.0, 30.0) if name == "hoards" else (0.3, 1.0)
    with tempfile.TemporaryDirectory() as scratch:
        for expected in ("bad", "valid"):
            case = Case(name, {"a.bin": b"x"}, expected, "a.bin", ("it",))
            found[f"{name}, {expected}"] = run.judge(case, Path(scratch)).verdict
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def judged() -> dict[str, str]:
    return python("-c", JUDGED)


@pytest.mark.parametrize(
    ("what", "verdict"),
    [
        ("refuses, bad", "refused"),
        ("refuses, valid", "refused, and valid"),
        ("takes, valid", "valid"),
        ("takes, bad", "accepted, and bad"),
        ("without a field, bad", "another error than a reader gives"),
        ("without the file, bad", "another error than a reader gives"),
        ("key error, bad", "another error than a reader gives"),
        ("memory error, bad", "another error than a reader gives"),
        ("subclass of ValueError, bad", "another error than a reader gives"),
        ("system, bad", "did what is forbidden"),
        ("subprocess, bad", "did what is forbidden"),
        ("socket, bad", "did what is forbidden"),
        ("writes, bad", "did what is forbidden"),
        ("makes a directory, bad", "did what is forbidden"),
        ("runs text, bad", "did what is forbidden"),
        ("changes the file unseen, bad", "did what is forbidden"),
        ("sleeps, valid", "slow"),
        ("hangs, bad", "ended by signal 9"),
        ("crashes, bad", "ended by signal 6"),
        ("hoards, valid", "large"),
    ],
)
def test_the_judge_sees(judged: dict[str, str], what: str, verdict: str) -> None:
    assert judged[what] == verdict
