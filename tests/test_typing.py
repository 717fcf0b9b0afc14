"""What an editor sees: real types behind every public name, and an error where a name or an argument is misspelt."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import ropewalk
from ropewalk import encodings

REPOSITORY = Path(__file__).parents[1]
PROGRAM = REPOSITORY / "tests" / "user_program.py"


def for_checkers(module: Path) -> dict[str, str]:
    """The names that a file has for type checkers, each with the module it is from."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    froms = [node for node in block.body if isinstance(node, ast.ImportFrom) and node.module != "typing"]
    return {str(alias.asname): str(node.module) for node in froms for alias in node.names}


def test_checkers_see_the_public_names() -> None:
    home = ropewalk._HOME | dict.fromkeys(ropewalk._MODULES, "ropewalk")
    assert for_checkers(REPOSITORY / "src/ropewalk/__init__.py") == home


def test_checkers_see_every_encoding() -> None:
    found = {encodings.find(kind).__name__: f"ropewalk.encodings.{kind}" for kind in encodings.names()}
    assert for_checkers(REPOSITORY / "src/ropewalk/encodings/__init__.py") == found
    assert set(found) <= set(dir(encodings))


@pytest.mark.parametrize(
    ("owner", "name", "meant"),
    [
        (ropewalk, "RoPE", "ropewalk.encodings.RoPE"),
        (ropewalk, "Yarn", "ropewalk.scaling.YaRN"),
        (ropewalk, "Transfomer", "ropewalk.Transformer"),
        (encodings, "Rope", "RoPE"),
        (encodings, "Alibi", "ALiBi"),
    ],
)
def test_a_name_that_is_nearly_right_gets_a_hint(owner: object, name: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=rf"did you mean {meant}\?"):
        getattr(owner, name)


def test_a_checker_reads_a_users_program() -> None:
    """`assert_type` in the program fails where a type is Any; the lines marked wrong must be the only errors."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pyrefly", "check", "--output-format=json", "--search-path", REPOSITORY / "src"),
            *("--python-interpreter-path", sys.executable, PROGRAM),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lines = PROGRAM.read_text(encoding="utf-8").splitlines()
    wrong = [number for number, line in enumerate(lines, start=1) if "# wrong: " in line]
    errors = {error["line"]: error["description"] for error in json.loads(done.stdout)["errors"]}
    assert sorted(errors) == wrong, (errors, done.stderr)
