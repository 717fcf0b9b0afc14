"""`ropewalk plot`: files, the terminal, and answers to mistakes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ropewalk.cli.output import BAD_INPUT, ENVIRONMENT, USAGE
from ropewalk.plot.catalogue import NAMES
from tests.cli.conftest import Ropewalk, ropewalk
from tests.plot.samples import LLAMA, run_folder

__all__ = ["ropewalk"]


def test_list(ropewalk: Ropewalk) -> None:
    listed = ropewalk("plot", "--list")
    assert listed.code == 0
    for name in NAMES:
        assert name in listed.stdout
    assert ropewalk("plot", "--list", "--quiet").stdout.split() == list(NAMES)
    found = ropewalk("plot", "--list", "--json", "--lang", "zh").data
    assert [one["name"] for one in found] == list(NAMES)
    assert "\u6ce2\u957f" in found[1]["shows"]


def test_files_and_numbers(ropewalk: Ropewalk) -> None:
    for end in ("svg", "png", "json"):
        answer = ropewalk("plot", "scalings", LLAMA, "to=64k", "--out", f"x.{end}")
        assert (answer.code, answer.stdout) == (0, f"x.{end}\n"), answer.stderr
    assert Path("x.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert json.loads(Path("x.json").read_text(encoding="utf-8"))["to"] == 64_000
    assert ropewalk("plot", "scalings", LLAMA, "to=64k", "--json").data["to"] == 64_000
    shown = ropewalk("plot", "wavelengths", LLAMA)
    assert "14 of 32 pairs" in shown.stdout.replace("\n", " ")


def test_runs(ropewalk: Ropewalk, tmp_path: Path) -> None:
    names = [str(run_folder(tmp_path / name)) for name in ("one", "two")]
    answer = ropewalk("plot", "run", *names)
    assert "one, two" in answer.stdout
    missing = ropewalk("plot", "run", "nowhere")
    assert missing.code == BAD_INPUT
    assert "nowhere" in missing.stderr


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("wavelenghts",), USAGE, "Did you mean wavelengths?"),
        ((), USAGE, "name a picture"),
        (("masks", "windw=3"), USAGE, "Did you mean window?"),
        (("masks", "window=0"), USAGE, "window"),
        (("masks", "nonsense"), USAGE, "is not KEY=VALUE"),
        (("scalings", "a.json", "b.json"), USAGE, "takes one CHECKPOINT"),
        (("scalings", "--out", "x.pdf"), USAGE, "end it in .svg, .png, .json"),
        (("scalings", "--json", "--out", "x.json"), USAGE, "--out x.json"),
        (("masks", "--list"), USAGE, "leave out masks"),
        (("run",), BAD_INPUT, "run is drawn from a RUN; name one"),
        (("scalings", "nowhere/config.json"), BAD_INPUT, "nowhere"),
        (("scalings", "to=5"), BAD_INPUT, "within the trained length"),
    ],
)
def test_a_mistake_is_answered(ropewalk: Ropewalk, words: tuple[str, ...], code: int, says: str) -> None:
    answer = ropewalk("plot", *words)
    assert answer.code == code, answer.stderr
    assert says in " ".join(answer.stderr.replace("\u2502", " ").split())


def test_a_missing_extra_is_named(ropewalk: Ropewalk, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    answer = ropewalk("plot", "masks", "--out", "x.svg")
    assert answer.code == ENVIRONMENT
    assert 'pip install "ropewalk[plot]"' in answer.stderr
    assert not Path("x.svg").exists()
    assert ropewalk("plot", "masks", "--out", "x.json").code == 0


def test_a_line_across_a_heat_map(ropewalk: Ropewalk) -> None:
    """In the terminal too, in one column; rows begin in one column, whatever their names."""
    shown = ropewalk("plot", "unseen", LLAMA, "to=64k").stdout.splitlines()
    rows = [line for line in shown if line.count("|") == 2]
    assert len(rows) >= 20
    assert len({line.rindex("|") for line in rows}) == 1
    rows = [line for line in ropewalk("plot", "sections").stdout.splitlines() if "|" in line]
    assert [line.split("|")[0].strip() for line in rows] == ["blocks", "interleaved"]
    assert len({line.index("|") for line in rows}) == 1


def test_sections_that_do_not_fit_interleaved(ropewalk: Ropewalk) -> None:
    found = ropewalk("plot", "sections", "sections=[16,24,24]", "--json").data["axis_of"]["interleaved"]
    assert [found.count(axis) for axis in range(3)] == [22, 21, 21]
    assert "the axes have 22 21 21" in " ".join(ropewalk("plot", "sections", "sections=[16,24,24]").stdout.split())
    assert "the axes have" not in ropewalk("plot", "sections").stdout
