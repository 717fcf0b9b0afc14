"""Every `ropewalk ...` that is written anywhere, in a page, a study or an error, names a command and its options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ropewalk.cli.main import app
from tests.cli.conftest import built

REPOSITORY = Path(__file__).parents[2]
PLACES = ("README.md", "README.zh-CN.md", "CONTRIBUTING.md", "docs/**/*.md", "studies/*.yaml", "examples/**/*")
PLACES += ("src/ropewalk/**/*.py", "src/ropewalk/**/*.yaml", "campaigns/*.py", "benchmarks/*.py", "scripts/*")
COMMAND = re.compile(r"(?<![\w./@-])ropewalk((?: [^\s`'\"|;&#<>\u3000-\uffef]+)+)")
OPTION = re.compile(r"--[a-z][a-z0-9-]*(?=$|[=\s),.:])")


def written() -> Iterator[tuple[str, list[str]]]:
    for place in PLACES:
        for file in sorted(REPOSITORY.glob(place)):
            if not file.is_file() or file.suffix in (".png", ".svg", ".pyc", ".ipynb"):
                continue
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                for found in COMMAND.finditer(line):
                    yield f"{file.relative_to(REPOSITORY)}:{number}", found[1].split()


def wrong(words: list[str]) -> str | None:
    """What is not there; None where the words are no command, or a right one."""
    command = built(app)
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    options = [found[0] for word in words if (found := OPTION.match(word))]
    if command.name == "ropewalk":
        return None  # a word of a sentence
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    unknown = [option for option in options if option not in {*known, "--help"}]
    return f"{command.name} has no {', '.join(unknown)}" if unknown else None


def test_written_commands_have_their_options() -> None:
    found = list(written())
    assert len(found) > 500
    assert [f"{where}: {said}" for where, words in found if (said := wrong(words))] == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("$ ropewalk data prepare text --valid 0.1", "prepare has no --valid"),
        ("`ropewalk train --resumed`", "train has no --resumed"),
        ("`ropewalk data prepare text --valid-fraction 0.1`", None),
        ("ropewalk is a library --that-is-all", None),
    ],
)
def test_what_is_reported(line: str, said: str | None) -> None:
    found = COMMAND.search(line)
    assert found
    assert wrong(found[1].split()) == said
