"""Every picture: plain numbers, the same bytes twice, the same numbers in both languages, words as text."""

from __future__ import annotations

import json
import os
import re
import string
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import ropewalk as rw
from ropewalk.plot import drawing
from ropewalk.plot.catalogue import NAMES, chart_of, find
from ropewalk.plot.words import columns, load
from tests.plot.samples import DOCUMENTS, sample_data, samples

SOURCE = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return sample_data(tmp_path_factory.mktemp("runs"))


def parts(value: Any) -> Any:
    """A chart taken apart: every number in order, and every text."""
    if is_dataclass(value):
        return [piece for field in fields(value) for piece in parts(getattr(value, field.name))]
    if isinstance(value, (list, tuple)):
        return [piece for one in value for piece in parts(one)]
    return [value]


def numbers(chart: Any) -> list[Any]:
    return [piece for piece in parts(chart) if not isinstance(piece, str)]


def texts(chart: Any) -> str:
    return " ".join(piece for piece in parts(chart) if isinstance(piece, str))


@pytest.mark.parametrize("name", NAMES)
def test_data_is_what_json_has(every: dict[str, dict[str, Any]], name: str) -> None:
    assert json.loads(json.dumps(every[name], allow_nan=False)) == every[name]
    assert every[name]["picture"] == name


@pytest.mark.parametrize("name", NAMES)
def test_svg_is_the_same_twice_and_its_words_are_text(every: dict[str, dict[str, Any]], name: str) -> None:
    chart = chart_of(every[name], "zh")
    svg = drawing.svg(chart)
    assert svg == drawing.svg(chart_of(every[name], "zh"))
    tree = ElementTree.fromstring(svg)
    written = ["".join(each.itertext()).strip() for each in tree.iter() if each.tag.endswith("}text")]
    assert chart.title in written
    assert tree.find("{*}title") is not None
    assert tree.get("role") == "img"
    (dark,) = re.findall(r"<style>@media \(prefers-color-scheme:dark\)(.*?)</style>", svg)
    used = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", svg.replace(dark, "")))
    assert used <= set(re.findall(r': (#[0-9a-f]{6})"', dark))
    assert "system-ui" in svg
    assert not re.search(r'(href|src)="(?!#|data:)', svg)


@pytest.mark.parametrize("name", NAMES)
def test_both_languages_show_the_same_numbers(every: dict[str, dict[str, Any]], name: str) -> None:
    english, chinese = chart_of(every[name], "en"), chart_of(every[name], "zh")
    assert numbers(english) == numbers(chinese)
    assert english.title != chinese.title
    found = [sorted(re.findall(r"\d[\d,.]*\d|\d", texts(chart))) for chart in (english, chinese)]
    assert found[0] == found[1]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_terminal_of_80_columns_is_wide_enough(every: dict[str, dict[str, Any]], name: str, lang: str) -> None:
    lines = rw.plot.text(every[name], lang=lang).splitlines()
    assert max(map(columns, lines)) <= 80
    assert len(lines) > 6
    if lang == "en":
        shades = rw.plot.text(every[name], plain=True)
        assert not set("\u2591\u2592\u2593\u2588") & set(shades)


@pytest.mark.parametrize("name", NAMES)
def test_words_are_there_in_both_languages(name: str) -> None:
    english, chinese = (load(name)[lang] for lang in ("en", "zh"))
    assert list(english) == list(chinese)
    assert {"shows", "title", "about"} <= set(english)
    source = Path(sys.modules[find(name).module.__name__].__file__ or "").read_text(encoding="utf-8")
    for key, text in english.items():
        filled = [{field for _, field, _, _ in string.Formatter().parse(one) if field} for one in (text, chinese[key])]
        assert filled[0] == filled[1], key
        told = f'"{key}"' in source or key == "shows" or re.search(rf'f"({key.split("_")[0]}_|{{\w+}}_)', source)
        assert told or key in looked_up(name), f"{key} is never shown"
        assert not re.search("[\u4e00-\u9fff]", text)


def looked_up(name: str) -> set[str]:
    """Kinds, curves and aspects that a picture looks its words up by."""
    from ropewalk.checkpoints.engines.besides import ASPECTS

    module: Any = find(name).module
    found = {str(one) for constant in ("KINDS", "CURVES", "LOOKS") for one in getattr(module, constant, ())}
    aspects = {aspect.replace(" ", "_").replace("-", "_").lower() for aspect in ASPECTS}
    return found | (aspects if name == "engines" else set())


def test_png_is_the_same_twice_and_dark_where_asked(every: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    for name in ("one.png", "two.png"):
        rw.plot.write(every["layouts"], tmp_path / name)
    rw.plot.write(every["layouts"], tmp_path / "dark.png", dark=True)
    one, two, dark = ((tmp_path / name).read_bytes() for name in ("one.png", "two.png", "dark.png"))
    assert one == two != dark
    assert one.startswith(b"\x89PNG")


def test_chinese_without_a_font_is_an_error_with_the_fix(
    every: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(drawing, "CHINESE", ())
    with pytest.raises(ValueError, match=r"apt install fonts-noto-cjk.*write \.svg"):
        rw.plot.write(every["layouts"], tmp_path / "x.png", lang="zh")
    assert not (tmp_path / "x.png").exists()
    rw.plot.write(every["layouts"], tmp_path / "x.svg", lang="zh")
    rw.plot.write(every["layouts"], tmp_path / "x.png", lang="en")


def test_draws_in_the_callers_axes() -> None:
    from matplotlib.figure import Figure

    axes = Figure(figsize=(8, 5)).subplots()
    assert rw.plot.loss(DOCUMENTS, ax=axes, trained=512) is axes
    (panel,) = axes.child_axes
    drawn = [line for line in panel.get_lines() if len(line.get_xdata()) == 3]
    assert [list(line.get_ydata()) for line in drawn][1] == DOCUMENTS["yarn"]["loss"]


def test_the_numbers_and_the_terminal_need_no_matplotlib(tmp_path: Path) -> None:
    code = f"""
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("matplotlib", "PIL"):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse())
from pathlib import Path
from ropewalk.plot import text, write
from tests.plot.samples import sample_data
found = sample_data(Path({str(tmp_path)!r}))
for name, one in found.items():
    assert text(one)
    write(one, Path({str(tmp_path)!r}) / f"{{name}}.json")
try:
    write(found["masks"], "x.svg")
except ModuleNotFoundError as error:
    print(len(found), error.name)
"""
    path = os.pathsep.join([str(SOURCE / "src"), str(SOURCE)])
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == [str(len(NAMES)), "matplotlib"], done.stderr


def test_pictures_of_configs_need_no_torch(tmp_path: Path) -> None:
    code = f"""
import sys
sys.modules["torch"] = None
from ropewalk.plot import data, text
from tests.plot.samples import samples
from pathlib import Path
every = samples(Path({str(tmp_path)!r}), models=False)
for name in ("wavelengths", "scalings", "unseen", "loss", "run", "clocks", "engines"):
    thing, settings = every[name]
    assert text(getattr(data, name)(thing, **settings))
print("done")
"""
    path = os.pathsep.join([str(SOURCE / "src"), str(SOURCE)])
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.stdout == "done\n", done.stderr


def test_every_picture_says_what_it_takes(tmp_path: Path) -> None:
    for name in NAMES:
        function = getattr(rw.plot, name)
        assert function.__name__ == name
        assert function.__doc__ == load(name)["en"]["shows"]
        picture = find(name)
        if picture.takes and not picture.takes.startswith("["):
            with pytest.raises(ValueError, match=name):
                getattr(rw.plot.data, name)()
    assert samples(tmp_path).keys() == set(NAMES)


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="Did you mean wavelengths"):
        find("wavelength")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        rw.plot.nothing  # noqa: B018
    with pytest.raises(ValueError, match=r"x\.pdf does not say what to write; end it in \.svg, \.png, \.json"):
        rw.plot.write({"picture": "masks"}, "x.pdf")
