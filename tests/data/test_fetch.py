"""Corpora out of packages: with small packages and commands that stand for apt-get, dpkg and npm."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
import tarfile
from pathlib import Path

import pytest

from ropewalk.data import corpora
from ropewalk.data.corpora import CORPORA, find
from ropewalk.data.prepare.extract import from_html, messages, pairs, poems
from ropewalk.data.prepare.fetch import fetch, version
from ropewalk.data.prepare.inputs import read

TRICK = """#!/bin/sh
# Stands for apt-get ("download -q NAME") and dpkg ("-x FILE FOLDER").
if [ "$1" = download ]; then cp "$PACKAGES/$3"_*.deb . ; else mkdir -p "$3" && tar xf "$2" -C "$3"; fi
"""


def catalogue(entries: dict[str, str]) -> bytes:
    """A gettext .mo file."""
    sides = [[text.encode() for text in side] for side in (entries, entries.values())]
    count, place = len(entries), 28 + 16 * len(entries)
    tables, texts = b"", b""
    for side in sides:
        for text in side:
            tables += struct.pack("<II", len(text), place + len(texts))
            texts += text + b"\0"
    return struct.pack("<7I", 0x950412DE, 0, count, 28, 28 + 8 * count, 0, 0) + tables + texts


def test_messages_of_a_catalogue() -> None:
    data = catalogue({"": "Language: de", "menu\x04_Open": "_\u00d6ffnen", "%d row\0%d rows": "%d Zeile\0%d Zeilen"})
    assert list(messages(data)) == [("_Open", "_\u00d6ffnen"), ("%d row", "%d Zeile"), ("%d rows", "%d Zeilen")]
    with pytest.raises(ValueError, match=r"not a gettext .mo file"):
        list(messages(b"GIF89a"))


def test_pairs_go_sentence_by_sentence(tmp_path: Path) -> None:
    entries = {
        "_Open": "_\u00d6ffnen",
        "One. Two.\nThree": "Eins. Zwei.\nDrei",
        "Four. Five.": "Vier und f\u00fcnf.",
        "same": "same",
        "3": "drei",
    }
    folder = tmp_path / "x" / "de" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    (folder / "a.mo").write_bytes(catalogue(entries))
    (folder / "b.mo").write_bytes(catalogue(entries))
    assert list(pairs(tmp_path, "de")) == [
        ("Open", "\u00d6ffnen"),
        ("One.", "Eins."),
        ("Two.", "Zwei."),
        ("Three", "Drei"),
        ("Four. Five.", "Vier und f\u00fcnf."),
    ]
    folder = tmp_path / "x" / "zh_CN" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    (folder / "a.mo").write_bytes(catalogue({"Open _it": "\u6253\u5f00(_I)", "Go. Stop.": "\u8d70\u3002\u505c\u3002"}))
    assert list(pairs(tmp_path, "zh_CN")) == [
        ("Open it", "\u6253\u5f00"),
        ("Go.", "\u8d70\u3002"),
        ("Stop.", "\u505c\u3002"),
    ]


def test_text_of_a_page() -> None:
    head, foot = "<head><title>no</title></head>", "<script>no</script>"
    page = f"{head}<body><nav>no</nav><h1>One &amp; two</h1><p>a  <b>b</b>c\n<p>d{foot}"
    assert from_html(page) == "One & two\na bc\n\nd"


def test_poems_of_an_archive(tmp_path: Path) -> None:
    files = {
        "quantangshi/poet.tang.0.json": [{"paragraphs": ["\u4e00", "\u4e8c"]}, {"paragraphs": []}],
        "quantangshi/authors.tang.json": [{"paragraphs": ["no"]}],
        "shijing/shijing.json": [{"content": ["\u4e09"]}, {"content": ["\u4e00", "\u4e8c"]}],
    }
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as packed:
        for name, poems_of_it in files.items():
            data = json.dumps(poems_of_it).encode()
            member = tarfile.TarInfo(f"package/dist/{name}")
            member.size = len(data)
            packed.addfile(member, io.BytesIO(data))
    assert list(poems(tmp_path / "a.tgz")) == ["\u4e00\n\u4e8c", "\u4e09"]


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A long-english of one small package, and the commands that bring it."""
    commands, packages = tmp_path / "bin", tmp_path / "shelf"
    commands.mkdir()
    packages.mkdir()
    for name in ("apt-get", "dpkg"):
        (commands / name).write_text(TRICK)
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    monkeypatch.setenv("PACKAGES", str(packages))
    manual = tmp_path / "usr/share/doc/python3.11/html/_sources/library"
    manual.mkdir(parents=True)
    (manual / "a.rst.txt").write_text("A long page. " * 300)
    (manual / "b.rst.txt.gz").write_bytes(gzip.compress(b"Another page. " * 300))
    (manual / "c.rst.txt").write_text("A stub.")
    file = packages / "python3.11-doc_1%3a2.0_all.deb"
    with tarfile.open(file, "w") as packed:
        packed.add(tmp_path / "usr", "usr")
    package = corpora.Package("python3.11-doc", "1:2.0", hashlib.sha256(file.read_bytes()).hexdigest(), "PSF-2")
    monkeypatch.setitem(CORPORA, "long-english", find("long-english")._replace(packages=(package,)))
    return file


def test_a_corpus_is_fetched_once(shelf: Path, tmp_path: Path) -> None:
    said: list[str] = []
    text = fetch("long-english", tmp_path / "raw", said.append)
    assert [item.texts[0][:6] for item in read(text, "text", "line")] == ["A long", "Anothe"]
    about = json.loads((tmp_path / "raw" / "source.json").read_text())
    assert about["packages"][0]["version"] == "1:2.0"
    assert about["packages"][0]["licence"] == "PSF-2"
    assert said == ["fetching python3.11-doc", "making long-english.jsonl"]
    shelf.unlink()
    assert fetch("long-english", tmp_path / "raw", said.append) == text
    text.write_text("spoiled")
    fetch("long-english", tmp_path / "raw", said.append)
    assert said[2:] == ["making long-english.jsonl"]
    assert text.read_text() != "spoiled"


def test_a_wrong_package_is_refused(shelf: Path, tmp_path: Path) -> None:
    with tarfile.open(shelf, "a") as packed:
        packed.addfile(tarfile.TarInfo("more"))
    with pytest.raises(ValueError, match=r"sha256 [0-9a-f]{64}, [0-9a-f]{64} is right for this version; remove it"):
        fetch("long-english", tmp_path / "raw", lambda _: None)
    (tmp_path / "raw" / "packages" / shelf.name).unlink()
    shelf.rename(shelf.with_name("python3.11-doc_3_all.deb"))
    said: list[str] = []
    fetch("long-english", tmp_path / "raw", said.append)
    assert "python3.11-doc 3: 1:2.0 is known here; figures may differ a little" in said


def test_what_cannot_be_fetched_says_why(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf.unlink()
    with pytest.raises(ValueError, match=r"apt-get download -q python3.11-doc: .*; try: apt-get update"):
        fetch("long-english", tmp_path / "raw", lambda _: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ValueError, match=r"fetched by apt-get, which is not here; run this on Debian 12"):
        fetch("long-english", tmp_path / "raw", lambda _: None)


def test_versions_of_files() -> None:
    assert version(Path("gnucash-common_1%3a4.13-1_all.deb")) == "1:4.13-1"
    assert version(Path("chinese-poetry-2.0.1.tgz")) == "2.0.1"


@pytest.mark.network
@pytest.mark.parametrize(
    ("name", "least"), [("long-english", 700), ("chinese", 340_000), ("en-zh", 80_000), ("en-de", 55_000)]
)
def test_the_real_corpora(tmp_path: Path, name: str, least: int) -> None:
    text = fetch(name, tmp_path / "raw")
    count = sum(all(item.texts) for item in read(text, CORPORA[name].options.kind, "line"))
    assert least <= count < 1.2 * least
