"""The parts of pages: safe by construction, two languages, the numbers of a figure beside it."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace

import pytest

from ropewalk.plot import data
from ropewalk.plot.catalogue import chart_of
from ropewalk.plot.chart import Axis, Chart, Heat, Line, Note, Panel, texts
from ropewalk.plot.palette import Palette
from ropewalk.report.chart_svg import key, narrow, svg
from ropewalk.report.markup import anchor, element, html, link
from ropewalk.report.page import page, stylesheet
from ropewalk.report.parts import Heading, Shown, figure, fold, numbers, table, verdict
from tests.report.reading import Page, shown, stands_alone

NASTY = "</script><script>alert('x')</script>\"&\u202egpj\x1b[2J"
TITLE = {"en": "A page", "zh": "\u4e00\u9875"}


def a_chart(label: str = "plain", **more: object) -> Chart:
    line = Line(x=[0, 1, 2], y=[1.0, 10.0, 100.0], label=label)
    panel = Panel(x=Axis(low=0, high=2, label="pair"), y=Axis(low=1, high=100, label="tokens", log=True), marks=[line])
    return replace(Chart(title="T", about="A", panels=[panel]), **more)


def test_text_is_escaped_wherever_it_stands() -> None:
    whole = page(
        {"en": NASTY, "zh": NASTY},
        [
            verdict(NASTY, {"en": NASTY, "zh": NASTY}),
            fold(NASTY, NASTY, id=NASTY),
            table(
                [NASTY, Heading(said={"en": NASTY, "zh": NASTY})],
                [[NASTY, Shown(said=NASTY, value=NASTY)]],
                label=NASTY, stacks=True,
            ),
            figure({"en": a_chart(NASTY, title=NASTY, about=NASTY), "zh": a_chart(NASTY)}, anchor(NASTY)),
            link(NASTY), link("javascript:alert(1)"), link('https://x"><script>', NASTY), link("#" + NASTY),
        ],
    )  # fmt: skip
    stands_alone(whole)
    assert whole.count("<script") == 1
    assert "alert" in shown(whole), "it is shown, as text"
    assert not re.search("[\u202e\x1b]", whole), "nothing turns the text round or moves a cursor"
    hrefs = [found["href"] or "" for found in Page(whole).all("a")]
    assert all(href.startswith(("https://", "#")) for href in hrefs)


def test_a_reader_sees_one_language() -> None:
    whole = page(
        TITLE,
        [element("p", {"en": "Nothing failed.", "zh": "\u5168\u90e8\u901a\u8fc7"}), element("p", {"en": "only so"})],
    )
    assert "Nothing failed." in shown(whole, "en")
    assert "\u5168" not in shown(whole, "en")
    assert "\u5168\u90e8\u901a\u8fc7" in shown(whole, "zh-CN")
    assert "Nothing failed." not in shown(whole, "zh-CN")
    assert "only so" in shown(whole, "zh-CN"), "what has no Chinese is shown, and not left out"
    assert html({"en": "RoPE", "zh": "RoPE"}) == "RoPE"


def test_pages_are_told_apart_by_what_is_in_them_alone() -> None:
    assert page(TITLE, ["x"]) == page(TITLE, ["x"])
    assert "svg .cells" in page(TITLE, [svg(a_chart())])
    assert "svg .cells" not in page(TITLE, ["x"]), "the style of charts comes with charts"


def test_colours_are_those_of_the_pictures() -> None:
    light, dark = Palette(), Palette(dark=True)
    style = stylesheet(charts=True)
    at = style.index("prefers-color-scheme:dark")
    for name in ("page", "ink", "soft"):
        assert f"--{name}:{light.page(name)}" in style[:at]
        assert f"--{name}:{dark.page(name)}" in style[at:]


@pytest.mark.parametrize("name", ["wavelengths", "scalings", "unseen", "biases", "layouts", "masks", "clocks"])
def test_every_kind_of_picture_is_drawn_with_its_words(name: str) -> None:
    chart = chart_of(getattr(data, name)())
    drawn = str(svg(chart))
    assert "nan" not in drawn
    assert "style=" not in drawn
    said = html([*texts(chart.panels)])
    shown_words = re.findall(r"<text[^>]*>([^<]*)</text>", drawn)
    assert {
        word for word in shown_words if not re.fullmatch(r"[\d.,\u2212\u00d710\u2070-\u207f\u00b9\u00b2\u00b3]+", word)
    } <= {str(html(text)) for text in texts(chart.panels)}
    assert said


def test_a_line_goes_through_its_points() -> None:
    chart = a_chart()
    path = re.search(r'<path d="M([^"]*)" class="line t-blue"', svg(chart))
    assert path
    points = [tuple(map(float, point.split())) for point in path[1].split("L")]
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2), "a straight line on a logarithmic axis"
    assert y0 > y2, "up is more"


def test_cells_of_a_heat_map_have_their_places_and_colours() -> None:
    heat = Heat(rows=[[0, 0, 1], [1, None, 0]], low=0, high=1, scale="rising")  # type: ignore[list-item]
    panel = Panel(x=Axis(low=0, high=3), y=Axis(low=0, high=2), marks=[heat])
    drawn = svg(Chart(title="", about="", panels=[panel]))
    assert 'd="M0 0h2v1h-2zM2 1h1v1h-1z" class="cells rising-0"' in drawn
    assert 'd="M2 0h1v1h-1zM0 1h1v1h-1z" class="cells rising-32"' in drawn
    assert re.search(r"scale\([\d.]+ -[\d.]+\)", drawn), "the first row is at the smaller end of y"


def test_on_a_narrow_screen_names_stand_beside_the_picture() -> None:
    chart = a_chart()
    assert "plain" in svg(chart)
    assert "plain" not in svg(narrow(chart))
    assert [name for _, name in key(chart)] == ["plain"]


def test_a_figure_has_its_numbers() -> None:
    drawn = figure({"en": a_chart(), "zh": a_chart("\u672a\u7f29\u653e")}, "f")
    whole = page(TITLE, [drawn])
    assert "2100" in shown(whole).replace(" ", ""), "at 2 the line is at 100"
    assert "\u672a\u7f29\u653e" in shown(whole, "zh-CN")
    ids = {found.get("id") for _, found in Page(whole).tags}
    labels = {word for found in Page(whole).all("svg") for word in (found.get("aria-labelledby") or "").split()}
    assert labels == {"f-title", "f-about"}
    assert labels <= ids


def test_a_heat_map_has_its_numbers_in_runs() -> None:
    names = ["seen", "half", "never"]
    heat = Heat(rows=[[0] * 50 + [2] * 10], low=0, high=2, scale="kinds", names=names)
    panel = Panel(x=Axis(low=0, high=60, label="distance"), y=Axis(low=1, high=0, label="pair"), marks=[heat])
    assert "0\u201349: seen, 50\u201359: never" in shown(
        page(TITLE, [numbers({"en": Chart(title="", about="", panels=[panel])})])
    )


def test_a_note_keeps_its_place() -> None:
    panel = Panel(x=Axis(low=0, high=1), y=Axis(low=0, high=1), marks=[Note(x=1, y=0.5, text="here", align="right")])
    assert 'text-anchor="end">here</text>' in svg(Chart(title="", about="", panels=[panel]))


def test_pages_need_no_drawing_library() -> None:
    code = """
import sys
sys.modules["matplotlib"] = None
import ropewalk.report.parts, ropewalk.report.scoreboard_page
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
