"""The pairs of a head as clocks: where each hand stands at a few positions, exactly."""

from __future__ import annotations

import math
from typing import Any

from pydantic import Field

from ropewalk.plot.chart import Arrow, Axis, Cell, Chart, Data, Line, Note, Panel
from ropewalk.plot.subject import Rotation, subject
from ropewalk.plot.words import Words

TAKES = "[CHECKPOINT]"
IN_PYTHON = "a plan, an encoding, a model"
RADIUS = 0.4
HAND = 0.36


class Options(Rotation):
    positions: tuple[int, ...] = Field(default=(0, 1, 10, 100, 1000), min_length=1, max_length=8)
    """Where the hands are read, up to 2**40."""
    pairs: int = Field(default=8, ge=2, le=12)
    """Clocks to show, from the fastest pair to the slowest."""


def data(thing: Any, options: Options) -> Data:
    of = subject(thing, options)
    if bad := [position for position in options.positions if not 0 <= position <= 2**40]:
        raise ValueError(f"position {bad[0]:,} is outside 0 to 2**40, up to which angles are exact")
    layer = of.layer.for_length(max(max(options.positions) + 1, of.trained))
    count = len(layer.turns)
    chosen = sorted({round(i * (count - 1) / (options.pairs - 1)) for i in range(options.pairs)})
    # The integer product wraps at a whole turn, so this is exact however far the position.
    turned = [[position * layer.turns[pair] % 2**64 / 2**64 for pair in chosen] for position in options.positions]
    whole = [[position * layer.turns[pair] // 2**64 for pair in chosen] for position in options.positions]
    return {
        **of.facts(),
        "positions": list(options.positions),
        "pairs": chosen,
        "wavelengths": [2**64 / layer.turns[pair] if layer.turns[pair] else None for pair in chosen],
        "turned": turned,
        "whole_turns": whole,
    }


def chart(data: Data, words: Words) -> Chart:
    marks: list[Any] = []
    circle = [2 * math.pi * step / 40 for step in range(41)]
    for row, position in enumerate(data["positions"]):
        y = 1.45 * row
        marks.append(Note(x=-0.62, y=y, text=f"{position:,}", align="right", tone="ink"))
        for column, share in enumerate(data["turned"][row]):
            angle = 2 * math.pi * share
            across, up = math.cos(angle), math.sin(angle)
            marks += [
                Line(
                    x=[column + RADIUS * math.cos(a) for a in circle],
                    y=[y - RADIUS * math.sin(a) for a in circle],
                    tone="soft",
                ),
                Arrow(start=(column, y), end=(column + HAND * across, y - HAND * up), tone="blue"),
                Cell(x=column, y=y + 0.62, text=_degrees(360 * share), faint=True),
            ]
    for column, (pair, wave) in enumerate(zip(data["pairs"], data["wavelengths"], strict=True)):
        marks.append(Note(x=column, y=-1.05, text=words("pair", pair=pair), align="center", tone="ink", bold=True))
        told = words("still") if wave is None else f"{wave:,.1f}" if wave < 1000 else f"{wave:,.0f}"
        marks.append(Note(x=column, y=-0.72, text=told, align="center"))
    last = 1.45 * (len(data["positions"]) - 1)
    panel = Panel(
        x=Axis(low=-1.6, high=len(data["pairs"]) - 0.45),
        y=Axis(low=last + 0.95, high=-1.4),
        marks=marks,
        frame=False,
        square=True,
    )
    about = words("about", first=data["pairs"][0], last=data["pairs"][-1])
    height = min(1.1 * len(data["positions"]) + 1.1, 7)
    return Chart(title=words("title", name=data["name"]), about=about, panels=[panel], height=height)


def _degrees(angle: float) -> str:
    return f"{angle:.1f}\u00b0" if angle >= 1 or not angle else f"{angle:.2g}\u00b0"
