"""The sinusoids of 2017 beside a binary counter: each column turns more slowly than the one before it, as bits do."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field

from ropewalk.plot.chart import Axis, Chart, Data, Heat, Panel
from ropewalk.plot.words import Words
from ropewalk.settings import Settings

TAKES = ""
IN_PYTHON = "a Sinusoidal"
SLOW = math.pi / 4
"""An angle that is called little: an eighth of a turn."""


class Options(Settings):
    width: int = Field(default=64, ge=4, le=512, multiple_of=2)
    """Features of a token's vector."""
    length: int = Field(default=64, ge=4, le=512)
    """Positions, from 0."""
    base: float = Field(default=10_000.0, gt=1, le=1e12)
    layout: Literal["pairs", "half"] = "pairs"


def data(thing: Any, options: Options) -> Data:
    from ropewalk.encodings import Sinusoidal

    if thing is None:
        thing = Sinusoidal(width=options.width, base=options.base, layout=options.layout)
    elif not isinstance(thing, Sinusoidal):
        raise TypeError(f"this picture is of a Sinusoidal, not of {type(thing).__name__} {thing!r}")
    index = list(range(options.length))
    table = thing.at(index).q_table[0]
    bits = max(4, (options.length - 1).bit_length())
    return {
        "base": thing.config.base,
        "layout": thing.config.layout,
        "positions": index,
        "values": [[round(value, 7) for value in row] for row in table.tolist()],
        "bits": [[position >> bit & 1 for bit in range(bits)] for position in index],
    }


def chart(data: Data, words: Words) -> Chart:
    values, bits, length = data["values"], data["bits"], len(data["positions"])
    down = Axis(low=length, high=0, label=words("position"))
    width = len(values[0])
    left = Panel(
        title=words("sinusoids"),
        x=Axis(low=0, high=width, label=words(f"feature_{data['layout']}")),
        y=down,
        marks=[Heat(rows=values, low=-1, high=1)],
        share=3,
    )
    ticks = [(bit + 0.5, str(bit)) for bit in range(len(bits[0]))]
    right = Panel(
        title=words("counter"),
        x=Axis(low=0, high=len(bits[0]), label=words("bit"), ticks=ticks),
        y=Axis(low=length, high=0),
        marks=[Heat(rows=bits, low=0, high=1, scale="rising", bar=False)],
    )
    about = words("about")
    slow = data["base"] ** (-2 * math.ceil(width / 4) / width)
    if slow * (length - 1) < SLOW:
        about += words("slow", width=width, length=length)
    return Chart(title=words("title"), about=about + words("stop"), panels=[left, right], columns=2, height=4.2)
