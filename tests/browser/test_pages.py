"""Every page in chromium: `scripts/test -m browser`, and `python -m campaigns.browser` to keep the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ropewalk.report.page import page
from tests.browser.looking import look, wrong
from tests.browser.pages import PAGES, ROOT, written


@pytest.mark.browser
@pytest.mark.parametrize("name", PAGES)
def test_a_page_in_a_browser(browser: Any, name: str, tmp_path: Path) -> None:
    assert wrong(look(browser, written(name, tmp_path))) == []


@pytest.mark.browser
def test_what_is_wrong_is_seen(browser: Any, tmp_path: Path) -> None:
    """A page that asks for a picture, speaks on the console, is too wide, cannot be used by keys, and has no names."""
    good = page({"en": "A page", "zh": "\u4e00\u9875"}, ["Good."])
    policy = good[good.index('<meta http-equiv="Content-Security-Policy"') :].partition(">")[0] + ">"
    bad = good.replace(policy, "").replace(
        "<main", '<img src="x.png"><button tabindex="-1"></button><p class=w>.</p><style>.w{width:3000px}</style>'
        "<script>console.log(1)</script><main", 1
    )  # fmt: skip
    path = tmp_path / "bad.html"
    path.write_text(bad, encoding="utf-8")
    found = wrong(look(browser, path))
    for kind in ("requests", "messages", "overflows", "axe", "keys"):
        assert any(one.startswith(kind) for one in found), kind


def test_the_result_that_is_kept_has_every_page_and_nothing_wrong() -> None:
    kept = json.loads((ROOT / "campaigns" / "results" / "browser.json").read_text(encoding="utf-8"))
    assert set(kept["pages"]) == set(PAGES)
    assert [said for found in kept["pages"].values() for said in wrong(found)] == []
