"""What users see: the public names, the command's entry point, the versions, and the examples of the documents."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import ropewalk

REPOSITORY = Path(__file__).parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))


def dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def test_all_is_sorted_without_repeats() -> None:
    assert list(ropewalk.__all__) == sorted(set(ropewalk.__all__))


def test_public_names_are_there() -> None:
    assert [name for name in ropewalk.__all__ if not hasattr(ropewalk, name)] == []


def test_dir_is_all() -> None:
    assert [name for name in dir(ropewalk) if not dunder(name)] == [n for n in ropewalk.__all__ if not dunder(n)]


def test_star_import_gives_all_and_nothing_else() -> None:
    code = "from ropewalk import *; print(*sorted(n for n in dir() if not (n.startswith('__') and n.endswith('__'))))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(REPOSITORY / 'src')!r})\ndel sys\n{code}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [name for name in ropewalk.__all__ if not dunder(name)]


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="RoPEE"):
        ropewalk.RoPEE  # noqa: B018


def test_every_encoding_has_a_row() -> None:
    rows = importlib.import_module("tests.encodings.rows").ROWS
    files = (REPOSITORY / "src" / "ropewalk" / "encodings").glob("*.py")
    kinds = {file.stem for file in files} - {"__init__", "absolute", "base", "find", "template"}
    missing = sorted(kinds - {row.kind for row in rows})
    assert not missing, f"give {', '.join(missing)} a row with its oracle in tests/encodings/rows.py"


def test_command_starts_what_is_there() -> None:
    module, _, attribute = PROJECT["project"]["scripts"]["ropewalk"].partition(":")
    assert callable(getattr(importlib.import_module(module), attribute))


def test_versions_agree() -> None:
    version = PROJECT["project"]["version"]
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert (ropewalk.__version__, citation["version"]) == (version, version)


def test_pins_agree() -> None:
    lines = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.lower().split("==") for line in lines if not line.startswith("#"))
    wanted = dict(line.split("==") for line in PROJECT["dependency-groups"]["dev"])
    assert {name: pinned.get(name) for name in wanted} == wanted
