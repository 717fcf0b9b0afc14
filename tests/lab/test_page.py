"""The page: one small file that fetches nothing, with the same words in both languages."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from ropewalk.lab import source
from ropewalk.lab.page import PANELS, load_words, page

LARGEST = 300_000
"""Bytes."""


class _Reader(HTMLParser):
    """Elements with their attributes, and what scripts and styles hold."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.code: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        tag, attributes = self.elements[-1] if self.elements else ("", {})
        if tag in ("script", "style") and data.strip() and attributes.get("type") != "application/json":
            self.code.append((tag, data))


@pytest.fixture(scope="module")
def text() -> str:
    return page()


@pytest.fixture(scope="module")
def read(text: str) -> _Reader:
    return _Reader(text)


def test_size(text: str) -> None:
    assert len(text.encode()) <= LARGEST


def test_it_is_the_same_every_time(text: str) -> None:
    assert page() == text


def test_nothing_is_fetched_and_only_its_own_code_runs(read: _Reader) -> None:
    policy = next(a["content"] for tag, a in read.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag, code in read.code:
        digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in re.search(rf"{tag}-src ([^;]*)", policy)[1]  # pyrefly: ignore
    assert {tag for tag, _ in read.code} == {"script", "style"}
    for _, attributes in read.elements:
        assert not {"src", "style", "onclick", "srcset"} & set(attributes)
        assert not (attributes.get("href") or "#").startswith("http")
    assert "fetch(" not in source.whole()
    assert "innerHTML" not in source.whole()


def test_every_control_has_a_label(read: _Reader) -> None:
    labels = {a["for"] for tag, a in read.elements if tag == "label" and "for" in a}
    boxes = [a for tag, a in read.elements if tag in ("input", "select") and a.get("type") != "radio"]
    assert {a["id"] for a in boxes} == labels
    assert len(boxes) == len(labels) > 20


def test_ids_are_there_once_and_those_named_exist(read: _Reader) -> None:
    ids = [a["id"] for _, a in read.elements if "id" in a]
    assert len(ids) == len(set(ids))
    for _, attributes in read.elements:
        named = " ".join(attributes.get(k) or "" for k in ("aria-labelledby", "aria-describedby", "for")).split()
        assert set(named) <= set(ids)
    for name in re.findall(r'byId\("([a-z0-9-]+)"\)', source.whole()):
        assert name in ids, name


def test_every_picture_has_its_sentence_and_its_table(read: _Reader) -> None:
    ids = {a.get("id") for _, a in read.elements}
    for name in PANELS:
        assert {f"{name}-picture", f"{name}-said", f"{name}-table", f"{name}-numbers", f"{name}-title"} <= ids


def fills(text: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", text))


def test_both_languages_say_the_same_things() -> None:
    for part, words in load_words().items():
        for key, said in words.items():
            assert list(said) == ["en", "zh"], key
            assert fills(said["en"]) == fills(said["zh"]), key
            assert said["en"].count("\n\n") == said["zh"].count("\n\n"), key
            chinese = re.search(r"[\u4e00-\u9fff]", said["zh"])
            assert chinese or said["en"] == said["zh"], f"{part}.{key}"


def test_no_word_is_missing_and_none_is_unused() -> None:
    live = load_words()["live"]
    code = source.whole()
    quoted = set(re.findall(r'["`](\w+)["`]', code))
    made = {f"{how}_line" for how in ("exact", "float32")} | {
        f"bias_{part}_{kind}" for part in ("value", "said") for kind in ("score", "t5", "fire")
    }
    made.add("bias_said_kerple")
    assert set(live) <= quoted | made
    assert made <= set(live)
    asked = set(re.findall(r'word\("(\w+)"', code)) | set(re.findall(r'\["(\w+)", \{', code))
    assert asked <= set(live)


def test_words_filled_in_by_facts_have_what_they_need(call: Any) -> None:
    live = load_words()["live"]
    for link in (
        "",
        "model=bloom-560m",
        "model=&scaling=yarn&bias=t5",
        "bias=fire&window=3",
        "bias=kerple&product=float32",
    ):
        for panel in ("sinusoid", "clock", "relative", "wavelength", "scaling", "bias"):
            facts = call("shown", f"{panel}Facts", link)
            labels = [number["label"] for number in facts["numbers"]]
            cells = [cell for row in facts["rows"] for cell in row if isinstance(cell, list)]
            for key, values in [facts["sentence"], *labels, *facts["columns"], *cells]:
                assert fills(live[key]["en"]) <= set(values), key
            assert {len(row) for row in facts["rows"]} == {len(facts["columns"])}
