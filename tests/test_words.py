"""Our own vocabulary: what CONTRIBUTING.md says not to write is nowhere in what people read."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
TABLE = REPOSITORY / "CONTRIBUTING.md"


def unwanted(text: str) -> dict[str, str]:
    """Each phrase in quotes of the column *not*, and the term to write instead."""
    lines = text.partition("## Vocabulary")[2].splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")]
    return {phrase: term for term, _, column, _ in rows for phrase in re.findall(r'"([^"]+)"', column)}


def prose(file: Path) -> Iterator[tuple[int, str]]:
    """Lines that people read, with their numbers: of Python only comments and strings."""
    text = file.read_text(encoding="utf-8")
    if file == TABLE:
        text = text.partition("## Vocabulary")[0]
    if file.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or tokenize.tok_name[token.type] in ("STRING", "FSTRING_MIDDLE"):
            yield from enumerate(token.string.splitlines(), token.start[0])


def read_by_people() -> list[Path]:
    found = [REPOSITORY / name for name in ("README.md", "README.zh-CN.md", "CONTRIBUTING.md")]
    found += [*(REPOSITORY / "docs").rglob("*.md")]
    for folder in ("src", "examples", "notebooks", "benchmarks", "campaigns", "scripts"):
        found += [file for end in ("*.py", "*.md", "*.yaml") for file in (REPOSITORY / folder).rglob(end)]
    return found


def found_in(file: Path, phrases: dict[str, str]) -> list[str]:
    one = re.compile(rf"\b({'|'.join(map(re.escape, sorted(phrases, key=len, reverse=True)))})\b", re.IGNORECASE)
    return [
        f"{file.relative_to(REPOSITORY) if file.is_relative_to(REPOSITORY) else file.name}:{line}: "
        f"{hit[0]!r}: write {phrases[hit[0].lower()]}"
        for line, text in prose(file)
        for hit in one.finditer(text)
    ]


def test_nothing_is_written_that_the_vocabulary_warns_of() -> None:
    phrases = unwanted(TABLE.read_text(encoding="utf-8"))
    assert len(phrases) > 20
    assert [hit for file in read_by_people() for hit in found_in(file, phrases)] == []


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("a.md", "fine\nthe gradient, on the way back\n", [2]),
        ("a.py", "coins = 1  # the coins\n", [1]),
        ("a.py", '"""One.\n\nMended since.\n"""\nmended = 2\n', [3]),
        ("a.py", "say(f'{a} is passed over')\n", [1]),
        ("a.py", "held_to = coins\n", []),
    ],
)
def test_an_unwanted_phrase_is_reported(tmp_path: Path, name: str, text: str, lines: list[int]) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    hits = found_in(tmp_path / name, unwanted(TABLE.read_text(encoding="utf-8")))
    assert [int(hit.split(":")[1]) for hit in hits] == lines
