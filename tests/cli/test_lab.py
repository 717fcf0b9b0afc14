"""ropewalk lab"""

from __future__ import annotations

import webbrowser
from pathlib import Path

import pytest

from tests.cli.conftest import Ropewalk


def test_it_writes_a_page_and_opens_it(ropewalk: Ropewalk, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    answer = ropewalk("lab")
    assert (answer.code, answer.stdout, answer.stderr) == (0, "ropewalk-lab.html\n", "")
    assert opened == [Path("ropewalk-lab.html").resolve().as_uri()]
    text = Path("ropewalk-lab.html").read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert ropewalk("lab", "--no-open").code == 0  # over the one that is there
    assert len(opened) == 1


def test_without_a_browser_it_says_what_to_do(ropewalk: Ropewalk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    answer = ropewalk("lab", "--out", "here.html")
    assert answer.code == 0
    assert "open here.html in one" in answer.stderr


def test_a_file_of_another_kind_stays(ropewalk: Ropewalk) -> None:
    Path("index.html").write_text("mine", encoding="utf-8")
    answer = ropewalk("lab", "--out", "index.html", "--no-open")
    assert answer.code == 3
    assert "is not a page of the lab" in answer.stderr
    assert Path("index.html").read_text(encoding="utf-8") == "mine"
    answer = ropewalk("lab", "--out", "lab.txt", "--no-open")
    assert answer.code == 2
    assert "end in .html" in answer.stderr
