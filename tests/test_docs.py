"""The pages of docs: their code runs and says what is shown; both languages have the same code, headings and links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.blocks import ROOT, blocks, problems_of, steps

PAGES = sorted(path.relative_to(ROOT / "docs" / "en").as_posix() for path in (ROOT / "docs" / "en").rglob("*.md"))
NOT_RUN = {
    "cluster.md": 2, "compare.md": 3, "data.md": 5, "extend.md": 3, "index.md": 1, "inspect.md": 1, "lab.md": 1,
    "lengths.md": 3, "mutants.md": 1, "plot.md": 4, "scale.md": 1, "train.md": 7, "vectors.md": 2, "verify.md": 3,
}  # fmt: skip
"""Blocks that need a real model, a network or minutes: each has its reason in the page, in a comment."""


def read(language: str, page: str) -> str:
    path = ROOT / "docs" / language / page
    assert path.exists(), f"docs/{language}/{page} is missing"
    return path.read_text(encoding="utf-8")


TOGETHER = ("howto/", "encodings/", "scalings/")
"""Folders of short pages: test_howto.py and test_course.py run those of a folder in one process."""


@pytest.mark.parametrize("page", [page for page in PAGES if steps(read("en", page)) and not page.startswith(TOGETHER)])
def test_the_code_of_a_page_runs(page: str, tmp_path: Path) -> None:
    assert problems_of({f"docs/en/{page}": read("en", page)}, tmp_path) == []


def test_blocks_that_are_not_run_are_counted() -> None:
    found = {page: [block for block in blocks(read("en", page)) if block.skipped] for page in PAGES}
    assert {page: len(each) for page, each in found.items() if each} == NOT_RUN
    for page in PAGES:
        for block in blocks(read("en", page)):
            runs = block.language == "python" or re.search(r"^\$ (ropewalk|pip|python)", block.code, re.MULTILINE)
            assert block.skipped or block.language != "console" or runs, (
                f"docs/en/{page}:{block.line} is not run, nor marked"
            )


BROKEN = """# Page

```python
x = 1
```

```console
$ ropewalk list scalings
no such scaling
```

text

```python
y = 2
raise KeyError(x)
```

```python
print(1)
```

```text
1
```

```python
print(2)
print(3)
```

```text
2
...
4
```
"""


def test_a_broken_block_is_reported_with_file_and_line(tmp_path: Path) -> None:
    said = problems_of({"docs/en/page.md": BROKEN}, tmp_path)
    assert [one.partition("\n")[0] for one in said] == [
        "docs/en/page.md:8: it says something else",
        "docs/en/page.md:15: exit code 1, not 0",
        "docs/en/page.md:28: it says something else",
    ]
    assert 'File "docs/en/page.md", line 16' in said[1]


@pytest.mark.parametrize("page", PAGES)
def test_both_languages_have_the_same_code(page: str) -> None:
    english, chinese = (blocks(read(language, page)) for language in ("en", "zh"))
    for one, other in zip(english, chinese, strict=False):
        assert (other.language, other.code) == (one.language, one.code), f"docs/zh/{page}:{other.line}"
    assert len(chinese) == len(english), f"docs/zh/{page}"


@pytest.mark.parametrize("page", PAGES)
def test_both_languages_have_the_same_parts(page: str) -> None:
    def parts(language: str) -> dict[str, list[str]]:
        text = re.sub(r"^```.*?^```$", "", read(language, page), flags=re.MULTILINE | re.DOTALL)
        found = {
            mark: re.findall(mark, text, re.MULTILINE)
            for mark in (r"^#+ ", r"^\|", r"^ *(?:-|\d\.) ", r"<a id=\"\w+\">")
        }
        found["code"] = sorted(" ".join(each.split()) for each in re.findall(r"`[^`]+`", text))
        found["formulas"] = sorted(re.findall(r"\${1,2}[^$]+\${1,2}", text))
        # The titles of the two differ, and with them what stands after a #.
        found["links"] = sorted(each.replace(".zh.", ".") for each in re.findall(r"\]\(([^)#\s]*)[^)\s]*\)", text))
        return found

    english, chinese = parts("en"), parts("zh")
    for mark, each in english.items():
        assert chinese[mark] == each, f"docs/zh/{page}: {mark}"
