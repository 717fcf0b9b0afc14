"""The campaign of one-line changes: what it changes, and which tests it runs for a line that has moved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from campaigns import pieces, source_mutants
from campaigns.one_line_changes import Mutant, is_python, mutants

SOURCE = '''
def nearest(a: int = 3) -> int:
    """No 1 is changed here."""
    if a < 2:
        raise ValueError(f"{a} is below {1 + 1}")
    return min(a, -a) if a is not None else 0


def memory() -> int:
    return 1
'''
BEFORE = SOURCE.replace("\n", "\n# a line that is gone\n", 1)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "src" / "ropewalk").mkdir(parents=True)
    (tmp_path / "src" / "ropewalk" / "phase.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.setattr(pieces, "REPOSITORY", tmp_path)
    source_mutants.functions.cache_clear()
    return tmp_path


def test_what_is_changed(repository: Path) -> None:
    file = repository / "src" / "ropewalk" / "phase.py"
    found = [mutant for mutant in mutants(file, "phase.py") if is_python(mutant, file)]
    changes = {mutant.after for mutant in found}
    assert {
        "if a <= 2:",
        "if a < 3:",
        "if (not (a < 2)):",
        "return max(a, -a) if a is not None else 0",
        "return min(a, a) if a is not None else 0",
        "return min(a, -a) if a is not None else 1",
        "return min(a, -a) if a is None else 0",
    } <= changes | {change.replace("is  None", "is None") for change in changes}
    assert not [mutant for mutant in found if mutant.line in (2 + 1, 2 + 3, 2 + 8)], "docstring, message, memory"


def test_tests_of_a_line_that_moved_one_of_each_function_first(repository: Path) -> None:
    line = BEFORE.splitlines().index("    if a < 2:") + 1
    tests = ["t.py::one[a]", "t.py::one[b]", "t.py::two", "t.py::slow", "t.py::elsewhere"]
    by_line = {str(line): [0, 1, 2, 3], str(line + 2): [4]}
    said = {"tests": tests, "seconds": [0.1, 0.2, 3.0, 50.0, 0.1]}
    said |= {"lines": {"phase.py": by_line}, "texts": {"phase.py": BEFORE}}
    (repository / "map-core.json").write_text(json.dumps(said), encoding="utf-8")
    nearest = source_mutants.Nearest(repository)
    moved = Mutant("phase.py", line - 1, "if a < 2:", "if a <= 2:")
    assert nearest.tests(moved, 15.0) == ["t.py::one[a]", "t.py::two", "t.py::one[b]"]
    assert nearest.tests(moved, 0.0) == ["t.py::one[a]"], "never none"
    nearest.lines |= {"t.py::one[a]": 90, "t.py::one[b]": 80, "t.py::two": 3, "t.py::slow": 99}
    assert nearest.tests(moved, 15.0, nearest=True) == ["t.py::two", "t.py::one[b]", "t.py::one[a]"]
    # A line that no map knows has the tests of its function.
    assert set(nearest.tests(moved._replace(line=line), 100.0)) == set(tests)
