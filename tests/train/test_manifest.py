"""What a manifest vouches for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ropewalk.train.checkpoint import manifest
from ropewalk.train.checkpoint.manifest import Broken, Digest, Manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "b").write_bytes(b"")
    files = {name: manifest.digest(tmp_path / name) for name in ("a", "b")}
    (tmp_path / manifest.NAME).write_bytes(manifest.spelled(Manifest(7, 2, files)))
    return tmp_path


def test_whole(folder: Path) -> None:
    found = manifest.verify(folder)
    assert (found.step, found.world, sorted(found.files)) == (7, 2, ["a", "b"])


def test_every_bit_of_it_counts(folder: Path) -> None:
    file = folder / manifest.NAME
    whole = file.read_bytes()
    for place in range(len(whole) * 8):
        wrong = bytearray(whole)
        wrong[place // 8] ^= 1 << place % 8
        file.write_bytes(wrong)
        with pytest.raises(Broken, match=r"manifest\.json"):
            manifest.verify(folder)


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("a", b"onE", "SHA-256"),
        ("a", b"ones", "has 4 bytes, was written with 3"),
        ("b", b"x", "has 1 bytes"),
        ("a", None, "No such file"),
        (manifest.NAME, None, "No such file"),
        (manifest.NAME, b"", "cannot be read"),
        (manifest.NAME, b"[1]", "cannot be read"),
        (manifest.NAME, b"[" * 100_000, "cannot be read"),
        (manifest.NAME, b'{"format": 2}', "format 2"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, file: str, content: bytes | None, says: str) -> None:
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)
    with pytest.raises(Broken, match=says) as found:
        manifest.verify(folder)
    assert found.value.file.name == file


@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "x/y", "", ".."])
def test_names_outside_are_refused(folder: Path, name: str) -> None:
    said = manifest.spelled(Manifest(7, 2, {name: Digest(3, "0" * 64)}))
    (folder / manifest.NAME).write_bytes(said)
    with pytest.raises(Broken, match="no file of this folder"):
        manifest.verify(folder)


def test_spelling_is_json(folder: Path) -> None:
    assert json.loads((folder / manifest.NAME).read_bytes())["files"]["a"]["bytes"] == 3
