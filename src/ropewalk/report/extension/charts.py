"""The figures of an extension: gains, loss by position, needles by depth, what each method does to each pair."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ropewalk.plot.chart import Axis, Chart, Heat, Level, Line, Panel
from ropewalk.report.eval_page import at, interval, up
from ropewalk.report.extension.shown import Shown, words

MOST = 64.0
"""The largest divisor that is drawn: a pair that is stopped has none."""


def gains(shown: Shown, language: str) -> Chart:
    """Each at the lengths that it was measured at."""
    lengths, lines = _lengths(shown.first), []
    for name in reversed(shown.order):
        one = shown.found["judged"][name]
        each = [interval(at(one["tail"]["gain"], length)) for length in _lengths(one)]
        ours = name == shown.name
        line = Line(
            x=_lengths(one),
            y=[one.mean for one in each],
            low=[one.low for one in each] if ours else None,
            high=[one.high for one in each] if ours else None,
            label=name,
            tone=shown.tones[name],
            dots=True,
        )
        lines.append(line)
    ticks = [(float(length), f"{length:,}") for length in lengths]
    across = Axis(
        low=min(lengths[0], shown.found["trained"]) * 0.9,
        high=lengths[-1] * 1.1,
        label=words("context")[language],
        log=True,
        ticks=ticks,
    )
    axis = up(lines, words("gain_axis")[language], zero=True)
    marks = [Level(axis="y", at=0.0), _level(shown, language), *lines]
    about = words("gains_about", winner=shown.name)[language]
    return Chart(title=words("gains_title")[language], about=about, panels=[Panel(x=across, y=axis, marks=marks)])


def where(shown: Shown, language: str) -> Chart:
    lines = []
    for name in reversed(shown.order):
        losses = shown.found["judged"][name]["by_position"]
        if losses:
            x = [shown.found["to"] * (part + 0.5) / len(losses) for part in range(len(losses))]
            lines.append(Line(x=x, y=losses, label=name, tone=shown.tones[name]))
    panel = Panel(
        x=Axis(low=0, high=shown.found["to"], label=words("position")[language]),
        y=up(lines, words("nats")[language]),
        marks=[_level(shown, language), *lines],
    )
    about = words("where_about", parts=len(lines[0].y), read=2)[language]
    return Chart(title=words("where_title")[language], about=about, panels=[panel])


def needles(shown: Shown, language: str) -> Chart:
    found = {name: shown.found["judged"][name]["needles"] for name in reversed(shown.order)}
    last = {name: each[-1] for name, each in found.items() if each}
    rows = [one["by_depth"] for one in last.values()]
    ticks = [(number + 0.5, name) for number, name in enumerate(last)]
    panel = Panel(
        x=Axis(low=0, high=len(rows[0]), label=words("depth")[language], ticks=[]),
        y=Axis(low=0, high=len(rows), label=words("candidate")[language], ticks=ticks),
        marks=[Heat(rows=rows, low=0, high=1, scale="rising")],
    )
    one = next(iter(last.values()))
    about = words("map_about", length=f"{one['length']:,}", passes=one["passes"])[language]
    height = 1.2 + 0.3 * len(rows)
    return Chart(title=words("map_title")[language], about=about, panels=[panel], height=height)


def pairs(shown: Shown, language: str) -> Chart:
    divisors = {one["name"]: one["divisors"] for one in shown.found["candidates"]}
    whole = [name for name in shown.order if shown.found["judged"][name]["candidate"]["text"] == "whole"]
    lines = [
        Line(
            x=list(range(len(divisors[name]))),
            y=[min(value, MOST) for value in divisors[name]],
            label=name,
            tone=shown.tones[name],
        )
        for name in reversed(whole)
    ]
    base, width = shown.found["rope"]["base"], shown.found["rope"]["width"]
    turns = [shown.found["trained"] * base ** (-2 * i / width) / (2 * math.pi) for i in range(width // 2)]
    first = next((i for i, one in enumerate(turns) if one < 1), None)
    level = [] if first is None else [Level(axis="x", at=first - 0.5, label=words("unfinished")[language])]
    high = max(max(line.y) for line in lines)
    panel = Panel(
        x=Axis(low=-0.5, high=width // 2 - 0.5, label=words("pair")[language]),
        y=Axis(low=0.9, high=max(2.0, high * 1.4), label=words("divisor")[language], log=True),
        marks=[*level, *lines],
    )
    about = words("pairs_about", most=f"{MOST:g}")[language]
    return Chart(title=words("pairs_title")[language], about=about, panels=[panel])


def _level(shown: Shown, language: str) -> Level:
    return Level(axis="x", at=shown.found["trained"], label=words("trained")[language])


def _lengths(one: Mapping[str, Any]) -> list[int]:
    return sorted(int(length) for length in one["tail"]["gain"])
