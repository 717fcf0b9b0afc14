"""Text out of unpacked packages: manuals in HTML and markup, poems in JSON, pairs of gettext catalogues."""

from __future__ import annotations

import gzip
import json
import re
import struct
import tarfile
from collections.abc import Iterable, Iterator
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

SHORTEST = 2000
"""Characters of a long document: shorter ones are indexes and stubs."""
LONGEST_SIDE = 2000
POEMS = re.compile(
    r"package/dist/(?:quantangshi/poet\.[^/]*|songci/ci\.song\.[^/]*|yuanqu/yuanqu|wudaishici/.*|shijing/[^/]*|chuci/[^/]*)"
    r"\.json"
)
BLOCKS = frozenset(
    ("p", "br", "h1", "h2", "h3", "h4", "h5", "h6", "li", "div", "tr", "pre", "dt", "dd", "table", "ul", "ol")
)
HIDDEN = frozenset(("script", "style", "nav", "head"))
ENDS = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*[A-Z\u00c4\u00d6\u00dc])")
ENDS_ZH = re.compile("(?<=[\u3002\uff01\uff1f])(?=[^\u3002\uff01\uff1f\u201d\u300d\u300f\uff09\\s])")
KEY = re.compile(r"\s*\([_~]\w\)|[_~](?=\w)")
"""The letter of a menu entry: _Open, or Open(_O)."""


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hidden += tag in HIDDEN
        if tag in BLOCKS:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in HIDDEN and self.hidden > 0

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.parts.append(data)


def from_html(page: str) -> str:
    parser = _Page()
    parser.feed(page)
    parser.close()
    text = re.sub(r"[ \t\xa0]+", " ", "".join(parser.parts))
    return re.sub(r"\s*\n\s*\n\s*", "\n\n", re.sub(r" ?\n ?", "\n", text)).strip()


def long_documents(root: Path) -> Iterator[str]:
    """Manuals and an FAQ, one document a chapter or page; the handbook is one."""

    def texts() -> Iterator[str]:
        for page in sorted((root / "anarchism").glob("usr/share/doc/anarchism/html/*.html")):
            yield from_html(_read(page))
        for page in sorted((root / "perl-doc").glob("usr/share/**/*.pod")):
            yield _read(page)
        for page in sorted((root / "python3.11-doc").glob("usr/share/doc/*/html/_sources/**/*.txt*")):
            yield _read(page)
        chapters = sorted((root / "debian-handbook").glob("usr/share/doc/debian-handbook/html/en-US/*.html"))
        yield "\n\n".join(from_html(_read(chapter)) for chapter in chapters)

    yield from _distinct(text for text in texts() if len(text) >= SHORTEST)


def poems(archive: Path) -> Iterator[str]:
    """Poems, a line of each a line, out of the JSON files of an npm package."""

    def texts() -> Iterator[str]:
        with tarfile.open(archive, "r:gz") as packed:
            members = [member for member in packed if member.isfile() and POEMS.fullmatch(member.name)]
            for member in sorted(members, key=lambda member: member.name):
                file = packed.extractfile(member)
                found = json.load(file) if file else []
                for poem in found if isinstance(found, list) else []:
                    yield "\n".join(poem.get("paragraphs") or poem.get("content") or [])

    yield from _distinct(text for text in texts() if text.strip())


def pairs(root: Path, language: str) -> Iterator[tuple[str, str]]:
    """English and its translation, sentence by sentence where both sides have as many."""
    seen: set[tuple[str, str]] = set()
    ends = ENDS_ZH if language.startswith("zh") else ENDS
    for catalogue in sorted(root.glob(f"**/{language}/LC_MESSAGES/*.mo")):
        for english, other in messages(catalogue.read_bytes()):
            for pair in _sentences(english, other, ends):
                if pair not in seen and _useful(*pair):
                    seen.add(pair)
                    yield pair


def messages(data: bytes) -> Iterator[tuple[str, str]]:
    """The texts of a gettext .mo file with their translations; singular and plural are two."""
    order = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}.get(data[:4])
    if order is None:
        raise ValueError("not a gettext .mo file: its first four bytes are others")
    count, originals, translations = struct.unpack_from(f"{order}III", data, 8)

    def text(table: int, number: int) -> str:
        size, start = struct.unpack_from(f"{order}II", data, table + 8 * number)
        return data[start : start + size].decode("utf-8", "replace")

    for number in range(count):
        english = text(originals, number).rpartition("\x04")[2].split("\0")
        other = text(translations, number).split("\0")
        if english != [""]:
            yield from (pair for pair in zip(english, other, strict=False) if all(pair))


def _sentences(english: str, other: str, ends: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    if len(KEY.findall(english)) == 1 == len(KEY.findall(other)):
        english, other = KEY.sub("", english), KEY.sub("", other)
    for left, right in _matched(english.split("\n"), other.split("\n"), (english, other)):
        yield from _matched(ENDS.split(left), ends.split(right), (left, right))


def _matched(left: list[str], right: list[str], whole: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """Part by part where there are as many on both sides, else the whole."""
    ours, theirs = ([clean for part in parts if (clean := " ".join(part.split()))] for parts in (left, right))
    if len(ours) == len(theirs):
        yield from zip(ours, theirs, strict=True)
    else:
        yield (" ".join(whole[0].split()), " ".join(whole[1].split()))


def _useful(english: str, other: str) -> bool:
    short = max(len(english), len(other)) <= LONGEST_SIDE
    return short and english != other and bool(re.search("[A-Za-z]{2}", english)) and "\ufffd" not in english + other


def _distinct(texts: Iterable[str]) -> Iterator[str]:
    seen: set[bytes] = set()
    for text in texts:
        digest = sha256(text.encode("utf-8", "replace")).digest()[:16]
        if digest not in seen:
            seen.add(digest)
            yield text


def _read(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8", "replace")
