"""A page as a reader, a browser and its content policy see it."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

VOID = {"meta", "br", "hr", "input"}
LANGUAGES = ("en", "zh-CN")


class Page(HTMLParser):
    """Every tag with its attributes, and the text shown in one language."""

    def __init__(self, text: str, language: str = "en") -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._language, self._open = language, list[tuple[str, bool]]()
        self.feed(text)
        self.close()
        assert self._open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        other = tag != "html" and found.get("lang") in LANGUAGES and found.get("lang") != self._language
        unseen = other and "only" not in (found.get("class") or "").split()
        if tag not in VOID:
            self._open.append((tag, unseen or tag in ("script", "style", "title")))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        if not any(hidden for _, hidden in self._open):
            self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def shown(text: str, language: str = "en") -> str:
    """What a reader of this language reads."""
    return "".join(Page(text, language).words)


def svg_texts(svg: str) -> str:
    return "\n".join(
        "".join(each.itertext()).strip() for each in ElementTree.fromstring(svg).iter() if "text" in each.tag
    )


def svg_numbers(svg: str) -> list[float]:
    """Of every line, in order."""
    paths = [each.get("d", "") for each in ElementTree.fromstring(svg).iter() if each.tag.endswith("path")]
    return [float(word) for path in paths for word in path.split() if not word.isalpha()]


def svg_stands_alone(svg: str) -> None:
    """An <img> on a page fetches nothing."""
    assert "<image" not in svg
    assert "url(http" not in svg
    assert "system-ui" in svg


def stands_alone(text: str) -> None:
    """Nothing is fetched, nothing may run or style but what its content policy has the hash of; lines have colours."""
    page = Page(text)
    tones = {name for _, found in page.tags for name in (found.get("class") or "").split() if name.startswith("t-")}
    assert {tone for tone in tones if not any(f".{tone}" in code for code in _codes(text, "style"))} == set()
    assert not {"link", "img", "iframe", "object", "form", "base", "embed"} & {tag for tag, _ in page.tags}
    assert not any(name.startswith("on") or name in ("style", "src") for _, found in page.tags for name in found)
    assert not any(re.search(r"url\(|@import", code) for code in _codes(text, "style"))
    assert not any((found.get("href") or "").startswith("javascript:") for _, found in page.tags)
    assert not any(re.search(r"fetch\(|XMLHttpRequest|import\(", code) for code in _codes(text, "script"))
    policy = next(each["content"] for each in page.all("meta") if each.get("http-equiv") == "Content-Security-Policy")
    assert policy
    rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["style-src"].split() == [f"'sha256-{_digest(code)}'" for code in _codes(text, "style")]
    assert rules["script-src"].split() == [f"'sha256-{_digest(code)}'" for code in _codes(text, "script")]


def _codes(text: str, tag: str) -> list[str]:
    return re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)


def _digest(code: str) -> str:
    return base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
