"""One-line changes of our own sources, sampled, each run against the tests that run the line: which goes unnoticed?

    export OMP_NUM_THREADS=1
    python -m campaigns.source_mutants map   --state DIR   # which tests run which lines; 10 minutes
    python -m campaigns.source_mutants run   --state DIR [--minutes 25] [--shard 0/2] [--again] [--by TEST ...]
    python -m campaigns.source_mutants write --state DIR   # campaigns/results/source_mutants.json

A mutant changes one operator, number, condition or argument in the positions, phase, plan, scalings, encodings,
rotation and attention. Of the tests that run its line one of each function goes first, the quickest first, until FIRST
seconds of them have passed; a mutant that none has noticed is run at the end against those that run the fewest lines
beside it, up to LAST seconds. It is killed where a test fails that passes without it, or where the tests do not end.
Everything runs in a copy of the repository, in processes forked from one that has imported torch; DIR keeps what was
found, and the same command continues. Survivors that change no result are explained in source_mutants_explained.json.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks import bars
from campaigns import pieces
from campaigns.nearest_tests import FILES
from campaigns.one_line_changes import Mutant, is_python, mutants

SOURCES = tuple(f"src/ropewalk/{name}" for name in FILES)
RESULT = pieces.RESULTS / "source_mutants.json"
EXPLAINED = Path(__file__).with_name("source_mutants_explained.json")
COUNT = 1000
FIRST, LAST = 15.0, 60.0
"""Seconds of tests, as they took when they were mapped."""
FEW_FILES, FEW_TESTS = 2, 12
"""What a mutant meets first; most fall there."""
DECLARED = ("tests/encodings/test_bounds.py", "tests/encodings/test_starts.py")
"""Tests of what classes declare, bounds and first values: a line that runs when a file is imported is theirs."""
NO_TESTS = 5
"""Exit code of pytest where none of the tests is there any more."""
BY_NAME = 2
"""The stage of survivors that are run against the tests that are named: those that should notice them."""
PATIENCE = 5.0
"""Times as long as that, after which tests of a mutant are taken not to end."""
GROUPS = {
    "core": tuple(f"tests/test_{name}.py" for name in ("positions", "phase", "plan", "rotation", "answers")),
    **{name: (f"tests/{name}",) for name in ("scaling", "encodings", "attention", "nn", "articles", "models")},
}
COPIED = ("src", "tests", "benchmarks", "campaigns", "docs", "examples", "scripts", "pyproject.toml")
COPIED += ("README.md", "README.zh-CN.md", "CONTRIBUTING.md", "CHANGELOG.md")
FLAGS = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no", "--no-header", "-rfE")
# Some plugins were imported with transformers, before pytest could rewrite their assertions.
FLAGS += ("-W", "ignore::pytest.PytestAssertRewriteWarning")


def sampled(count: int) -> list[Mutant]:
    """The same ones every time: drawn over all files at once, so that long files have more."""
    source = pieces.REPOSITORY / "src" / "ropewalk"
    found = {}
    for name in FILES:
        path = source / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            found |= {mutant.key: mutant for mutant in mutants(file, str(file.relative_to(source)))}
    drawn = sorted(found.values(), key=lambda mutant: hashlib.sha256(mutant.key.encode()).digest())
    return list(islice((mutant for mutant in drawn if is_python(mutant, source / mutant.file)), count))


class Nearest:
    """The tests that ran each line, by the maps of this folder; lines that moved since are found by their text."""

    def __init__(self, state: Path) -> None:
        self.seconds: dict[str, float] = {}
        self.of: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.lines: dict[str, int] = defaultdict(int)
        """How many lines of all files each test runs: what runs few of them is about those."""
        for file in sorted(state.glob("map-*.json")):
            self._read(json.loads(file.read_text(encoding="utf-8")))
        for by_line in self.of.values():
            for tests in by_line.values():
                for test in tests:
                    self.lines[test] += 1

    def _read(self, found: dict[str, Any]) -> None:
        tests = found["tests"]
        self.seconds |= dict(zip(tests, found["seconds"], strict=True))
        for name, by_line in found["lines"].items():
            path = pieces.REPOSITORY / "src" / "ropewalk" / name
            if not path.exists():
                continue
            before, now = found["texts"][name].splitlines(), path.read_text(encoding="utf-8").splitlines()
            same = difflib.SequenceMatcher(None, before, now, autojunk=False).get_matching_blocks()
            for start, moved, size in same:
                for line in range(size):
                    self.of[name][moved + line + 1] |= {tests[n] for n in by_line.get(str(start + line + 1), ())}

    def tests(self, mutant: Mutant, seconds: float, *, nearest: bool = False) -> list[str]:
        """In the order to run them in: one of each function, then the second of each, the quickest first; or the
        nearest first, those that run the fewest lines beside this one."""
        lines = self.of[mutant.file]
        around = enclosing(mutant)
        if around is None:  # it runs when the file is imported, in whichever test comes first
            every = set().union(*lines.values()) | {test for test in self.seconds if test.startswith(DECLARED)}
        else:
            first, last = around
            every = lines.get(mutant.line) or set().union(*(lines[n] for n in range(first, last + 1) if n in lines))
            every = every or set().union(*lines.values())
        turn: dict[str, int] = defaultdict(int)
        placed = []
        for test in sorted(every, key=lambda test: (self.seconds[test], test)):
            function = test.partition("[")[0]
            placed.append((self.lines[test] if nearest else turn[function], self.seconds[test], test))
            turn[function] += 1
        chosen, spent = [], 0.0
        for _, took, test in sorted(placed):
            if chosen and spent + took > seconds:
                continue
            chosen.append(test)
            spent += took
        return chosen


@cache
def functions(name: str) -> list[tuple[int, int]]:
    text = (pieces.REPOSITORY / "src" / "ropewalk" / name).read_text(encoding="utf-8")
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    return [(node.lineno, node.end_lineno or node.lineno) for node in found]


def enclosing(mutant: Mutant) -> tuple[int, int] | None:
    """First and last line of the innermost function, if it is in one."""
    around = [ends for ends in functions(mutant.file) if ends[0] <= mutant.line <= ends[1]]
    return min(around, key=lambda ends: ends[1] - ends[0], default=None)


def quickest(tests: list[str]) -> list[str]:
    """The first of them that are in few files: to import and collect a file takes longer than most of its tests."""
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))[:FEW_FILES]
    return [test for test in tests if test.partition("::")[0] in files][:FEW_TESTS]


class Judge:
    """Runs tests in a copy of the repository, with one line changed."""

    def __init__(self, root: Path, nearest: Nearest) -> None:
        self.root, self.nearest = root, nearest
        self.trusted: dict[str, bool] = {}
        for part in COPIED:
            path = pieces.REPOSITORY / part
            if path.is_dir():
                shutil.copytree(path, root / part, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
            else:
                shutil.copy(path, root / part)

    def judge(self, mutant: Mutant, tests: list[str]) -> dict[str, Any]:
        began = time.monotonic()
        if not tests:
            return {"verdict": "survived", "by": "", "tests": 0, "seconds": 0.0}
        few = quickest(tests)
        verdict, by = self._changed(mutant, few)
        if verdict == "survived" and len(few) < len(tests):
            verdict, by = self._changed(mutant, [test for test in tests if test not in few])
        while verdict == "killed" and not self._trusted(next(test for test in tests if test.startswith(by))):
            # It fails without the change too, in this copy: not a test to judge by.
            tests = [test for test in tests if not test.startswith(by)]
            verdict, by = self._changed(mutant, tests) if tests else ("survived", "")
        spent = round(time.monotonic() - began, 1)
        return {"verdict": verdict, "by": by, "tests": len(tests), "seconds": spent}

    def _changed(self, mutant: Mutant, tests: list[str]) -> tuple[str, str]:
        file = self.root / "src" / "ropewalk" / mutant.file
        original = file.read_text(encoding="utf-8")
        lines = original.splitlines(keepends=True)
        old = lines[mutant.line - 1]
        lines[mutant.line - 1] = old[: len(old) - len(old.lstrip())] + mutant.after + "\n"
        try:
            file.write_text("".join(lines), encoding="utf-8")
            return self._run(tests)
        finally:
            file.write_text(original, encoding="utf-8")

    def _trusted(self, test: str) -> bool:
        if test not in self.trusted:
            self.trusted[test] = self._run([test])[0] == "survived"
        return self.trusted[test]

    def _run(self, tests: list[str]) -> tuple[str, str]:
        limit = 60 + PATIENCE * sum(self.nearest.seconds.get(test, 0.0) for test in tests)
        child = multiprocessing.get_context("fork").Process(target=_tests, args=(self.root, tests))
        child.start()
        child.join(limit)
        if child.exitcode is None:
            os.killpg(child.pid or 0, signal.SIGKILL)  # of this child alone: it began a session
            child.join()
            return "timeout", ""
        log = (self.root / "log").read_text(encoding="utf-8", errors="replace").splitlines()
        failed = [line.split(" ", 1)[1] for line in log if line.startswith(("FAILED ", "ERROR "))]
        if child.exitcode in (0, NO_TESTS):
            return "survived", ""
        if not failed:
            raise RuntimeError(f"exit code {child.exitcode} and no test that failed:\n" + "\n".join(log[-20:]))
        # "test - message"; a file that cannot be imported with the change stands for all its tests.
        return "killed", next((test for test in tests if failed[0].startswith(test)), failed[0].partition(" - ")[0])


def _tests(root: Path, tests: list[str]) -> None:
    os.setsid()
    os.chdir(root)
    with open(root / "log", "w", encoding="utf-8") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sys.path[:0] = [str(root / "src"), str(root)]
    os.environ["PYTHONPATH"] = f"{root / 'src'}:{root}"
    import pytest

    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    code = pytest.main([*FLAGS, *files], plugins=[_Chosen(tests)])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(code))


class _Chosen:
    """Of the tests that were collected these, in this order."""

    def __init__(self, tests: list[str]) -> None:
        self.place = {test: place for place, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = sorted((one for one in items if one.nodeid in self.place), key=lambda one: self.place[one.nodeid])


def run(state: Path, minutes: float, shard: tuple[int, int], count: int, again: bool, by: tuple[str, ...] = ()) -> None:
    import torch

    torch.set_num_threads(1)
    sys.dont_write_bytecode = True
    # What the tests import anyway and no mutant changes.
    import hypothesis  # noqa: F401
    import mpmath  # noqa: F401
    import transformers  # noqa: F401

    assert not any(name.partition(".")[0] == "ropewalk" for name in sys.modules), "it would not be the copy's"
    end = time.monotonic() + 60 * minutes
    every = [mutant for n, mutant in enumerate(sampled(count)) if n % shard[1] == shard[0]]
    nearest, said = Nearest(state), explained()
    judge = Judge(state / f"copy-{shard[0]}-of-{shard[1]}", nearest)
    named = [test for test in nearest.seconds if test.startswith(by)]
    for stage in range(BY_NAME + 1 if by else BY_NAME):
        for mutant in every:
            known = verdicts(state).get(mutant.key)
            if known is not None and (mutant.key in said or not _open(known, stage, mutant, again)):
                continue
            if time.monotonic() > end:
                return
            seconds = LAST if stage else FIRST
            tests = named if stage == BY_NAME else nearest.tests(mutant, seconds, nearest=stage > 0)
            found = judge.judge(mutant, tests)
            found |= {"key": mutant.key, "line": mutant.line, "stage": stage, "sources": stamp(mutant)}
            with (state / f"verdicts-{shard[0]}-of-{shard[1]}.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
            print(f"{found['verdict']:9} {found['seconds']:6.1f} s  {mutant.key}", flush=True)


def _open(known: dict[str, Any], stage: int, mutant: Mutant, again: bool) -> bool:
    """A killed mutant stays killed: tests are only added. A survivor meets more tests, and new ones where that is asked
    for; tests that did not end, which a busy machine does too, are run once more."""
    if known["verdict"] == "killed" or (known["verdict"] == "timeout" and stage == BY_NAME):
        return False
    return stage in (known["stage"] + 1, BY_NAME) or (again and known["sources"] != stamp(mutant))


@cache
def _digest(names: tuple[str, ...]) -> str:
    return pieces.digest(names)


def stamp(mutant: Mutant) -> str:
    """Of the file that is changed and of all tests."""
    return _digest((f"src/ropewalk/{mutant.file}", *(test for tests in GROUPS.values() for test in tests)))


def verdicts(state: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for file in sorted(state.glob("verdicts-*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            each = json.loads(line)
            before = found.get(each["key"])
            if before is None or before["verdict"] != "killed":
                found[each["key"]] = each
    return found


def map_tests(state: Path) -> None:
    for name, tests in GROUPS.items():
        out = state / f"map-{name}.json"
        if not out.exists():
            print(name, flush=True)
            environment = {**os.environ, "NEAREST_TESTS": str(out), "PYTHONPATH": "src"}
            command = [sys.executable, "-m", "pytest", "-p", "campaigns.nearest_tests", "-p", "no:xdist", "-q", *tests]
            subprocess.run(command, cwd=pieces.REPOSITORY, env=environment, check=False)


def explained() -> dict[str, str]:
    """Why a mutant that survived changes nothing that a test should see, by its key."""
    return json.loads(EXPLAINED.read_text(encoding="utf-8")) if EXPLAINED.exists() else {}


def write(state: Path, out: Path, count: int) -> dict[str, Any]:
    every, known, said = sampled(count), verdicts(state), explained()
    found = {mutant.key: known[mutant.key] for mutant in every if mutant.key in known}
    survived = [key for key, each in found.items() if each["verdict"] == "survived"]
    left = sorted(key for key in survived if key not in said)
    judged = {name: sum(each["verdict"] == name for each in found.values()) for name in ("killed", "timeout")}
    measured = {
        "sampled": len(every),
        "judged": len(found),
        **judged,
        "survived and explained": len(survived) - len(left),
        "survived": left,
    }
    result = {
        "command": "OMP_NUM_THREADS=1 python -m campaigns.source_mutants run --state DIR",
        "bars": {
            "mutants judged": bars.bar(len(found), len(every), at_least=True),
            "survivors without an explanation": bars.bar(len(left), 0, at_least=False),
        },
        "measured": measured,
        "explained": {key: said[key] for key in sorted(set(survived) & set(said))},
        "versions": bars.versions(()),
        "sources": pieces.digest(SOURCES),
        "found": {
            key: {name: each[name] for name in ("verdict", "by", "stage", "sources")} for key, each in found.items()
        },
    }
    pieces.keep(out, result)
    return result


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", choices=("map", "run", "write"))
    options.add_argument("--state", type=Path, required=True, help="the folder that keeps maps and verdicts")
    options.add_argument("--count", type=int, default=COUNT, help=f"mutants; {COUNT} unless given")
    options.add_argument("--minutes", type=float, default=25.0, help="no mutant is begun after this; 25 unless given")
    options.add_argument("--shard", default="0/1", help="0/2 and 1/2 are the halves of two processes")
    options.add_argument("--again", action="store_true", help="run survivors again whose file or tests have changed")
    options.add_argument("--by", nargs="+", default=(), help="tests, by how their names begin, for what still survives")
    options.add_argument("--out", type=Path, default=RESULT)
    given = options.parse_args()
    given.state.mkdir(parents=True, exist_ok=True)
    if given.what == "map":
        map_tests(given.state)
    elif given.what == "run":
        part, _, of = given.shard.partition("/")
        run(given.state.absolute(), given.minutes, (int(part), int(of)), given.count, given.again, tuple(given.by))
    else:
        return bars.tell(write(given.state, given.out, given.count), as_json=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
