"""The reference is what the help texts, the schema and the docstrings say today."""

from __future__ import annotations

import pytest

import ropewalk
from scripts import reference


def test_the_committed_pages_are_up_to_date() -> None:
    for page, text in reference.pages().items():
        place = page.relative_to(reference.ROOT)
        assert page.read_text(encoding="utf-8") == text, f"{place}: run python scripts/reference.py"


def test_everything_is_there() -> None:
    made = {(page.parts[-3], page.stem): text for page, text in reference.pages().items()}
    for name in ropewalk.__all__:
        assert f"\n## {name}\n" in made["en", "python"]
    for command in ("inspect", "data prepare", "config schema"):
        assert f"\n## ropewalk {command}\n" in made["zh", "commands"]
        assert f"Usage: ropewalk {command} [OPTIONS]" in made["zh", "commands"]
    assert "\n  --help " not in made["en", "commands"]  # -h is one of its names
    assert "annotated type" not in made["en", "python"]  # the docstring of Python's own Annotated
    assert "| `every` | integer, null |  | Steps; unless given ten times in a run" in made["en", "recipe"]
    assert "\n## train.optimizer: muon\n" in made["zh", "recipe"]


def test_a_command_without_chinese_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(reference.WORDS["commands"], "eval")
    with pytest.raises(SystemExit, match=r"docs/reference.yaml, commands: eval has no Chinese sentence"):
        reference.commands("zh")
