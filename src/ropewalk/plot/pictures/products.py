"""Products of the sinusoids of two positions: symmetric and a function of the distance, until a model projects them."""

from __future__ import annotations

import random
from typing import Any

from pydantic import Field

from ropewalk.plot.chart import Axis, Chart, Data, Heat, Panel
from ropewalk.plot.words import Words
from ropewalk.settings import Settings

TAKES = ""
IN_PYTHON = "a Sinusoidal"


class Options(Settings):
    width: int = Field(default=64, ge=4, le=256, multiple_of=2)
    length: int = Field(default=64, ge=4, le=256)
    base: float = Field(default=10_000.0, gt=1, le=1e12)
    seed: int = 0
    """Of the random projections of queries and keys."""


def data(thing: Any, options: Options) -> Data:
    import torch

    from ropewalk.encodings import Sinusoidal

    if thing is None:
        thing = Sinusoidal(width=options.width, base=options.base)
    elif not isinstance(thing, Sinusoidal):
        raise TypeError(f"this picture is of a Sinusoidal, not of {type(thing).__name__} {thing!r}")
    table = thing.at(list(range(options.length))).q_table[0].double()  # (L, D)
    width = table.shape[1]
    draw = random.Random(options.seed)
    drawn = [[[draw.gauss(0, 1) for _ in range(width)] for _ in range(width)] for _ in range(2)]
    w_q, w_k = torch.tensor(drawn, dtype=torch.float64) / width**0.5
    plain = table @ table.T / (width / 2)
    projected = (table @ w_q) @ (table @ w_k).T / (width / 2)
    return {
        "width": width,
        "base": thing.config.base,
        "plain": [[round(value, 6) for value in row] for row in plain.tolist()],
        "projected": [[round(value, 6) for value in row] for row in projected.tolist()],
    }


def chart(data: Data, words: Words) -> Chart:
    panels = []
    for key in ("plain", "projected"):
        rows = data[key]
        edge = 1.0 if key == "plain" else max(abs(value) for row in rows for value in row)
        x = Axis(low=0, high=len(rows), label=words("second"))
        y = Axis(low=len(rows), high=0, label=words("first"))
        marks = [Heat(rows=rows, low=-edge, high=edge)]
        panels.append(Panel(title=words(key), x=x, y=y, marks=marks, square=True))
    return Chart(title=words("title"), about=words("about"), panels=panels, columns=2, height=4.5)
