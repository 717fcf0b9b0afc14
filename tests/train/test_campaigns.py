"""The campaigns about training, cut short: a few trials of each, spread over what they vary."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from campaigns import language
from ropewalk.data.batch import Batch
from ropewalk.data.prepare.sample import sample
from ropewalk.positions import plain
from tests.cli.conftest import Ropewalk, ropewalk

__all__ = ["ropewalk"]

REPOSITORY = Path(__file__).parents[2]


def run(arguments: list[str], code: int | None = 0) -> str:
    """What a module of this name writes; code: it must end in, None: any."""
    paths = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    assert code in (None, done.returncode), done.stderr
    return done.stdout


SHORT = {"crash_points": 16, "nan_sites": 8, "orphans": 2, "kills": 6, "bit_flips": 60, "disk_full": 60}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By campaign. One process for all: it forks its ranks, so it is not this one, which has threads."""
    folder = tmp_path_factory.mktemp("campaigns")
    run(["tests.train.campaigns_run", str(folder), *(f"{name}={count}" for name, count in SHORT.items())])
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in folder.glob("*.json")}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SHORT)
def test_short(results: dict[str, Any], name: str) -> None:
    done = results[name]["pieces"].values()
    assert [failure for piece in done for failure in piece["failures"]] == []
    assert sum(piece["trials"] for piece in done) == SHORT[name]


@pytest.mark.timeout(1800)
def test_kills_hit_saves(results: dict[str, Any]) -> None:
    """One in each stage of a save, more or less; the stage is read off what is left on the disk."""
    assert results["kills"]["measured"]["kills during a save"] >= 2


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What the command of a campaign writes, called in this process."""

    def call(name: str, *arguments: str, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        capsys.readouterr()
        assert import_module(name).main() == code
        return capsys.readouterr().out

    return call


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight:UserWarning")  # bfloat16, by torch
@pytest.mark.no_poison
def test_what_is_said_of_a_masked_model(tmp_path: Path, ropewalk: Ropewalk, command: Callable[..., str]) -> None:
    """Two steps teach nothing: the bars are there, and do not hold."""
    data = sample("text", tmp_path / "data")
    answer = ropewalk("train", "encoder", f"data.path={data}", "--fast", "--out", str(tmp_path / "run"))
    assert answer.code == 0, answer.stderr
    result = json.loads(command("campaigns.masked", str(tmp_path / "run"), code=1))
    assert not all(bar["holds"] for bar in result["bars"].values())
    assert result["training"]["steps"] == 2


@pytest.mark.no_poison
def test_what_is_said_of_translations(tmp_path: Path, ropewalk: Ropewalk, command: Callable[..., str]) -> None:
    """On pairs held apart by the hash of their source, with the model that export writes."""
    pairs = tmp_path / "pairs.tsv"
    lines = [f"cat number {n} is in New York City\tKatze Nummer {n} ist in New York City\n" for n in range(300)]
    pairs.write_text("".join(lines), encoding="utf-8")
    counts = ast.literal_eval(command("campaigns.translation", "split", str(pairs), str(tmp_path / "split")))
    rest, test = ((tmp_path / "split" / f"{name}.tsv").read_text("utf-8").splitlines() for name in ("rest", "test"))
    assert sorted(rest + test) == sorted(pairs.read_text("utf-8").splitlines())
    assert counts == {"test": len(test), "rest": len(rest)}
    assert 2 <= len(test) <= 15, "about a fiftieth"
    data = sample("pairs", tmp_path / "data")
    answer = ropewalk("train", "translate-en-de", f"data.path={data}", "--fast", "--out", str(tmp_path / "runs/seed"))
    assert answer.code == 0, answer.stderr
    (tmp_path / "models").mkdir()
    answer = ropewalk("export", str(tmp_path / "runs/seed"), str(tmp_path / "models/seed"))
    assert answer.code == 0, answer.stderr
    arguments = ["score", *(str(tmp_path / name) for name in ("split", "runs", "models")), "--beams", "2"]
    result = json.loads(command("campaigns.translation", *arguments, code=1))
    assert not all(bar["holds"] for bar in result["bars"].values()), "two steps teach nothing"
    assert result["pairs"]["test"] == len(test)
    assert result["training"]["seed"]["steps"] == 2
    assert set(result["scores"]) == {"nearest", "copy", "seed"}
    assert result["scores"]["copy"]["chrF2"]["score"] > result["scores"]["seed"]["chrF2"]["score"]


def test_two_libraries_side_by_side(tmp_path: Path) -> None:
    data = sample("text", tmp_path / "data")
    small = ("model.width=32", "model.layers=1", "data.length=64", "train.batch=128", "train.compile=false")
    result = json.loads(run(["campaigns.language", str(data), *small, "--tokens", "1280"], code=None))
    assert result["training"]["steps"] == 10
    bits = result["bits_per_byte"]
    assert len(bits) == 3
    assert max(bits.values()) - min(bits.values()) < 0.3, bits
    for found in result["valid"].values():
        assert found["fall"]["on the same tokens"]["documents"] == found["fall"]["as the text runs"]["documents"] > 1


def test_the_last_quarter_is_read_again_at_the_second_sixteenth() -> None:
    tokens = torch.arange(2 * 64).view(2, 64)
    whole = Batch(tokens, plain(64, batch=2), tokens + 1, torch.arange(2))
    found = language.shortened(whole)
    assert found.target.shape == (8, 8)
    assert found.at.index[:, 4:].unique().tolist() == [4, 5, 6, 7], "the second sixteenth of 64"
    again = found.target[:, 4:].reshape(2, 16)
    assert torch.equal(again, whole.target[:, 48:]), "the tokens of the last quarter, each once"
    assert torch.equal(found.tokens + 1, found.target), "each behind the token it follows"


def test_estimated_messages_are_those_of_real_ranks() -> None:
    """By kind, and by group with their bytes: counted in gloo, not by what the estimate counts with."""
    found = json.loads(run(["campaigns.collectives", "FSDP 2 x CP 2, three passes", "TP 2, qk_norm, sink"]))
    assert len(found) == 2
    for case in found.values():
        assert case["counted"]["messages"]
        assert case["estimated"] == case["counted"]
