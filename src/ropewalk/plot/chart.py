"""What a picture consists of, before anything draws it: panels with axes and marks, in plain numbers and words.

A picture makes one of these from its data. `drawing` draws it with matplotlib, `characters` in a terminal, and a page
can draw it in its own way; so all of them show the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

RAISED = str.maketrans("0123456789-", "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b")

Data = dict[str, Any]
"""The numbers of a picture: lists, numbers and words, as JSON has them; `picture` says of which."""
Numbers = Sequence[float]
Ticks = Sequence[tuple[float, str]]


@dataclass(frozen=True, kw_only=True)
class Axis:
    """low may be above high: the axis then runs the other way."""

    low: float
    high: float
    label: str = ""
    log: bool = False
    ticks: Ticks | None = None
    """Where and what; worked out where it is None."""

    def share(self, value: float) -> float:
        """How far along the axis a value is, 0 to 1."""
        low, high, here = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return (here - low) / (high - low)

    def marks(self) -> list[tuple[float, str]]:
        if self.ticks is not None:
            return list(self.ticks)
        low, high = sorted((self.low, self.high))
        values = _powers(low, high) if self.log else _steps(low, high)
        return [(value, number(value)) for value in values]


@dataclass(frozen=True, kw_only=True)
class Line:
    x: Numbers
    y: Numbers
    label: str = ""
    """Written at its end, in its colour; lines without one need a `key`."""
    tone: str = "blue"
    dashes: int = 0
    """Which pattern of palette.DASHES."""
    thick: bool = False
    dots: bool = False
    joined: bool = True
    """False for dots without a line through them."""
    low: Numbers | None = None
    """The lower edge of a band around it, with `high`."""
    high: Numbers | None = None


@dataclass(frozen=True, kw_only=True)
class Level:
    """A straight line across the panel at one value of x or y."""

    axis: str
    at: float
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class Shade:
    """A band across the panel between two values of y."""

    low: float
    high: float
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class Heat:
    """Cells of equal size between the ends of the axes, coloured by their numbers; rows go with y, the
    first at its smaller end."""

    rows: Sequence[Numbers]
    low: float
    high: float
    scale: str = "diverging"
    """diverging, rising, or kinds and trio: 0, 1, 2 for three kinds of cell, the last of most note or all alike."""
    bar: bool = True
    """Show what the colours mean: their ends, or the names of the kinds."""
    names: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A square of one by one whose middle is here."""

    x: float
    y: float
    text: str = ""
    fill: str = "none"
    faint: bool = False


@dataclass(frozen=True, kw_only=True)
class Arrow:
    start: tuple[float, float]
    end: tuple[float, float]
    tone: str = "soft"
    bare: bool = False
    """A line without a head."""


@dataclass(frozen=True, kw_only=True)
class Note:
    x: float
    y: float
    text: str
    tone: str = "soft"
    align: str = "left"
    bold: bool = False


Mark = Line | Level | Shade | Heat | Cell | Arrow | Note


@dataclass(frozen=True, kw_only=True)
class Panel:
    x: Axis
    y: Axis
    marks: Sequence[Mark]
    title: str = ""
    frame: bool = True
    """Draw ticks and a grid; a table of cells has none."""
    square: bool = False
    """One unit is as long in x as in y."""
    share: float = 1.0
    """Of the width of its row of panels, against the others'."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    title: str
    about: str
    """One or two sentences: what there is to see."""
    panels: Sequence[Panel] = field(default_factory=tuple)
    columns: int = 1
    height: float = 3.2
    """Of each row of panels, in inches of a picture nine inches wide."""


def texts(part: Any) -> list[str]:
    """Every word of a chart or of a part of it."""
    if isinstance(part, str):
        return [part]
    if is_dataclass(part):
        return [text for one in fields(part) for text in texts(getattr(part, one.name))]
    return [text for one in part for text in texts(one)] if isinstance(part, (list, tuple)) else []


def number(value: float) -> str:
    """As an axis shows it: 8,192, 0.25, 10 to a power."""
    if value and (abs(value) >= 1e6 or abs(value) < 1e-3):
        power = math.floor(math.log10(abs(value)) + 1e-9)
        head = value / 10.0**power
        front = "" if abs(head - 1) < 1e-9 else f"{head:.3g}\u00d7"
        return f"{front}10{str(power).translate(RAISED)}"
    return f"{value:,.6g}".replace("-", "\u2212")


def spread(low: float, high: float, count: int) -> list[int]:
    """About so many whole numbers from low to high, each twice as far from the next as from the one before, roughly."""
    steps = [low * (high / low) ** (i / (count - 1)) for i in range(count)]
    return sorted({round(step) for step in steps})


def _powers(low: float, high: float) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if last - first < 2:
        every = [m * 10.0**p for p in range(first - 1, last + 1) for m in (1, 2, 5)]
        return [value for value in every if low <= value * (1 + 1e-9) and value <= high * (1 + 1e-9)]
    step = max(1, (last - first) // 6)
    return [10.0**power for power in range(first, last + 1, step)]


def _steps(low: float, high: float, most: int = 6) -> list[float]:
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(count * step, 12) for count in range(first, last + 1)]
