"""The figures of a comparison: a line for each arm, in the same colour and dashes in all of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ropewalk.compare.derived import asked_alike, flattered, on_other_text
from ropewalk.plot.chart import Axis, Chart, Level, Line, Panel
from ropewalk.report.comparison.numbers import left_out, sentences, signed, unlike
from ropewalk.report.comparison.scatter import Spot, marked
from ropewalk.report.words import Words

words = Words("compare")
TONES = ("orange", "blue", "green", "violet", "gold", "grey")
ROOM = 3.0
"""Nats above the best arm's worst loss that a picture shows: a model that has learned only how often tokens occur is in
it, and what explodes leaves it."""
NEAR, SPREAD = 0.5, 3.0
"""The figure of costs shows arms up to so many nats above the best, or so many times as far from it as the median."""


def look(found: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """Tone and dashes of each arm of the study, never both of another's. Those with tasks come first: dots have no
    dashes to be told apart by."""
    count, tasks = len(TONES), found["tasks"]["arms"] if found["tasks"] else ()
    arms = sorted(found["study"]["arms"], key=lambda name: name not in tasks)
    return {name: (TONES[(n + n // count) % count], n % count) for n, name in enumerate(arms)}


def positions(found: Mapping[str, Any], language: str, *, whole: bool = False) -> Chart:
    """whole: lines are not cut where they leave the picture."""
    text, lines, looks = found["text"], [], look(found)
    for name, arm in text["arms"].items():
        parts = [part for part in arm["by_position"] if None not in part["loss"]]
        if parts:
            at = [math.sqrt(part["from"] * part["to"]) for part in parts]
            lines.append(_line(name, at, [part["loss"] for part in parts], looks))
    reached = [name for name, arm in text["arms"].items() if arm["reach"]]
    but = words("position_but", names=", ".join(reached)) if reached else ""
    about = _with_other_text(found, words("position_about", pieces=text["curve_pieces"], but=but))
    return _chart(lines, text, words("position_title")[language], about, words("position")[language], language, whole)


def protocol(found: Mapping[str, Any], which: str, language: str, *, whole: bool = False) -> Chart:
    """which: same, the same tokens with more context; windows, non-overlapping. whole: as of `positions`."""
    key, across = ("same_tokens", "context") if which == "same" else ("non_overlapping", "window")
    text, lines, looks = found["text"], [], look(found)
    # Losses of other tokens have no place among those of the same ones.
    left = on_other_text(text) if which == "same" else []
    for name, arm in text["arms"].items():
        each = {int(n): row for n, row in arm[key].items() if not isinstance(row, str) and row and None not in row}
        if each and name not in left:
            lines.append(_line(name, list(each), list(each.values()), looks, dots=True))
    about = _with_other_text(found, words(f"{which}_about", tail=text["tail"], pieces=text["curve_pieces"]))
    if which == "windows" and (names := _flattered(text)):
        about = sentences(about, words("windows_flatter", names=names, trained=f"{text['trained']:,}"))
    return _chart(lines, text, words(f"{which}_title")[language], about, words(across)[language], language, whole)


def task(found: Mapping[str, Any], one: str, language: str) -> Chart:
    (tasks, other), looks, marks = asked_alike(found["tasks"], one), look(found), []
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
        # Room above 100 % for the name of the trained length.
        y=Axis(low=-0.04, high=1.16, label=words("right")[language], ticks=[(n / 4, f"{n / 4:.0%}") for n in range(5)]),
        marks=[Level(axis="x", at=tasks["longest"], label=words("trained")[language]), *marks],
    )
    title = words("tasks_title", task=words(one))[language]
    left = unlike("task_other", other, found["reference"])
    about = sentences(words("tasks_about", longest=tasks["longest"]), *left)
    return Chart(title=title, about=about[language], panels=[panel])


def cost(found: Mapping[str, Any], language: str) -> Chart:
    text, times = found["text"], found["timing"]["arms"]["text"]
    looks, points = look(found), []
    for name, arm in text["arms"].items():
        # A mean of the seeds that are left would flatter.
        if (
            name not in text["rankings"].get("left_out", {})
            and arm["loss"]
            and None not in arm["loss"]
            and times[name]["step"]
        ):
            points.append((1000 * times[name]["step"], statistics.fmean(arm["loss"]), name))
    xs, ys = [x for x, _, _ in points] or [1.0], [y for _, y, _ in points] or [1.0]
    # One arm that has learned nothing would press all others together.
    reach = max(NEAR, SPREAD * (statistics.median(ys) - min(ys)))
    above = [f"{name} ({y:.2f})" for _, y, name in points if y > min(ys) + reach]
    wide = (max(xs) - min(xs)) or max(xs)
    high = (max(y for y in ys if y <= min(ys) + reach) - min(ys)) or 1.0
    panel = Panel(
        x=Axis(low=max(0.0, min(xs) - 0.1 * wide), high=max(xs) + 0.1 * wide, label=words("step")[language]),
        y=Axis(low=min(ys) - 0.1 * high, high=min(ys) + 1.15 * high, label=words("loss")[language]),
        marks=(),
    )
    spots = [Spot(x, y, f"{name} \u2191" if y > panel.y.high else name, looks[name][0]) for x, y, name in points]
    said = [words("cost_above", names=", ".join(above))] if above else []
    about = sentences(words("cost_about"), *said, *left_out(text, found["reference"]))
    height = 3.2 if len(spots) <= len(TONES) else 4.6
    drawn = replace(panel, marks=marked(panel, spots, height))
    return Chart(title=words("cost_title")[language], about=about[language], panels=[drawn], height=height)


def _with_other_text(found: Mapping[str, Any], about: Mapping[str, str]) -> dict[str, str]:
    return sentences(about, *unlike("text_other", on_other_text(found["text"]), found["reference"]))


def _flattered(text: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{one.name} ({one.length:,}: {signed(one.windows)}, {signed(one.same)})" for one in flattered(text)
    )


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
    lines: Sequence[Line],
    text: Mapping[str, Any],
    title: str,
    about: Mapping[str, str],
    across: str,
    language: str,
    whole: bool,
) -> Chart:
    ends = [x for line in lines for x in line.x] or [1.0, 2.0]
    lowest = min((y for line in lines for y in line.low or line.y), default=0.0)
    # The top is where the best arm is at its worst, and some room: a loss of 20 nats would flatten all others.
    top = min((max(line.high or line.y) for line in lines), default=1.0) + ROOM
    highest = max((y for line in lines for y in line.high or line.y), default=top)
    if highest <= top:
        top = highest + 0.05 + 0.08 * (highest - lowest)  # for the name of the trained length
    ticks = [(float(n), f"{n:,}") for n in _doublings(min(ends), max(ends))]
    panel = Panel(
        # The last part of a curve ends at the trained length and is drawn in its middle.
        x=Axis(low=min(ends) * 0.95, high=1.05 * max(*ends, text["trained"]), label=across, log=True, ticks=ticks),
        y=Axis(low=lowest - 0.05, high=top, label=words("nats")[language]),
        marks=[
            *([Level(axis="x", at=text["trained"], label=words("trained")[language])] if ends else []),
            # Those above the picture last: names at one height stand in this order, upwards.
            *(line if whole else _inside(line, top) for line in sorted(lines, key=lambda line: min(line.y) > top)),
        ],
    )
    above = [line.label for line in lines if min(line.y) > top]
    said = sentences(about, words("above", names=", ".join(above))) if above else about
    return Chart(title=title, about=said[language], panels=[panel])


def _inside(line: Line, top: float) -> Line:
    """The line from where it enters the picture to where it leaves it."""
    low, high = line.low or line.y, line.high or line.y
    if max(high) <= top:
        return line
    first = next((n for n, y in enumerate(line.y) if y <= top), len(line.y))
    last = next((n for n in range(first, len(line.y)) if line.y[n] > top), len(line.y))
    if first == len(line.y):
        # Nothing of it is drawn; its name stands at the edge that it is beyond.
        return replace(line, x=[line.x[0]], y=[top], label=f"{line.label} \u2191", dots=False, low=None, high=None)
    points = [(line.x[n], line.y[n], low[n], min(high[n], top)) for n in range(first, last)]
    if first > 0:
        points.insert(0, _crossing(line, low, first, first - 1, top))
    if last < len(line.y):
        points.append(_crossing(line, low, last - 1, last, top))
    xs, ys, lows, highs = (list(each) for each in zip(*points, strict=True))
    band: dict[str, Any] = {"low": lows, "high": highs} if line.low is not None else {}
    return replace(line, x=xs, y=ys, dots=False, **band)


def _crossing(
    line: Line, low: Sequence[float], inside: int, outside: int, top: float
) -> tuple[float, float, float, float]:
    """Where a straight line between two points crosses the edge."""
    share = (top - line.y[inside]) / (line.y[outside] - line.y[inside])
    x = line.x[inside] * (line.x[outside] / line.x[inside]) ** share
    return x, top, min(top, low[inside] + share * (low[outside] - low[inside])), top


def _doublings(low: float, high: float) -> list[int]:
    found = [2**n for n in range(31) if low <= 2**n <= high]
    return found[::2] if len(found) > 9 else found
