"""The two READMEs: their commands say what is shown, they are equal in content, and every link of the documents leads
somewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.blocks import blocks, problems_of, steps

REPOSITORY = Path(__file__).parents[1]
ENGLISH, CHINESE = ((REPOSITORY / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh-CN.md"))
DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")])


def test_the_code_runs_and_prints_what_is_shown(tmp_path: Path) -> None:
    assert problems_of({"README.md": ENGLISH}, tmp_path) == []


def test_some_commands_are_tried() -> None:
    tried = {step["words"][1] for step in steps(ENGLISH) if step["shown"] and "words" in step}
    assert tried >= {"inspect", "verify"}


def test_both_languages_have_the_same_code() -> None:
    english, chinese = ([(each.language, each.code) for each in blocks(text)] for text in (ENGLISH, CHINESE))
    runs = [each for each in english if each[0]]
    assert [each for each in chinese if each[0]] == runs


def outside_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def links(text: str) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", outside_code(text))


def test_both_languages_have_the_same_parts() -> None:
    for mark in (r"^(#+) ", r"^(-) ", r"(`[^`]+`)", r"(\*\*)"):
        english, chinese = (re.findall(mark, outside_code(text), re.MULTILINE) for text in (ENGLISH, CHINESE))
        english = [each.replace("\n", " ") for each in english]
        assert sorted(chinese) == sorted(english), mark
    chinese = CHINESE.replace("(README.md)", "(README.zh-CN.md)").replace(".zh.", ".").replace("docs/zh", "docs/en")
    assert sorted(links(chinese)) == sorted(links(ENGLISH))


def tree(text: str) -> list[str]:
    block = text.partition("```\nsrc/ropewalk/\n")[2].partition("```")[0]
    return re.findall(r"^ *\S+", block, re.MULTILINE)


def test_the_tree_is_there() -> None:
    assert tree(CHINESE) == tree(ENGLISH)
    assert len(tree(ENGLISH)) > 10
    for line in tree(ENGLISH):
        place = REPOSITORY / "src" / "ropewalk" / line.strip() if line.startswith(" ") else REPOSITORY / line
        assert place.exists(), line


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_every_link_leads_somewhere(document: Path) -> None:
    for link in links(document.read_text(encoding="utf-8")):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        assert target.exists(), link
        if anchor:
            text = target.read_text(encoding="utf-8")
            titles = [
                re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
                for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
            ]
            assert anchor in titles or f'id="{anchor}"' in text, link


def articles(text: str) -> list[list[str]]:
    """The cells of the table of articles: concept, import, source, test."""
    rows = re.findall(r"^\|(.*)\|$", text, re.MULTILINE)
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    return [row[1:] for row in cells if len(row) == 5 and row[2].startswith("`rw.")]


def test_every_cell_of_the_table_of_articles_leads_somewhere() -> None:
    import ropewalk

    table = articles(ENGLISH)
    assert len(table) == len(articles(CHINESE)) >= 15
    for concept, name, source, test in table:
        found = ropewalk
        for part in name.strip("`").split(".")[1:]:
            found = getattr(found, part)
        assert (REPOSITORY / links(source)[0]).is_file(), concept
        function = re.match(r"\[(\w+)\]", test)
        assert function is not None, concept
        assert f"def {function[1]}(" in (REPOSITORY / links(test)[0]).read_text(encoding="utf-8"), concept


def test_what_is_said_of_exactness_was_measured() -> None:
    """In nats per token, means over documents; intervals stand in the file."""
    found = json.loads((REPOSITORY / "campaigns/results/exactness.json").read_text(encoding="utf-8"))
    cells = {name: cell for name, cell in found["measured"].items() if "as it is" in name and cell["documents"]}
    in_float32 = {name: cell for name, cell in cells.items() if "float32" in name}
    assert {name.split(",")[0] for name in in_float32} == {"smollm2", "tinyllama"}
    assert all(abs(cell["float32 from 0"]["added"]) < 1e-5 for cell in in_float32.values())
    for model, figure in (("smollm2", "1.0"), ("tinyllama", "1.4")):
        cast = in_float32[f"{model}, 2,048 tokens, as it is, float32"]["angles from 0"]
        assert cast["added"] > cast["within"], "an interval with 0 in it is no figure for a README"
        assert f"{cast['added']:.1f}" == figure
        assert all(f"{figure} " in text for text in (ENGLISH, CHINESE))
    far = in_float32["smollm2, 2,048 tokens, as it is, float32"]
    assert abs(far["float32 from 1,000,000"]["added"]) < 1e-3
    assert f"{far['float32 from 100,000,000']['added']:.1f}" == "1.5"
    assert "SmolLM2-135M 1.5 nats" in ENGLISH
    assert "SmolLM2-135M 每个词元的损失增加 1.5 nats" in CHINESE
    assert abs(far["exact from 100,000,000"]["added"]) < 1e-6
