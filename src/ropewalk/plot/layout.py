"""Where the panels of a chart lie, in inches, and where the names of lines go so that none covers another.

Widths of words are reckoned, not measured, so that a chart has one layout whatever fonts a machine has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ropewalk.plot.chart import Chart, Heat, Line, Panel
from ropewalk.plot.words import wide, wrapped

LINE_HEIGHT = 0.21
LABEL_GAP = 0.175
"""Between the names of two lines."""
EDGE = 0.15
BETWEEN = 0.2


@dataclass(frozen=True)
class Box:
    left: float
    bottom: float
    width: float
    height: float
    outer: float
    """Where the labels of its axis begin."""


def inches(text: str, size: float, narrow: float = 0.58) -> float:
    """narrow: of a sign that is not as wide as it is high; the default leaves room."""
    return sum(1.0 if wide(sign) else narrow for sign in text) * size / 72


def total_height(chart: Chart, width: float) -> float:
    about = len(about_lines(chart, width))
    rows = -(-len(chart.panels) // chart.columns)
    return 0.42 + about * LINE_HEIGHT + rows * chart.height + 0.12


def about_lines(chart: Chart, width: float) -> list[str]:
    return wrapped(chart.about, width - 2 * EDGE, lambda text: inches(text, 10.5, narrow=0.53))


def boxes(chart: Chart, width: float, top: float) -> list[Box]:
    """The place of each panel's axes in a frame of this width, below `top`."""
    found: list[Box] = []
    rows = [chart.panels[i : i + chart.columns] for i in range(0, len(chart.panels), chart.columns)]
    height = (top - 0.12) / max(len(rows), 1)
    for number, row in enumerate(rows):
        # A short last row keeps the columns of those above it.
        shares = [panel.share for panel in (row if len(row) == chart.columns else chart.panels[: chart.columns])]
        room = width - 2 * EDGE - BETWEEN * (chart.columns - 1)
        left, above, below = EDGE, max(map(_above, row)), max(map(_below, row))
        for panel, share in zip(row, shares, strict=False):
            wide_cell = room * share / sum(shares)
            bottom = top - 0.06 - (number + 1) * height
            found.append(_box(panel, left, bottom, wide_cell, height, above, below))
            left += wide_cell + BETWEEN
    return found


def _box(panel: Panel, left: float, bottom: float, width: float, height: float, above: float, below: float) -> Box:
    ticks = [text for _, text in panel.y.marks()] if panel.frame or panel.y.ticks is not None else []
    before = max((inches(text, 9.5) for text in ticks), default=0) + 0.09
    labels = [mark.label for mark in panel.marks if isinstance(mark, Line) and mark.label]
    after = max((inches(label, 9.5) for label in labels), default=0) + (0.12 if labels else 0.05)
    inner_width, inner_height = width - before - after, height - above - below
    if panel.square:
        unit = min(
            inner_width / abs(panel.x.high - panel.x.low), inner_height / abs(panel.y.high - panel.y.low)
        )  # fmt: skip
        tall = unit * abs(panel.y.high - panel.y.low)
        below += inner_height - tall
        inner_width, inner_height = unit * abs(panel.x.high - panel.x.low), tall
    return Box(left + before, bottom + below, inner_width, inner_height, left)


def _above(panel: Panel) -> float:
    bar = any(isinstance(mark, Heat) and mark.bar for mark in panel.marks)
    return max(0.16 + 0.20 * bool(panel.y.label) + 0.22 * bool(panel.title), 0.34 if bar else 0)


def _below(panel: Panel) -> float:
    return 0.08 + 0.2 * bool(panel.frame or panel.x.ticks) + 0.22 * bool(panel.x.label)


def label_places(panel: Panel, lines: Sequence[Line], height: float) -> list[float]:
    """How high the name of each line stands, as a share of the panel: at the line's end, or as near as it can."""
    gap = LABEL_GAP / height
    ends = [min(max(panel.y.share(_last(line)), 0.0), 1.0) for line in lines]
    order = sorted(range(len(lines)), key=lambda i: (ends[i], i))
    places = [ends[i] for i in order]
    for _ in range(200):  # push neighbours apart until none touch
        moved = False
        for low, high in zip(range(len(places)), range(1, len(places)), strict=False):
            if places[high] - places[low] < gap - 1e-6:
                middle = (places[high] + places[low]) / 2
                places[low], places[high] = middle - gap / 2, middle + gap / 2
                moved = True
        if not moved:
            break
    if places and places[0] < 0:
        places = [max(place, i * gap) for i, place in enumerate(places)]
    spread = dict(zip(order, places, strict=True))
    return [spread[i] for i in range(len(lines))]


def _last(line: Line) -> float:
    return next((y for y in reversed(line.y) if y is not None and y == y), 0.0)
