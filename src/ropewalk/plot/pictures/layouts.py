"""Half against pairs: the two orders in which a head's rotating features lie, and the permutation between them."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from ropewalk.plot.chart import Arrow, Axis, Cell, Chart, Data, Note, Panel
from ropewalk.plot.words import Words
from ropewalk.settings import Settings

TAKES = ""
IN_PYTHON = ""
TONES = ("blue", "orange", "green", "violet", "gold")


class Options(Settings):
    head_width: int = Field(default=12, ge=4, le=24, multiple_of=2)
    rotary_width: int | None = Field(default=8, ge=2, multiple_of=2)
    """Features that rotate; those after them stay where they are."""


def data(thing: Any, options: Options) -> Data:
    import torch

    from ropewalk.checkpoints.export.permute import half_to_pairs

    turning = options.rotary_width or options.head_width
    order = half_to_pairs(torch.arange(options.head_width), heads=1, rotary_width=turning).tolist()
    pairs = [feature % (turning // 2) if feature < turning else None for feature in range(options.head_width)]
    return {"head_width": options.head_width, "rotary_width": turning, "pairs_from_half": order, "pair_of": pairs}


def chart(data: Data, words: Words) -> Chart:
    order, pair_of, size = data["pairs_from_half"], data["pair_of"], data["head_width"]
    marks: list[Any] = [Note(x=-0.8, y=0, text="half", align="right", tone="ink", bold=True)]
    marks.append(Note(x=-0.8, y=4, text="pairs", align="right", tone="ink", bold=True))
    marks += [Cell(x=feature, y=0, text=str(feature), fill=_fill(pair_of[feature])) for feature in range(size)]
    for place, feature in enumerate(order):
        marks.append(Cell(x=place, y=4, text=str(feature), fill=_fill(pair_of[feature])))
        tone = "soft" if pair_of[feature] is None else TONES[pair_of[feature] % len(TONES)]
        marks.append(Arrow(start=(feature, 0.56), end=(place, 3.44), tone=tone))
    turning = data["rotary_width"]
    marks += [
        Note(x=(turning // 2 - 1) / 2, y=-0.95, text=words("first"), align="center"),
        Note(x=turning // 2 + (turning // 2 - 1) / 2, y=-0.95, text=words("second"), align="center"),
        Note(x=(turning - 1) / 2, y=4.95, text=words("neighbours"), align="center"),
    ]
    if turning < size:
        marks.append(Note(x=(turning + size - 1) / 2, y=-0.95, text=words("still"), align="center"))
    panel = Panel(x=Axis(low=-2.4, high=size - 0.4), y=Axis(low=5.5, high=-1.5), marks=marks, frame=False, square=True)
    return Chart(title=words("title"), about=words("about"), panels=[panel], height=3.9)


def _fill(pair: int | None) -> str:
    return "wash" if pair is None else TONES[pair % len(TONES)]
