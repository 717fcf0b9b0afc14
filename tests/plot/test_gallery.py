"""The pictures of the documents are what their commands draw."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ropewalk.plot import drawing
from ropewalk.plot.catalogue import chart_of, find

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "en" / "plot.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ ropewalk plot (.*) --out docs/pictures/plot/(\w+)\.svg$", TEXT, flags=re.MULTILINE)
SLOW = {"biases", "masks"}
"""Drawn in more than half a second; their numbers and charts have tests of their own."""


def drawn(command: str, language: str) -> str:
    name, *rest = shlex.split(command)
    picture = find(name)
    things = [str(ROOT / word) for word in rest if "=" not in word]
    thing = (things if "..." in picture.takes else things[0]) if things else None
    options = picture.read([word for word in rest if "=" in word])
    return drawing.svg(chart_of(picture.data(thing, options), language))


def texts(svg: str) -> list[str]:
    return [
        "".join(each.itertext()).strip() for each in ElementTree.fromstring(svg).iter() if each.tag.endswith("text")
    ]


def numbers(svg: str) -> list[float]:
    paths = [each.get("d", "") for each in ElementTree.fromstring(svg).iter() if each.tag.endswith("path")]
    return [float(word) for path in paths for word in path.split() if not word.isalpha()]


@pytest.mark.parametrize(("command", "name"), [(c, n) for c, n in COMMANDS if n not in SLOW], ids=lambda word: word)
def test_a_picture_is_what_its_command_draws(command: str, name: str) -> None:
    kept = (ROOT / "docs" / "pictures" / "plot" / f"{name}.svg").read_text(encoding="utf-8")
    again = drawn(command, "en")
    assert texts(again) == texts(kept)
    assert numbers(again) == pytest.approx(numbers(kept), abs=1e-2)


@pytest.mark.parametrize("name", [name for _, name in COMMANDS if name not in SLOW])
def test_the_chinese_pictures_are_drawn_alike(name: str) -> None:
    (command,) = (command for command, drawn_name in COMMANDS if drawn_name == name)
    kept = (ROOT / "docs" / "pictures" / "plot" / f"{name}.zh.svg").read_text(encoding="utf-8")
    assert texts(drawn(command, "zh")) == texts(kept)


def test_each_page_shows_pictures_in_its_language() -> None:
    for language, ending in (("en", r"\w+\.svg"), ("zh", r"\w+\.zh\.svg")):
        page = (ROOT / "docs" / language / "plot.md").read_text(encoding="utf-8")
        shown = re.findall(r"\]\(\.\./pictures/plot/([^)]+)\)", page)
        assert len(shown) >= 14
        assert [name for name in shown if not re.fullmatch(ending, name)] == []


def test_every_picture_that_needs_no_model_is_shown() -> None:
    shown = {name for _, name in COMMANDS}
    assert len(shown) >= 13
    assert {command.split()[0] for command, _ in COMMANDS} == shown
