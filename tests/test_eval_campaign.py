"""The campaign of eval on a model that copies: what it writes, and that a run that was ended is continued."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from campaigns import eval as campaign
from campaigns import pieces, stale
from ropewalk.evaluate.documents import texts
from ropewalk.evaluate.statistics import p_value, paired
from ropewalk.scaling import YaRN
from tests.evaluate.toys import Copier

DOCUMENTS = 16


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copier:
    """Texts of 200 letters whose end repeats their beginning, and a model that copies from 150 tokens back at most."""
    draws = np.random.default_rng(0)
    lines = [{"text": "too short"}]
    for _ in range(DOCUMENTS + 2):
        letters = "".join(chr(48 + n) for n in draws.integers(0, 50, 200))
        lines.append({"text": letters[:168] + letters[20:52]})
    (tmp_path / "texts.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(pieces, "RESULTS", tmp_path)
    monkeypatch.setattr(campaign.battery, "TAIL", 32)
    made = Copier(150)
    monkeypatch.setattr(campaign, "opened", lambda *_, **__: (made, lambda text: [ord(letter) - 48 for letter in text]))
    return made


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, *given: str) -> int:
    monkeypatch.setattr(sys, "argv", ["eval", "x", "--name", "toy", "--text", str(folder / "texts.jsonl"), *given])
    return campaign.main()


def test_a_run_is_continued_and_its_result_names_documents(
    model: Copier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, monkeypatch, "--time") == pieces.UNFINISHED
    assert f"{5 * DOCUMENTS} passes, about 0 min" in capsys.readouterr().out
    assert len(model.asked) == 5
    assert run(tmp_path, monkeypatch, "--minutes", "0") == pieces.UNFINISHED
    assert run(tmp_path, monkeypatch) == 0
    assert len(model.asked) == 5 * DOCUMENTS
    written = (tmp_path / "eval-toy.json").read_text(encoding="utf-8")
    said = json.loads(written)
    known = dict(texts([tmp_path / "texts.jsonl"]))
    assert {one["name"] for one in said["documents"]} < {*known}
    assert not [text for text in known.values() if text[:12] in written]
    digests = [one["sha256"] for one in said["documents"]]
    assert digests == sorted(set(digests))
    yarn, crop = (np.array([one[key] for one in said["documents"]]) for key in ("YaRN, 200", "cropped to 100"))
    gain = said["intervals"]["gain over cropping, YaRN"]
    assert gain["mean"] == pytest.approx((crop - yarn).mean())
    assert gain["deviation"] == pytest.approx((crop - yarn).std(ddof=1))
    assert said["measured"]["gain over cropping, YaRN"] > 1 > said["measured"]["cost on short text, YaRN"] == 0
    assert said["protocol"]["scaling"] == YaRN(factor=2, trained=100).model_dump(mode="json")
    assert stale.verdict(tmp_path / "eval-toy.json").state == "fresh"


def test_documents_needed_follow_from_the_deviation() -> None:
    """t(0.975, n - 1) s / sqrt(n) <= 0.01, with t from a printed table."""
    assert campaign.needed(0.0) == 2
    # t(0.975, 29) = 2.0452
    assert campaign.needed(0.01 * np.sqrt(30) / 2.046) == 30
    assert campaign.needed(0.01 * np.sqrt(30) / 2.045) == 31


@pytest.mark.parametrize("file", sorted(pieces.RESULTS.glob("eval-*.json")), ids=lambda file: file.stem)
def test_candidates_that_do_not_differ_are_called_different_in_one_of_twenty(file: Path) -> None:
    """The signs of real differences, drawn again: as if each document could as well have favoured the other one."""
    documents = json.loads(file.read_text(encoding="utf-8"))["documents"]
    crop, plain, _, yarn, _ = (np.array([one[key] for one in documents]) for key in list(documents[0])[2:])
    draws = np.random.default_rng(0)
    for differences in (crop - yarn, plain - yarn):
        flipped = differences * draws.choice([-1.0, 1.0], (2000, len(differences)))
        different = [paired(each).verdict != "no difference" for each in flipped.tolist()]
        assert different == [p_value(each) < 0.05 for each in flipped.tolist()]
        assert 0.03 <= np.mean(different) <= 0.07
