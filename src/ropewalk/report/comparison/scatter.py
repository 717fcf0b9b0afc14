"""Points with their names beside them, none over another: also where many lie close together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from ropewalk.plot.chart import Arrow, Chart, Line, Mark, Note, Panel
from ropewalk.plot.layout import LABEL_GAP, Box, boxes, inches
from ropewalk.report.chart_svg import NARROW

GAP = 0.1
"""Inches between a dot and its name."""
DOT = 0.06
"""Half of its height and width, with a little room."""


class Spot(NamedTuple):
    x: float
    y: float
    name: str
    tone: str


class _Area(NamedTuple):
    left: float
    bottom: float
    right: float
    top: float

    def touches(self, other: _Area) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.bottom < other.top and other.bottom < self.top
        )


def marked(panel: Panel, spots: Sequence[Spot], height: float) -> list[Mark]:
    """Dots, names, and a line from a dot to its name where that had to go elsewhere. A spot above the panel has its
    name at the top edge and no dot. Places are found on a narrow screen: a wide one has more room between them. height:
    of the chart."""
    chart = Chart(title="", about="", panels=[panel], height=height)
    (box,) = boxes(chart, NARROW, height + 0.12)
    at = {spot: (panel.x.share(spot.x) * box.width, panel.y.share(spot.y) * box.height) for spot in spots}
    # Who comes first has the place beside its dot: of some orders the one in which names go least far.
    upwards = sorted(spots, key=lambda one: at[one][1])
    orders = (upwards[::-1], upwards, sorted(spots, key=lambda one: -one.x))
    places, _ = min((_placed(order, at, box) for order in orders), key=lambda found: found[1])
    marks: list[Mark] = []
    for spot, (side, area) in places.items():
        middle = panel.y.low + (area.bottom + area.top) / 2 / box.height * (panel.y.high - panel.y.low)
        beside = spot.x + side * GAP / box.width * (panel.x.high - panel.x.low)
        if at[spot][1] <= box.height:
            marks.append(Line(x=[spot.x], y=[spot.y], tone=spot.tone, dots=True, joined=False))
            if abs((area.bottom + area.top) / 2 - at[spot][1]) > LABEL_GAP / 2:
                marks.append(Arrow(start=(spot.x, spot.y), end=(beside, middle), bare=True))
        # A space that does not break, since SVG drops others.
        said, align = (f"\u00a0{spot.name}", "left") if side > 0 else (f"{spot.name}\u00a0", "right")
        marks.append(Note(x=beside, y=middle, text=said, tone=spot.tone, align=align))
    return marks


def _placed(
    order: Sequence[Spot], at: Mapping[Spot, tuple[float, float]], box: Box
) -> tuple[dict[Spot, tuple[int, _Area]], float]:
    """On which side of its dot each name stands and where, and how far they are from their dots in all."""
    taken = [_Area(x - DOT, y - DOT, x + DOT, y + DOT) for x, y in at.values() if y <= box.height]
    places: dict[Spot, tuple[int, _Area]] = {}
    away = 0.0
    for spot in order:
        x, y = at[spot][0], min(at[spot][1], box.height)
        side, area = next(one for one in _places(spot.name, x, y, box) if _free(one[1], taken, box))
        taken.append(area)
        places[spot] = (side, area)
        away += abs((area.bottom + area.top) / 2 - y)
    return places, away


def _places(name: str, x: float, y: float, box: Box) -> Iterator[tuple[int, _Area]]:
    """Beside the dot, right or left, then higher and lower; in the end anywhere."""
    width = inches(f"{name} ", 9.5)
    for step in count():
        for middle in (y + step * LABEL_GAP / 2, y - step * LABEL_GAP / 2):
            for side in (1, -1):
                left = x + GAP if side > 0 else x - GAP - width
                yield side, _Area(left, middle - LABEL_GAP / 2, left + width, middle + LABEL_GAP / 2)
        if step * LABEL_GAP > 4 * box.height:
            # No room is left: better over another than nowhere.
            while True:
                yield 1, _Area(x, y, x, y)


def _free(area: _Area, taken: Sequence[_Area], box: Box) -> bool:
    within = (
        area.left >= 0 and area.right <= box.width and area.bottom >= -LABEL_GAP / 2 and area.top <= box.height + 0.1
    )
    return (within and not any(area.touches(other) for other in taken)) or area.left == area.right
