"""The figures of a comparison: a line for each arm, the reference in the same colour everywhere."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ropewalk.plot.chart import Axis, Chart, Level, Line, Note, Panel
from ropewalk.report.words import Words

words = Words("compare")
TONES = ("orange", "blue", "green", "violet", "gold", "grey")
ROOM = 1.5
"""Nats above the best arm's worst loss that a picture shows: what explodes leaves it."""


def look(names: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Tone and dashes of each arm, never both of another's."""
    count = len(TONES)
    return {name: (TONES[(n + n // count) % count], n % count) for n, name in enumerate(names)}


def positions(text: Mapping[str, Any], language: str, *, whole: bool = False) -> Chart:
    """whole: lines are not cut where they leave the picture."""
    lines, looks = [], look(list(text["arms"]))
    for name, arm in text["arms"].items():
        parts = [part for part in arm["by_position"] if None not in part["loss"]]
        if parts:
            at = [math.sqrt(part["from"] * part["to"]) for part in parts]
            lines.append(_line(name, at, [part["loss"] for part in parts], looks))
    reached = [name for name, arm in text["arms"].items() if arm["reach"]]
    but = words("position_but", names=", ".join(reached)) if reached else ""
    about = words("position_about", pieces=text["pieces"], but=but)[language]
    return _chart(lines, text, words("position_title")[language], about, words("position")[language], language, whole)


def protocol(text: Mapping[str, Any], which: str, language: str, *, whole: bool = False) -> Chart:
    """which: same, the same tokens with more context; windows, non-overlapping. whole: as of `positions`."""
    key, across = ("same_tokens", "context") if which == "same" else ("non_overlapping", "window")
    lines, looks = [], look(list(text["arms"]))
    for name, arm in text["arms"].items():
        each = {int(n): row for n, row in arm[key].items() if not isinstance(row, str) and row and None not in row}
        if each:
            lines.append(_line(name, list(each), list(each.values()), looks, dots=True))
    about = words(f"{which}_about", tail=text["tail"])[language]
    return _chart(lines, text, words(f"{which}_title")[language], about, words(across)[language], language, whole)


def task(tasks: Mapping[str, Any], one: str, language: str) -> Chart:
    looks, marks = look(list(tasks["arms"])), []
    lengths = [float(n) for n in tasks["lengths"]]
    step = (max(lengths) - min(lengths) or 1) * 0.006
    for number, (name, arm) in enumerate(tasks["arms"].items()):
        known = [(n, arm["exact"][one][f"{n:g}"]["points"]) for n in lengths]
        rows = [(n + step * number, row) for n, row in known if row and not isinstance(row, str)]
        if not rows:
            continue
        tone, dashes = looks[name]
        each = [(n, share) for n, row in rows for share in row]
        marks.append(Line(x=[n for n, _ in each], y=[y for _, y in each], tone=tone, dots=True, joined=False))
        middle = [statistics.median(row) for _, row in rows]
        marks.append(Line(x=[n for n, _ in rows], y=middle, label=name, tone=tone, dashes=dashes))
    room = (max(lengths) - min(lengths) or 1) * 0.04
    ticks = [(n, f"{n:g}") for n in lengths]
    panel = Panel(
        x=Axis(low=min(lengths) - room, high=max(lengths) + 2 * room, label=words("symbols")[language], ticks=ticks),
        y=Axis(low=-0.04, high=1.04, label=words("right")[language], ticks=[(n / 4, f"{n / 4:.0%}") for n in range(5)]),
        marks=[Level(axis="x", at=tasks["longest"], label=words("trained")[language]), *marks],
    )
    title = words("tasks_title", task=words(one))[language]
    about = words("tasks_about", longest=tasks["longest"])[language]
    return Chart(title=title, about=about, panels=[panel])


def cost(found: Mapping[str, Any], language: str) -> Chart:
    text, times = found["text"], found["timing"]["arms"]["text"]
    looks, points = look(list(text["arms"])), []
    for name, arm in text["arms"].items():
        # A mean of the seeds that are left would flatter.
        if arm["loss"] and None not in arm["loss"] and times[name]["step"]:
            points.append((1000 * times[name]["step"], statistics.fmean(arm["loss"]), name))
    marks: list[Any] = []
    xs, ys = [x for x, _, _ in points] or [1.0], [y for _, y, _ in points] or [1.0]
    for x, y, name in points:
        tone, before = looks[name][0], x > (min(xs) + max(xs)) / 2
        # Within the panel; spaces that do not break, since SVG drops others.
        said, align = (f"{name}\u00a0\u00a0", "right") if before else (f"\u00a0\u00a0{name}", "left")
        marks += [Line(x=[x], y=[y], tone=tone, dots=True, joined=False)]
        marks += [Note(x=x, y=y, text=said, tone=tone, align=align)]
    wide, high = (max(xs) - min(xs)) or max(xs), (max(ys) - min(ys)) or 1.0
    panel = Panel(
        x=Axis(low=max(0.0, min(xs) - 0.1 * wide), high=max(xs) + 0.25 * wide, label=words("step")[language]),
        y=Axis(low=min(ys) - 0.1 * high, high=max(ys) + 0.1 * high, label=words("loss")[language]),
        marks=marks,
    )
    return Chart(title=words("cost_title")[language], about=words("cost_about")[language], panels=[panel])


def _line(
    name: str, at: Sequence[float], rows: Sequence[Sequence[float]], looks: Mapping[str, Any], *, dots: bool = False
) -> Line:
    tone, dashes = looks[name]
    band: dict[str, Any] = (
        {"low": [min(row) for row in rows], "high": [max(row) for row in rows]} if len(rows[0]) > 1 else {}
    )
    middle = [statistics.median(row) for row in rows]
    return Line(x=list(at), y=middle, label=name, tone=tone, dashes=dashes, dots=dots, **band)


def _chart(
    lines: Sequence[Line], text: Mapping[str, Any], title: str, about: str, across: str, language: str, whole: bool
) -> Chart:
    ends = [x for line in lines for x in line.x] or [1.0, 2.0]
    lowest = min((y for line in lines for y in line.low or line.y), default=0.0)
    # The top is where the best arm is at its worst, and some room: a loss of 20 nats would flatten all others.
    top = min((max(line.high or line.y) for line in lines), default=1.0) + ROOM
    top = min(top, max((y for line in lines for y in line.high or line.y), default=top) + 0.05)
    ticks = [(float(n), f"{n:,}") for n in _doublings(min(ends), max(ends))]
    panel = Panel(
        x=Axis(low=min(ends) * 0.95, high=max(ends) * 1.05, label=across, log=True, ticks=ticks),
        y=Axis(low=lowest - 0.05, high=top, label=words("nats")[language]),
        marks=[
            *([Level(axis="x", at=text["trained"], label=words("trained")[language])] if ends else []),
            *(line if whole else _inside(line, top) for line in lines),
        ],
    )
    return Chart(title=title, about=about, panels=[panel])


def _inside(line: Line, top: float) -> Line:
    """The line up to where it leaves the picture."""
    low, high = line.low or line.y, line.high or line.y
    count = next((n for n, y in enumerate(line.y) if y > top), len(line.y))
    if count == len(line.y) and max(high) <= top:
        return line
    xs, ys = list(line.x[:count]), list(line.y[:count])
    lows, highs = list(low[:count]), [min(y, top) for y in high[:count]]
    if 0 < count < len(line.y):
        # Where a straight line to the next point crosses the edge.
        share = (top - ys[-1]) / (line.y[count] - ys[-1])
        xs.append(xs[-1] * (line.x[count] / xs[-1]) ** share)
        ys.append(top)
        lows.append(min(top, lows[-1] + share * (low[count] - lows[-1])))
        highs.append(top)
    band: dict[str, Any] = {"low": lows, "high": highs} if line.low is not None else {"low": None, "high": None}
    return Line(x=xs, y=ys, label=line.label, tone=line.tone, dashes=line.dashes, dots=False, **band)


def _doublings(low: float, high: float) -> list[int]:
    found = [2**n for n in range(31) if low <= 2**n <= high]
    return found[::2] if len(found) > 9 else found
