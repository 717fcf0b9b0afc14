"""A chart of `ropewalk.plot` as SVG inside a page: colours are classes, so it is light or dark as the page is.

Written without a drawing library. Title and words about it are the page's own (`parts.figure`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ropewalk.plot.chart import Arrow, Axis, Cell, Chart, Heat, Level, Line, Mark, Note, Panel, Shade, number
from ropewalk.plot.layout import Box, boxes, inches, label_places
from ropewalk.plot.palette import DASHES
from ropewalk.report.markup import Html, element
from ropewalk.report.page import STEPS

DOTS = 88
"""To an inch, so that the layout's 9.5 points are 11.6 dots."""
NORMAL, NARROW = 8.2, 4.05
"""Inches: a column of text, and the screen of a telephone."""
ALIGNED = {"left": "start", "center": "middle", "right": "end"}


def svg(chart: Chart, width: float = NORMAL, **attributes: Any) -> Html:
    """One drawing of so many inches; a page scales it."""
    rows = -(-len(chart.panels) // chart.columns)
    height = rows * chart.height + 0.12
    drawn = [
        _Frame(panel, box, height).drawn() for panel, box in zip(chart.panels, boxes(chart, width, height), strict=True)
    ]
    size = f"0 0 {_n(width * DOTS)} {_n(height * DOTS)}"
    return element("svg", drawn, viewBox=size, role="img", **attributes)


def narrow(chart: Chart) -> Chart:
    """For a narrow screen: panels below one another, and no names in them, which `key` has instead."""
    panels = [replace(panel, marks=[_unnamed(mark) for mark in panel.marks]) for panel in chart.panels]
    return replace(chart, panels=panels, columns=1)


def _unnamed(mark: Mark) -> Mark:
    if isinstance(mark, Line):
        return replace(mark, label="")
    return replace(mark, bar=False) if isinstance(mark, Heat) and mark.names else mark


def key(chart: Chart) -> list[tuple[Html, str]]:
    """Each named line and each named kind of cell once: a piece of it, and its name."""
    marks = [mark for panel in chart.panels for mark in panel.marks]
    found = {m.label: _stroke("M0 6H28", m) for m in marks if isinstance(m, Line) and m.label}
    for mark in (mark for mark in marks if isinstance(mark, Heat)):
        for kind, name in enumerate(mark.names):
            found[name] = _rect(8, 0, 12, 12, f"cells {mark.scale}-{_step(kind, mark)}")
    return [(element("svg", drawn, viewBox="0 0 28 12", aria_hidden="true"), name) for name, drawn in found.items()]


class _Frame:
    """One panel: where its values lie in the drawing."""

    def __init__(self, panel: Panel, box: Box, height: float) -> None:
        self.panel, self.box = panel, box
        self.left, self.top = box.left * DOTS, (height - box.bottom - box.height) * DOTS
        self.width, self.height = box.width * DOTS, box.height * DOTS

    def x(self, value: float) -> float:
        return self.left + self.width * self.panel.x.share(value)

    def y(self, value: float) -> float:
        return self.top + self.height * (1 - self.panel.y.share(value))

    def drawn(self) -> list[Html]:
        parts = [*self._grid(), *self._headings()]
        for mark in self.panel.marks:
            parts += _MARKS[type(mark)](self, mark)
        return parts + self._names()

    def _grid(self) -> Iterable[Html]:
        panel, bottom, right = self.panel, self.top + self.height, self.left + self.width
        grid = panel.frame and not any(isinstance(mark, Heat) for mark in panel.marks)
        for value, said in _ticks(panel.x, panel.frame):
            at = self.x(value)
            if grid:
                yield element("path", d=f"M{_n(at)} {_n(self.top)}V{_n(bottom)}", class_="grid")
            yield _text(at, bottom + 15, said, "soft", "center")
        for value, said in _ticks(panel.y, panel.frame):
            at = self.y(value)
            if grid:
                yield element("path", d=f"M{_n(self.left)} {_n(at)}H{_n(right)}", class_="grid")
            yield _text(self.left - 6, at + 4, said, "soft", "right")

    def _headings(self) -> Iterable[Html]:
        panel, outer, above = self.panel, self.box.outer * DOTS, self.top - 11
        if panel.y.label:
            yield _text(outer, above, panel.y.label, "soft")
            above -= 18
        if panel.title:
            yield _text(outer, above, panel.title, "bold")
        if panel.x.label:
            under = 34 if _ticks(panel.x, panel.frame) else 17
            yield _text(self.left + self.width / 2, self.top + self.height + under, panel.x.label, "soft", "center")

    def _names(self) -> list[Html]:
        """Of the lines, at their ends, none over another."""
        lines = [mark for mark in self.panel.marks if isinstance(mark, Line) and mark.label]
        places = label_places(self.panel, lines, self.box.height)
        right = self.left + self.width + 7
        return [
            _text(right, self.top + self.height * (1 - share) + 4, line.label, f"name {_tone(line.tone)}")
            for line, share in zip(lines, places, strict=True)
        ]

    def line(self, mark: Line) -> Iterable[Html]:
        points = [(self.x(x), self.y(y)) for x, y in zip(mark.x, mark.y, strict=True) if y is not None and y == y]
        if mark.low is not None and mark.high is not None:
            upper = [(self.x(x), self.y(y)) for x, y in zip(mark.x, mark.high, strict=True)]
            lower = [(self.x(x), self.y(y)) for x, y in zip(mark.x, mark.low, strict=True)]
            yield element("path", d=f"{_path([*upper, *reversed(lower)])}Z", class_=f"band {_tone(mark.tone)}")
        if mark.joined:
            yield _stroke(_path(points), mark)
        if mark.dots:
            # A stroke without a length and with round ends is a dot, in a third of the signs of a circle.
            spots = "".join(f"M{_n(x)} {_n(y)}h.01" for x, y in points)
            yield element("path", d=spots, class_=f"dots {_tone(mark.tone)}{' large' * (not mark.joined)}")

    def level(self, mark: Level) -> Iterable[Html]:
        if mark.axis == "x":
            at = self.x(mark.at)
            yield element("path", d=f"M{_n(at)} {_n(self.top)}V{_n(self.top + self.height)}", class_="level")
            before = self.panel.x.share(mark.at) >= 0.6
            place = (at + (-6 if before else 6), self.top + 13)
            yield _text(*place, mark.label, "soft", "right" if before else "left")
        else:
            at = self.y(mark.at)
            yield element("path", d=f"M{_n(self.left)} {_n(at)}H{_n(self.left + self.width)}", class_="level")
            yield _text(self.left + 6, at - 5, mark.label, "soft")

    def shade(self, mark: Shade) -> Iterable[Html]:
        low, high = sorted((self.y(mark.low), self.y(mark.high)))
        yield _rect(self.left, low, self.width, high - low, "shade")
        yield _text(self.left + 6, low + 16, mark.label, "soft")

    def heat(self, mark: Heat) -> Iterable[Html]:
        """Cells of one colour are one path, and neighbours in a row one rectangle: a map of thousands stays small."""
        runs: dict[int, list[str]] = {}
        for number_, row in enumerate(mark.rows):
            start = 0
            steps = [_step(value, mark) for value in row]
            for end in range(1, len(steps) + 1):
                if end < len(steps) and steps[end] == steps[start]:
                    continue
                if (step := steps[start]) is not None:
                    runs.setdefault(step, []).append(f"M{start} {number_}h{end - start}v1h{start - end}z")
                start = end
        across, down = len(mark.rows[0]), len(mark.rows)
        downward = self.panel.y.low > self.panel.y.high
        up, from_y = (self.height / down, self.top) if downward else (-self.height / down, self.top + self.height)
        turned = f"translate({_n(self.left)} {_n(from_y)}) scale({self.width / across:.5f} {up:.5f})"
        cells = [element("path", d="".join(runs[step]), class_=f"cells {mark.scale}-{step}") for step in sorted(runs)]
        yield element("g", cells, transform=turned, shape_rendering="crispEdges")
        if mark.scale == "rising":  # its lowest colour is nearly that of the page
            yield _rect(self.left, self.top, self.width, self.height, "grid")
        if mark.bar:
            yield from self._bar(mark)

    def _bar(self, mark: Heat) -> Iterable[Html]:
        """At the right, above the panel: what the colours mean."""
        right, above = self.left + self.width, self.top - 11
        if mark.names:
            for kind in reversed(range(len(mark.names))):
                right -= inches(mark.names[kind], 9.5) * DOTS
                yield _text(right, above, mark.names[kind], "soft")
                right -= 16
                step = _step(kind, mark)
                yield _rect(right, above - 9, 11, 11, f"cells {mark.scale}-{step}")
                right -= 14
            return
        low, high = (number(float(f"{end:.3g}")) for end in (mark.low, mark.high))
        yield _text(right, above, high, "soft", "right")
        left = right - inches(high, 9.5) * DOTS - 7 - 3 * (STEPS + 1)
        for step in range(STEPS + 1):
            yield _rect(left + 3 * step, above - 9, 3, 10, f"cells {mark.scale}-{step}")
        yield _text(left - 7, above, low, "soft", "right")

    def cell(self, mark: Cell) -> Iterable[Html]:
        left, right = sorted((self.x(mark.x - 0.5), self.x(mark.x + 0.5)))
        top, bottom = sorted((self.y(mark.y - 0.5), self.y(mark.y + 0.5)))
        if not mark.faint:
            yield _rect(left, top, right - left, bottom - top, f"cell f-{mark.fill}")
        yield _text((left + right) / 2, (top + bottom) / 2 + 4, mark.text, "soft" if mark.faint else "", "center")

    def arrow(self, mark: Arrow) -> Iterable[Html]:
        (x0, y0), (x1, y1) = ((self.x(x), self.y(y)) for x, y in (mark.start, mark.end))
        yield element("path", d=_path([(x0, y0), (x1, y1)]), class_=f"line {_tone(mark.tone)}")
        length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
        if not mark.bare and length:
            along, across = ((x1 - x0) / length, (y1 - y0) / length), (-(y1 - y0) / length, (x1 - x0) / length)
            back = [(x1 - 9 * along[0] + s * 4 * across[0], y1 - 9 * along[1] + s * 4 * across[1]) for s in (1, -1)]
            yield element("path", d=f"{_path([(x1, y1), *back])}Z", class_=f"dot {_tone(mark.tone)}")

    def note(self, mark: Note) -> Iterable[Html]:
        classes = f"name {_tone(mark.tone)}{' bold' * mark.bold}"
        yield _text(self.x(mark.x), self.y(mark.y) + 4, mark.text, classes, mark.align)


_MARKS: dict[type, Callable[[_Frame, Any], Iterable[Html]]] = {
    Line: _Frame.line,
    Level: _Frame.level,
    Shade: _Frame.shade,
    Heat: _Frame.heat,
    Cell: _Frame.cell,
    Arrow: _Frame.arrow,
    Note: _Frame.note,
}


def _ticks(axis: Axis, frame: bool) -> list[tuple[float, str]]:
    return axis.marks() if frame or axis.ticks is not None else []


def _step(value: float | None, mark: Heat) -> int | None:
    if value is None or value != value:
        return None
    share = min(max((value - mark.low) / (mark.high - mark.low), 0.0), 1.0)
    return round(share * 2) * STEPS // 2 if mark.scale in ("kinds", "trio") else round(share * STEPS)


def _tone(name: str) -> str:
    return f"graded-{round(float(name.partition(':')[2]) * STEPS)}" if name.startswith("graded:") else f"t-{name}"


def _stroke(path: str, mark: Line) -> Html:
    dashes = " ".join(_n(2 * length) for length in DASHES[mark.dashes]) if mark.joined else ""
    return element(
        "path", d=path, class_=f"line {_tone(mark.tone)}{' thick' * mark.thick}", stroke_dasharray=dashes or None
    )


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in points) if points else ""


def _rect(x: float, y: float, width: float, height: float, classes: str) -> Html:
    return element("rect", x=_n(x), y=_n(y), width=_n(width), height=_n(height), class_=classes)


def _text(x: float, y: float, text: str, classes: str = "", align: str = "left") -> Html:
    if not text:
        return Html()
    anchored = ALIGNED[align] if align != "left" else None
    return element("text", text, x=_n(x), y=_n(y), class_=classes or None, text_anchor=anchored)


def _n(value: float) -> str:
    """To a tenth of a dot, in as few signs as that takes."""
    return f"{value:.1f}".removesuffix(".0")
