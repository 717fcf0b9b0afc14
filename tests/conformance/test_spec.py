"""The text and the suite cannot drift: every requirement has a check, under the same title, with the same bounds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ropewalk.conformance import spec
from ropewalk.conformance.checks import every

REQUIREMENTS, CHECKS = spec.requirements(), every()
GIVEN = [*(f"N{n:02}" for n in range(1, 14)), *(f"C{n:02}" for n in range(1, 41))]
IDS = [name for name in GIVEN if name not in spec.MERGED]


def test_the_text_and_the_suite_have_the_same_ids_in_the_same_order() -> None:
    assert list(REQUIREMENTS) == list(CHECKS) == IDS


@pytest.mark.parametrize("id", IDS)
def test_title_and_bounds_are_the_same_in_both(id: str) -> None:
    text, check = REQUIREMENTS[id], CHECKS[id]
    assert text.title == check.title
    assert sorted(text.bounds) == sorted(check.bounds)


@pytest.mark.parametrize("id", IDS)
def test_a_requirement_says_where_it_comes_from_and_what_its_bound_is(id: str) -> None:
    text = REQUIREMENTS[id]
    assert re.search(r"^Comes from: .*[\w/-]+#\d+", text.text, flags=re.MULTILINE), "no public issue is named"
    assert text.bound, "no line `Bound:`"
    assert text.bound == "none." or len(text.bound.split()) > 3, "a bound says where it comes from"


def test_each_requirement_has_its_anchor() -> None:
    anchors = re.findall(r'^<a id="(\w+)"></a>\n### ', spec.FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert anchors == [name.lower() for name in IDS]
    assert spec.page("C04").endswith("#c04")


def test_what_was_merged_says_into_what() -> None:
    text = spec.FILE.read_text(encoding="utf-8")
    rows = re.findall(r'^\| <a id="(\w+)"></a>(\w+) \| .+ \| \[(\w+)\]\(#(\w+)\) \|$', text, flags=re.MULTILINE)
    assert {name: into for _, name, into, _ in rows} == spec.MERGED
    assert all(anchor == name.lower() and link == into.lower() for anchor, name, into, link in rows)
    assert set(spec.MERGED.values()) <= set(IDS)


def test_the_version_is_the_date_in_the_text() -> None:
    assert spec.dated() == spec.VERSION


def test_needs_are_things_that_targets_offer() -> None:
    from ropewalk.conformance.target import OFFERS

    known = {*OFFERS, "angles", "rotation"}
    assert {name for check in CHECKS.values() for need in check.needs for name in need.split("|")} <= known


def test_drift_would_be_seen(tmp_path, monkeypatch) -> None:
    changed = spec.FILE.read_text(encoding="utf-8").replace("### C12 token-by-token", "### C12 streamed")
    changed = changed.replace("Bound: `3e-7` of the norm", "Bound: `3e-6` of the norm")
    (tmp_path / "spec.md").write_text(changed, encoding="utf-8")
    monkeypatch.setattr(spec, "FILE", tmp_path / "spec.md")
    read = spec.requirements.__wrapped__()
    assert read["C12"].title != CHECKS["C12"].title
    assert read["N05"].bounds != CHECKS["N05"].bounds


@pytest.mark.parametrize(("language", "file"), [("en", spec.FILE), ("zh", spec.CHINESE)])
def test_the_docs_have_the_text_as_it_is(language: str, file: Path) -> None:
    page = spec.FILE.parents[3] / "docs" / language / "conformance.md"
    assert page.read_text(encoding="utf-8") == file.read_text(encoding="utf-8")


def test_the_chinese_text_says_the_same() -> None:
    chinese = spec.requirements("zh")
    assert list(chinese) == list(REQUIREMENTS)
    for name, one in REQUIREMENTS.items():
        for mark in (r"`[^`\n]+`", r"[\w./-]+#\d+", r"arXiv \d+\.\d+", r"^    .*$", r"\d+e-\d+"):
            english, ours = (
                sorted(re.findall(mark, text, re.MULTILINE | re.ASCII)) for text in (one.text, chinese[name].text)
            )
            assert ours == english, f"{name}: {mark}"
        assert chinese[name].bounds == one.bounds, name
    assert spec.VERSION in spec.CHINESE.read_text(encoding="utf-8").partition("## ")[0]
