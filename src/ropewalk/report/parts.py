"""What pages are made of: a verdict, a figure with its numbers, a table that sorts, something folded away.

Words are text or {"en": ..., "zh": ...}; everything is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ropewalk.plot.chart import Chart, Heat, Line, Panel, number
from ropewalk.report.chart_svg import NARROW, key, narrow, svg
from ropewalk.report.markup import Content, Html, each_language, element, html

DATA = {"en": "Show the numbers", "zh": "\u67e5\u770b\u6570\u636e"}
COLUMNS = 40
"""Most columns of a table of numbers; a heat map with more is shown by its rows' runs."""


def verdict(said: Content, *more: Content, good: bool | None = None) -> Html:
    """What was found, before anything else; good: True, False, or None where it is neither."""
    look = "" if good is None else " good" if good else " bad"
    return element(
        "div", element("p", element("strong", said)), *(element("p", one) for one in more), class_=f"verdict{look}"
    )


def fold(title: Content, *inside: Content, opened: bool = False, **attributes: Any) -> Html:
    """Behind its title, opened by a click or a key. The anchor is on what is inside: a link to it opens it."""
    return element(
        "details", element("summary", title), element("div", *inside, class_="inside", **attributes), open=opened
    )


@dataclass(frozen=True, kw_only=True)
class Heading:
    """Of a column."""

    said: Content
    number: bool = False


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A cell that is more than its text."""

    said: Content
    look: str = ""
    """good, bad, fair or none."""
    value: float | str | None = None
    """What it sorts by, where that is not its text."""


def table(
    headings: Sequence[Heading | Content],
    rows: Sequence[Sequence[Shown | Content]],
    *,
    label: Content,
    sorts: bool = True,
    stacks: bool = False,
) -> Html:
    """The first column names the rows. `stacks`: on a narrow screen each row is a card with its headings."""
    heads = [one if isinstance(one, Heading) else Heading(said=one) for one in headings]
    top = [element("th", one.said, scope="col", class_="number" if one.number else None) for one in heads]
    body = []
    for row in rows:
        cells = [one if isinstance(one, Shown) else Shown(said=one) for one in row]
        first = element("th", cells[0].said, scope="row", data_value=cells[0].value)
        rest = [_cell(head, one, stacks) for head, one in zip(heads[1:], cells[1:], strict=True)]
        body.append(element("tr", first, rest))
    whole = element(
        "table",
        element("caption", element("span", label, class_="aside")),
        element("thead", element("tr", top)),
        element("tbody", body),
        class_="sorts" if sorts and len(rows) > 1 else None,
    )
    # Focusable, so that it can be scrolled with keys.
    return element("div", whole, class_="scrolls stacks" if stacks else "scrolls", tabindex="0")


def _cell(head: Heading, one: Shown, stacks: bool) -> Html:
    names = head.said if isinstance(head.said, Mapping) else {"en": head.said, "zh": head.said}
    labels = {f"data_{language}": str(words) for language, words in names.items()} if stacks else {}
    classes = f"{'number ' * head.number}{one.look}".strip() or None
    # In one piece, which a narrow screen puts beside its heading.
    said = element("div", one.said) if stacks and one.said else one.said
    return element("td", said, class_=classes, data_value=one.value, **labels)


def figure(charts: Mapping[str, Chart], name: str, data: Content = None) -> Html:
    """A chart in each language, wide and narrow, what there is to see in words, and its numbers behind a button:
    `data`, or those of its lines and cells."""
    title = {language: chart.title for language, chart in charts.items()}
    about = {language: chart.about for language, chart in charts.items()}
    labels = f"{name}-title {name}-about"
    drawn = [
        each_language(
            "div", {language: svg(chart, aria_labelledby=labels) for language, chart in charts.items()}, class_="normal"
        ),
        each_language(
            "div",
            {language: svg(narrow(chart), NARROW, aria_labelledby=labels) for language, chart in charts.items()},
            class_="narrow",
        ),
    ]
    keys = {language: _key(chart) for language, chart in charts.items()}
    if any(keys.values()):
        # Names at the ends of lines have their colours and not their dashes.
        shown = any(_alike(chart) for chart in charts.values())
        drawn.insert(0, each_language("ul", keys, class_="key shown" if shown else "key"))
    caption = element(
        "figcaption", element("strong", title, id=f"{name}-title"), element("p", about, id=f"{name}-about")
    )
    return element("figure", caption, drawn, fold(DATA, data or numbers(charts)), class_="chart", id=name)


def _alike(chart: Chart) -> bool:
    """Whether two lines of a panel are told apart by their dashes alone."""
    each = [[m.tone for m in panel.marks if isinstance(m, Line) and m.label] for panel in chart.panels]
    return any(len(set(tones)) < len(tones) for tones in each)


def _key(chart: Chart) -> Html:
    return html([element("li", mark, label) for mark, label in key(chart)])


def numbers(charts: Mapping[str, Chart]) -> Html:
    """The table behind a figure: what every line and every cell of it is."""
    found = []
    for panels in zip(*(chart.panels for chart in charts.values()), strict=True):
        each = dict(zip(charts, panels, strict=True))
        title = {language: panel.title or charts[language].title for language, panel in each.items()}
        found += [_lines(each, title), _heats(each, title)]
    return html(found)


def _lines(panels: Mapping[str, Panel], title: Mapping[str, str]) -> Html:
    first = next(iter(panels.values()))
    lines = {language: [m for m in panel.marks if isinstance(m, Line)] for language, panel in panels.items()}
    own = [mark for mark in first.marks if isinstance(mark, Line)]
    if not own:
        return Html()
    across = {language: panel.x.label for language, panel in panels.items()}
    up = {language: panel.y.label for language, panel in panels.items()}
    names = [{language: found[i].label or up[language] for language, found in lines.items()} for i in range(len(own))]
    at = sorted({x for mark in own for x in mark.x})
    known = [dict(zip(mark.x, mark.y, strict=True)) for mark in own]
    rows = [[_number(x), *(_number(one.get(x)) for one in known)] for x in at]
    headings = [Heading(said=across), *(Heading(said=name, number=True) for name in names)]
    return table(headings, rows, label=title)


def _heats(panels: Mapping[str, Panel], title: Mapping[str, str]) -> Html:
    heats = {language: [m for m in panel.marks if isinstance(m, Heat)] for language, panel in panels.items()}
    first = next(iter(heats.values()))
    found = []
    for i, mark in enumerate(first):
        across = {language: panel.x.label for language, panel in panels.items()}
        up = {language: panel.y.label for language, panel in panels.items()}
        names = [{language: heats[language][i].names[kind] for language in heats} for kind in range(len(mark.names))]
        named = {language: dict(panel.y.ticks or ()) for language, panel in panels.items()}
        rows = [
            [{language: ticks.get(place + 0.5, str(place)) for language, ticks in named.items()}, _runs(row, names)]
            for place, row in enumerate(mark.rows)
        ]
        if panels[next(iter(panels))].y.low < panels[next(iter(panels))].y.high:
            rows.reverse()  # as drawn, where the first is at the bottom
        headings = [{language: up[language] or "#" for language in up}, across]
        found.append(table(headings, rows, label=title, sorts=False))
    return html(found)


def _runs(row: Sequence[float], names: Sequence[Mapping[str, str]]) -> Content:
    """A row of a heat map: each stretch of equal cells once, with where it begins and ends."""
    if len(row) <= COLUMNS and not names:
        return ", ".join(_number(value) for value in row)
    parts: list[Content] = []
    start = 0
    for end in range(1, len(row) + 1):
        if end == len(row) or row[end] != row[start]:
            said: Content = names[round(row[start])] if names else _number(row[start])
            place = f"{start}" if end == start + 1 else f"{start}\u2013{end - 1}"
            parts += [", " if parts else "", place, ": ", said]
            start = end
    return parts


def _number(value: float | None) -> str:
    return "" if value is None or value != value else number(float(f"{value:.6g}"))
