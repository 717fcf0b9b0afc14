"""The how-to pages: a question, its answer at once, a command that shows it, public threads, and where to read on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.blocks import ROOT, problems_of, steps

PAGES = sorted(path.stem for path in (ROOT / "docs" / "en" / "howto").glob("*.md") if path.stem != "index")
LONGEST = {"en": 40, "zh": 80}
"""Words of an answer; in Chinese characters, where a name or a number counts as one."""


def read(language: str, page: str) -> str:
    return (ROOT / "docs" / language / "howto" / f"{page}.md").read_text(encoding="utf-8")


def words(text: str, language: str) -> list[str]:
    word = r"[\w`'*./+-]*\w[\w`'*./+-]*"
    if language == "en":
        return re.findall(word, text)
    return re.findall(r"[\u4e00-\u9fff]|[^\W\u4e00-\u9fff]+(?:[._+,-][^\W\u4e00-\u9fff]+)*", text)


def test_the_code_of_all_pages_runs(tmp_path: Path) -> None:
    """In one process, since each would import torch."""
    texts = {f"docs/en/howto/{page}.md": read("en", page) for page in PAGES}
    assert problems_of(texts, tmp_path) == []


def test_words_are_counted() -> None:
    assert words("A factor of `rope_theta` is 1.5, not i + d/2.", "en") == [
        "A", "factor", "of", "`rope_theta`", "is", "1.5", "not", "i", "d/2.",
    ]  # fmt: skip
    assert words("因子 `rope_theta`: 即 131,072", "zh") == ["因", "子", "rope_theta", "即", "131,072"]


@pytest.mark.parametrize("language", LONGEST)
@pytest.mark.parametrize("page", PAGES)
def test_the_answer_stands_first(page: str, language: str) -> None:
    title, answer, *_ = read(language, page).split("\n\n")
    assert re.fullmatch(r"# .*[?\uff1f]", title), f"the title of docs/{language}/howto/{page}.md is no question"
    found = len(words(answer, language))
    assert found <= LONGEST[language], f"docs/{language}/howto/{page}.md answers in {found} words"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_and_links(page: str) -> None:
    text = read("en", page)
    assert any(step["shown"] for step in steps(text)), "no command or Python with its output"
    assert "<!-- not run" not in text
    check, why, threads, more = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert (check, why, threads, more) == ("Check it", "Why", "Threads", "Read on")
    linked = text.partition("## Threads")[2].partition("## Read on")
    assert re.search(r"\]\(https://github\.com/[\w.-]+/[\w.-]+/(?:issues|pull|discussions)/\d+\)", linked[0])
    assert re.search(r"\]\((?!https)", linked[2])


@pytest.mark.parametrize("language", LONGEST)
def test_the_index_has_every_question(language: str) -> None:
    listed = dict(re.findall(r"^- \[(.*)\]\(([\w-]+)\.md\)$", read(language, "index"), re.MULTILINE))
    assert {name: title for title, name in listed.items()} == {
        page: read(language, page).partition("\n")[0].removeprefix("# ") for page in PAGES
    }
