"""Results of campaigns: each is known, and one whose sources have changed is named."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from campaigns import bit_flips, pieces, stale


def test_every_result_is_known() -> None:
    """Also that every file which a campaign names as its source is there."""
    found = [stale.verdict(file) for file in stale.results()]
    assert len(found) > 15
    assert [each for each in found if each.state == "unknown"] == []


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sources of one campaign, and its result of today in two pieces."""
    for source in bit_flips.SOURCES:
        (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(pieces.REPOSITORY / source, tmp_path / source)
    monkeypatch.setattr(pieces, "REPOSITORY", tmp_path)
    monkeypatch.setattr(pieces, "RESULTS", tmp_path)
    write(tmp_path, pieces.digest(bit_flips.SOURCES))
    return tmp_path


def write(folder: Path, known: str, **changed: str) -> None:
    parts = {key: {"trials": 1, "sources": changed.get(key, known)} for key in ("first", "second")}
    said = {"command": "python -m campaigns.bit_flips", "sources": known, "pieces": parts}
    (folder / "bit_flips.json").write_text(json.dumps(said), encoding="utf-8")


def told(monkeypatch: pytest.MonkeyPatch, *names: str) -> int:
    monkeypatch.setattr(sys, "argv", ["stale", *names])
    return stale.main()


def test_a_source_that_changes_makes_a_result_stale(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(monkeypatch) == 0
    assert capsys.readouterr().out.startswith("fresh       bit_flips     src/ropewalk/train/checkpoint/manifest.py, ")
    with (repository / bit_flips.SOURCES[1]).open("a", encoding="utf-8") as file:
        file.write("\n")
    assert told(monkeypatch, "bit_flips") == 1
    said = capsys.readouterr().out
    assert said.startswith("stale       bit_flips ")
    assert said.endswith("again: python -m campaigns.bit_flips\n")


def test_an_old_piece_is_neither_fresh_nor_taken(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = pieces.digest(bit_flips.SOURCES)
    write(repository, known, second="of yesterday")
    assert told(monkeypatch) == 1
    assert list(pieces.before(repository / "bit_flips.json", known)) == ["first"]


def test_a_result_of_no_campaign_is_unknown(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "nothing.json").write_text("{}", encoding="utf-8")
    assert told(monkeypatch) == 1
    assert "unknown     nothing       there is no campaigns/nothing.py" in capsys.readouterr().out
    assert told(monkeypatch, "elsewhere") == 2
