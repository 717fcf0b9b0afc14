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


@pytest.mark.parametrize("language", LONGEST)
def test_the_position_ids_of_a_padded_batch(language: str) -> None:
    """The expression for transformers, where a learned table has no row -1."""
    import torch

    import ropewalk as rw

    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])
    said = re.search(r"`position_ids = ([^`]+)`", read(language, "left-padding"))
    assert said is not None
    ids = eval(said[1], {"attention_mask": mask})  # noqa: S307, it is ours
    assert torch.equal(ids, rw.positions.masked(mask).index)


TYPES = {
    "Llama": "llama", "Mistral": "llama", "Granite": "granite", "Qwen": "qwen2", "Gemma": "gemma", "Phi": "phi3",
    "GPT-NeoX": "gpt_neox", "GPT-J": "gptj", "GLM-4": "glm4", "GLM-4.5": "glm4_moe", "Cohere": "cohere",
    "DeepSeek-V3": "deepseek_v3",
}  # fmt: skip
"""A GGUF file of Mistral is one of Llama's."""


@pytest.mark.parametrize("language", LONGEST)
@pytest.mark.parametrize(
    ("page", "mark", "count"), [("half-or-pairs", "GPT-NeoX", 9), ("permute-q-and-k", "Granite", 6)]
)
def test_the_layouts_that_are_named(page: str, mark: str, count: int, language: str) -> None:
    """Of weights on Hugging Face, and of the GGUF files made from them: the names stand before their layout."""
    from ropewalk.checkpoints.architectures.table import find

    bullet = next(each for each in re.split(r"^- ", read(language, page), flags=re.MULTILINE) if mark in each)
    said = re.split(r"`(half|pairs)`", bullet)
    found = 0
    for before, layout in zip(said[::2], said[1::2], strict=False):
        for name in re.findall(r"[A-Z][A-Za-z]+(?:-[A-Za-z\d.]*[A-Za-z\d])?", before):
            row = find(TYPES[name]) if name in TYPES else None
            if row is None:
                continue
            stored = row.layout if mark != "Granite" or row.gguf is None else row.gguf.layout or row.layout
            assert stored == layout, name
            found += 1
    assert found == count
