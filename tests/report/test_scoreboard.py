"""The scoreboard: what a cell counts, and a page that stands alone and escapes whatever it is given."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ropewalk.conformance import spec
from ropewalk.report import scoreboard, scoreboard_page
from tests.report.reading import Page, shown, stands_alone

ISSUE, CHANGE = "https://github.com/a/b/issues/1", "https://github.com/a/b/pull/2"
NASTY = "<script>alert('x')</script>\"&"


def result(id: str, status: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "status": status, **more}


def entry(library: str, *results: list[dict[str, Any]], version: str = "1.0") -> dict[str, Any]:
    targets = [{"short": f"t{n}", "says": f"target {n}", "results": each} for n, each in enumerate(results)]
    return {"library": library, "version": version, "seconds": 1.5, "targets": targets}


BROKEN = {"measured": 1.94, "bound": 2.5e-7, "first_position": 257, "what": "angles", "why": "rounded", "unit": "rad"}


@pytest.fixture
def data() -> dict[str, Any]:
    mine = entry(
        "mine",
        [
            result("N01", "passed", measured=0.0, bound=1e-6),
            result("C12", "passed", bound=1e-5),
            result("C32", "passed"),
        ],
        [result("N01", "not applicable")],
    )
    theirs = entry(
        "theirs",
        [result("N01", "expected", cause="rounded", **BROKEN)],
        [result("N01", "failed", reproduction="x\ny", **BROKEN), result("C12", "passed", bound=1e-5, fixed=True)],
        [result("N01", "passed", bound=1e-6), result("C20", "float32", within=7.6e-3, **BROKEN)],
    )  # fmt: skip
    cause = {"id": "rounded", "reason": "why not", "issue": ISSUE, "introduced": CHANGE, "explains": {"N01": ["t0"]}}
    theirs["causes"] = [{**cause, "reproduction": 'print("expected: 1")\n'}]
    return {
        "date": "2026-11-15",
        "command": "python -m campaigns.scoreboard",
        "spec": "2026-11-15",
        "python": "3.11",
        "torch": "2.13",
        "machine": "x86_64",
        "requirements": [
            {"id": "N01", "title": "angles", "page": "docs/en/conformance.md#n01"},
            {"id": "C12", "title": "decoding"},
            {"id": "C20", "title": "w"},
            {"id": "C32", "title": "reported"},
        ],
        "libraries": [mine, theirs],
        "not_run": {"absent": "pip install absent"},
    }


def test_a_cell_counts_targets(data: dict[str, Any]) -> None:
    mine, theirs = data["libraries"]
    found = scoreboard.cell(theirs, "N01")
    assert (found["state"], len(found["failed"]), found["apply"]) == ("failed", 2, 3)
    assert scoreboard.cell(mine, "N01")["state"] == "passed"
    assert scoreboard.cell(theirs, "C12")["state"] == "fixed"
    assert scoreboard.cell(mine, "C20")["state"] == "none"
    assert scoreboard.cell(mine, "C32")["state"] == "none", "what has no bound does not pass"
    assert scoreboard.cell(theirs, "C20")["state"] == "float32"
    assert scoreboard.table(data)[1][2] == ["C20", "-", "float32 1/1"]


def test_the_page_shows_every_red_cell(data: dict[str, Any]) -> None:
    text = scoreboard_page.page(data)
    page = Page(text)
    assert "2/3" in text
    seen = shown(text, "en")
    assert "exceeded from position 257" in seen
    assert "1.94 rad (bound 2.5e-07)" in seen
    assert "<pre>x\ny</pre>" in text
    assert "why not" in text
    assert "print(&quot;expected: 1&quot;)" in text
    assert "0.0076 rad below position 131,072; largest 1.94 rad" in seen
    assert "自位置 257 起超出" in shown(text, "zh-CN")
    assert "1 of 2 libraries fail at least one requirement. Causes found: 1." in seen
    assert "Failures without a known cause: 1." in seen
    assert seen.index("why not") < seen.index("All results"), "what is broken stands first"
    assert 'href="en/conformance.md#n01"' in text
    assert text.count("why not") == 1, "a cause is stated once"
    # A browser opens the details around what a link leads to, not the details itself.
    assert "<details id=" not in text
    assert "pip install absent" in text
    ids = {attributes.get("id") for _, attributes in page.tags}
    inner = [link["href"] or "" for link in page.all("a") if (link["href"] or "").startswith("#")]
    assert inner
    assert {link[1:] for link in inner} <= ids
    assert {ISSUE, CHANGE} <= {link["href"] for link in page.all("a")}


def test_it_stands_alone(data: dict[str, Any]) -> None:
    stands_alone(scoreboard_page.page(data))


def test_every_cause_and_requirement_is_told_in_both_languages(request: pytest.FixtureRequest) -> None:
    kept = json.loads((request.config.rootpath / "campaigns/results/scoreboard.json").read_text(encoding="utf-8"))
    causes, titles = scoreboard_page.words.table("causes"), spec.requirements("zh")
    named = {(entry["library"], cause["id"]) for entry in kept["libraries"] for cause in entry.get("causes", ())}
    assert named == {(library, name) for library, each in causes.items() for name in each}
    assert all(set(told) == {"en", "zh", "reason"} for each in causes.values() for told in each.values())
    assert {one["id"] for one in kept["requirements"]} <= set(titles)


def test_everything_is_escaped(data: dict[str, Any]) -> None:
    def spoilt(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: spoilt(each) for key, each in value.items()}
        if isinstance(value, list):
            return [spoilt(each) for each in value]
        return (
            NASTY
            if isinstance(value, str) and value not in ("passed", "float32", "failed", "expected", "not applicable")
            else value
        )

    ids = {one["id"] for one in data["requirements"]}
    text = scoreboard_page.page(spoilt(data))
    assert ids
    assert text.count("<script") == 1, "that of the page itself"
    assert NASTY not in text
    for bad in ("javascript:alert(1)", 'https://x"><script>', "http://plain"):
        data["libraries"][1]["causes"][0]["issue"] = bad
        assert scoreboard_page.page(data).count("<script") == 1
        assert not any(
            (link["href"] or "").startswith(("javascript", "http:"))
            for link in Page(scoreboard_page.page(data)).all("a")
        )


def test_gathering_our_own() -> None:
    found = scoreboard.gather("ropewalk", only="C23,C25")
    assert json.loads(json.dumps(found)) == found
    assert {target["short"] for target in found["targets"]} == set(scoreboard.OURS)
    assert scoreboard.cell(found, "C23")["state"] == scoreboard.cell(found, "C25")["state"] == "passed"
    whole = scoreboard.board([found], date="2026-11-15", command="x", not_run={})
    assert {"N01", "C34"} <= {one["id"] for one in whole["requirements"]}
    assert scoreboard_page.page(whole).startswith("<!doctype html>")


def test_a_result_is_cut_to_what_is_needed() -> None:
    whole = {
        "id": "C29", "title": "compile", "status": "expected", "measured": 0.0, "bound": 1e-6, "unit": "", "at": None,
        "first_position": 0, "what": "8 tokens", "why": "raised at /home/me/v/lib/site-packages/lib/file.py, line 3",
        "reproduction": "x", "page": "docs", "seconds": 1.0, "declared": False, "fixed": False, "issue": None,
        "within": None,
    }  # fmt: skip
    found = scoreboard._short(whole, {"reason": "Because.", "cause": "rounded"})
    assert found["why"] == "raised at lib/file.py, line 3"
    assert found["measured"] == 0.0
    assert found["first_position"] == 0
    assert found["cause"] == "rounded"
    assert not {"title", "page", "unit", "at", "issue", "fixed", "reason", "reproduction"} & set(found)
    assert set(scoreboard._short({**whole, "status": "not applicable"}, {})) == {"id", "status", "why"}
    assert scoreboard._short({**whole, "status": "passed", "fixed": True}, {})["fixed"] is True


def test_the_result_that_is_kept_is_the_page(request: pytest.FixtureRequest) -> None:
    root = request.config.rootpath
    data = json.loads((root / "campaigns" / "results" / "scoreboard.json").read_text(encoding="utf-8"))
    assert (root / "docs" / "scoreboard.html").read_text(encoding="utf-8") == scoreboard_page.page(data)
    ours = next(entry for entry in data["libraries"] if entry["library"] == "ropewalk")
    assert not any(scoreboard.cell(ours, one["id"])["failed"] for one in data["requirements"])
