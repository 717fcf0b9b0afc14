"""Attention weights of one layer of a model on a text, head by head."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from ropewalk.plot.chart import Axis, Chart, Data, Heat, Panel
from ropewalk.plot.looking import Reading, readable
from ropewalk.plot.words import Words

TAKES = "MODEL"
IN_PYTHON = "a Transformer"
MOST_HEADS = 8


class Options(Reading):
    layer: int | None = Field(default=None, ge=0)
    """The middle one unless given."""
    heads: tuple[int, ...] | None = Field(default=None, min_length=1, max_length=MOST_HEADS)
    """Which heads, at most eight; the first eight unless given."""


def data(thing: Any, options: Options) -> Data:
    seen = readable(thing, options)
    weights = seen.model.attention_weights(seen.tokens)
    layer = len(weights) // 2 if options.layer is None else options.layer
    if layer >= len(weights):
        raise ValueError(f"layer={layer}: {seen.name} has layers 0 to {len(weights) - 1}")
    every = weights[layer].shape[1]
    heads = list(options.heads or range(min(every, MOST_HEADS)))
    if bad := [head for head in heads if not 0 <= head < every]:
        raise ValueError(f"heads: there is no head {bad[0]}; {seen.name} has heads 0 to {every - 1}")
    found = weights[layer][0, heads].tolist()
    return {
        "name": seen.name,
        "layer": layer,
        "layers": len(weights),
        "heads": heads,
        "tokens": seen.words,
        "weights": [[[round(value, 6) for value in row] for row in head] for head in found],
    }


def chart(data: Data, words: Words) -> Chart:
    tokens, panels = data["tokens"], []
    size = len(tokens)
    columns = min(len(data["heads"]), 4)
    named = [(i + 0.5, token) for i, token in enumerate(tokens)] if columns == 1 and size <= 24 else None
    for head, rows in zip(data["heads"], data["weights"], strict=True):
        # The square root: weights of 0.01 are seen beside those of 1.
        shown = [[value**0.5 for value in row] for row in rows]
        panels.append(
            Panel(
                title=words("head", head=head),
                x=Axis(low=0, high=size, label=words("key")),
                y=Axis(low=size, high=0, label=words("query"), ticks=named),
                marks=[Heat(rows=shown, low=0, high=1, scale="rising", bar=columns == 1)],
                square=True,
            )
        )
    title = words("title", name=data["name"], layer=data["layer"], last=data["layers"] - 1)
    return Chart(title=title, about=words("about"), panels=panels, columns=columns, height={1: 5.2}.get(columns, 2.75))
