"""The course: each claim is proved by tests that exist, in both languages, and names the line of code it is about."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.blocks import problems_of
from tests.test_site import script

course = script("course")
TESTS = course.all_tests(course.ROOT)
PAGES = {
    page.relative_to(course.ROOT).as_posix(): page.read_text(encoding="utf-8") for page in course.pages(course.ROOT)
}
CHAPTERS = [page for page in PAGES if page.startswith("docs/en/course/")]
CLAIM = """# Chapter

## Part

### One

Text.

<!-- claim: {} | phase.py | index.long() -->

Text that leads on.

## Another part
"""


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_what_the_script_writes(page: str) -> None:
    made = course.made(PAGES[page], page.split("/")[1], TESTS)
    assert made == PAGES[page], f"{page} is stale: run python scripts/course.py"


def test_every_test_of_the_articles_is_in_the_course() -> None:
    assert course.wrong(PAGES, TESTS) == []
    named = {name for page in CHAPTERS for names, _, _ in course.claims(PAGES[page]) for name in names}
    ours = {name for name, file in TESTS.items() if file.startswith("tests/articles/")}
    assert len(ours) > 100
    assert ours <= named


def test_every_claim_has_a_formula_or_is_an_erratum() -> None:
    for page in CHAPTERS:
        for part in course.SECTION.split(PAGES[page]):
            if part.startswith("### "):
                printed = re.search(r"^- Printed: .+\n- Right: .+$", part, re.MULTILINE)
                assert printed if page.endswith("errata.md") else re.search(r"^\$\$.+\$\$$", part, re.MULTILINE), part


def test_all_misprints_are_shown() -> None:
    for language in ("en", "zh"):
        text = PAGES[f"docs/{language}/course/errata.md"]
        assert re.findall(r"^### (\d+)\. ", text, re.MULTILINE) == [str(number) for number in range(1, 34)]
        assert len(re.findall(r"^- ", text.rpartition("\n## ")[2], re.MULTILINE)) == 4


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_claim_without_its_test_disappears(language: str) -> None:
    name = "test_attention_costs_the_square_of_the_length"
    page = PAGES[f"docs/{language}/course/attention.md"]
    made = course.made(page, language, {one: file for one, file in TESTS.items() if one != name})
    assert name in page
    assert name not in made
    assert len(course.claims(made)) == len(course.claims(page)) - 1
    assert made.count("\n### ") == page.count("\n### ") - 1
    assert made.splitlines()[-1] == page.splitlines()[-1]  # what leads on to the next chapter stays


def test_a_claim_of_two_tests_stays_with_one() -> None:
    made = course.made(CLAIM.format("test_gone test_rope_code_mask"), "en", TESTS)
    assert course.claims(made) == [(["test_rope_code_mask"], "phase.py", "index.long()")]
    assert "test_gone" not in made
    gone = course.made(CLAIM.format("test_gone"), "en", TESTS)
    assert gone == "# Chapter\n\n## Part\n\nText that leads on.\n\n## Another part\n"


def test_what_is_said_under_a_claim() -> None:
    made = course.made(CLAIM.format("test_rope_code_mask tests/test_phase.py::test_angle_in_float64"), "en", TESTS)
    assert "- Article: *解密旋转位置编码*, code\n" in made
    assert "[`phase.py`](../../../src/ropewalk/phase.py), `phase`, `return index.long()[..., None] * torch" in made
    assert "\n$ python -m pytest tests/articles/test_errata.py::test_rope_code_mask\n" in made
    assert "\n$ python -m pytest tests/test_phase.py::test_angle_in_float64\n" in made
    assert course.made(made, "en", TESTS) == made


def test_what_is_wrong_is_named() -> None:
    page = "docs/en/course/order.md"
    text = PAGES[page]
    first = course.CLAIM.search(text)
    said = course.wrong({**PAGES, page: text.replace(first[0], "")}, TESTS)
    assert said[0] == f"{page}: the section '### Without positions an encoder only reorders' has no claim, or two"
    assert said[1] == f"{page}: its claims are not those of docs/zh"
    assert said[2].startswith("tests/articles/test_why_positions.py::test_rope_an_encoder_without_positions_gives")
    assert said[2].endswith("is in no chapter of docs/en/course; put it in one")
    assert len(said) == 5
    twice = course.wrong({**PAGES, page: text + "\n### Again\n\n" + first[0]}, TESTS)
    assert any(one.endswith(f"is in {page}, {page}; put it in one") for one in twice)
    with pytest.raises(ValueError, match=r"src/ropewalk/phase.py has no line with 'no such words'"):
        course.made(CLAIM.format("test_rope_code_mask").replace("index.long()", "no such words"), "en", TESTS)


def test_the_code_of_encodings_and_scalings_runs(tmp_path: Path) -> None:
    texts = {page: text for page, text in PAGES.items() if re.match("docs/en/(?:encodings|scalings)/", page)}
    assert len(texts) >= 19
    assert problems_of(texts, tmp_path) == []


def kinds(folder: str) -> dict[str, str]:
    """The source of each kind of src/ropewalk/FOLDER, which is named for it."""
    files = (course.ROOT / "src" / "ropewalk" / folder).glob("*.py")
    sources = {file.stem: file.read_text(encoding="utf-8") for file in files}
    return {kind: text for kind, text in sources.items() if f'kind: Literal["{kind}"]' in text}


@pytest.mark.parametrize(("pages", "folder"), [("encodings", "encodings"), ("scalings", "scaling")])
def test_every_kind_has_its_page(pages: str, folder: str) -> None:
    found = {page.rpartition("/")[2].removesuffix(".md") for page in PAGES if page.startswith(f"docs/en/{pages}/")}
    assert found == set(kinds(folder))
    assert len(found) >= 7
    for kind, source in kinds(folder).items():
        text = PAGES[f"docs/en/{pages}/{kind}.md"]
        cited = set(re.findall(r"arXiv[: ](\d{4}\.\d{5})", source.partition("from __future__")[0]))
        assert set(re.findall(r"eprint = {([\d.]+)}", text)) == cited, kind
        assert re.search(r"^\$\$.+\$\$$", text, re.MULTILINE), f"{kind} has no equation"
        assert len(course.claims(text)) >= 2, kind
        assert "```python\n" in text, kind
        assert f"src/ropewalk/{folder}/{kind}.py)" in text, kind
