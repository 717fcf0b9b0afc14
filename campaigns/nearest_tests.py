"""Which tests run which lines, found once by running them: a pytest plugin, for campaigns.source_mutants.

    NEAREST_TESTS=map.json python -m pytest -p campaigns.nearest_tests tests/encodings ...

Writes {"tests": [names], "seconds": [of each], "lines": {file: {line: [numbers of tests]}}, "texts": {file: its text}}
of the files of src/ropewalk that FILES names. Lines that run only in a process of its own, or that a compiler traces
without running them, are not seen.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

FILES = ("positions.py", "phase.py", "plan.py", "scaling", "rotation", "encodings", "attention")
"""Below src/ropewalk: what is changed by the campaign."""
SOURCE = Path(__file__).parents[1] / "src" / "ropewalk"
SLOW = 60.0
"""Seconds after which a test is of no use here; it is not looked at in a mutant's run."""

lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
seconds: dict[str, float] = {}
failed: set[str] = set()
_names: dict[str, str | None] = {}


def name_of(path: str) -> str | None:
    """Below src/ropewalk, of a file that is changed by the campaign."""
    if path not in _names:
        file = Path(path)
        inside = file.is_relative_to(SOURCE)
        name = str(file.relative_to(SOURCE)) if inside else ""
        chosen = inside and (name in FILES or name.split("/")[0] in FILES)
        _names[path] = name if chosen else None
    return _names[path]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    test = item.nodeid

    def calls(frame: FrameType, _: str, __: Any) -> Any:
        name = name_of(frame.f_code.co_filename)
        if name is None:
            return None
        here = lines[name]

        def each(inner: FrameType, event: str, _: Any) -> Any:
            if event == "line":
                here[inner.f_lineno].add(test)
            return each

        return each

    began = time.monotonic()
    sys.settrace(calls)
    try:
        return (yield)
    finally:
        sys.settrace(None)
        seconds[test] = round(time.monotonic() - began, 3)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed or report.skipped:
        seconds.pop(report.nodeid, None)
        failed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    found = {test: took for test, took in seconds.items() if test not in failed and took < SLOW}
    numbered = sorted(found, key=found.__getitem__)
    number = {test: place for place, test in enumerate(numbered)}
    by_line = {
        file: {str(line): sorted(number[test] for test in tests if test in number) for line, tests in each.items()}
        for file, each in lines.items()
    }
    texts = {file: (SOURCE / file).read_text(encoding="utf-8") for file in by_line}
    said = {"tests": numbered, "seconds": [found[test] for test in numbered], "lines": by_line, "texts": texts}
    Path(os.environ["NEAREST_TESTS"]).write_text(json.dumps(said), encoding="utf-8")
