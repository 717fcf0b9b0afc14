"""How long queries and keys are in each pair of each layer: which frequencies a model uses."""

from __future__ import annotations

import math
from typing import Any

from ropewalk.plot.chart import Axis, Chart, Data, Heat, Panel
from ropewalk.plot.looking import Reading, readable
from ropewalk.plot.words import Words

TAKES = "MODEL"
IN_PYTHON = "a Transformer"


class Options(Reading):
    pass


def data(thing: Any, options: Options) -> Data:
    seen = readable(thing, options)
    model = seen.model
    stack = model.decoder if model.decoder is not None else model.encoder
    found: list[dict[str, list[float]]] = []
    layers = list(model.plan.layers)
    rotating = [number for number, layer in enumerate(layers) if layer.rotary_width]
    if not rotating:
        kinds = ", ".join(dict.fromkeys(layer.kind for layer in layers))
        raise ValueError(f"nothing rotates in {seen.name} ({kinds}), and this picture is of RoPE's pairs")

    def keep(core: Any, arguments: tuple[Any, ...]) -> None:
        layer = layers[len(found)]
        found.append({"q": _by_pair(arguments[0], layer), "k": _by_pair(arguments[1], layer)})

    hooks = [attention.core.register_forward_pre_hook(keep) for attention in stack.attentions]
    try:
        import torch

        with torch.no_grad():
            model.hidden(seen.tokens)
    finally:
        for hook in hooks:
            hook.remove()
    return {
        "name": seen.name,
        "tokens": len(seen.words),
        "layers": rotating,
        **{side: [found[number][side] for number in rotating] for side in ("q", "k")},
    }


def _by_pair(x: Any, layer: Any) -> list[float]:
    """(B, H, L, K) rotated vectors to the root of the mean square of each pair; a rotation does not change it."""
    if not layer.rotary_width:
        return []
    part = x[..., : layer.rotary_width].double() / layer.rotary_gain
    first, second = (part[..., 0::2], part[..., 1::2]) if layer.layout == "pairs" else part.chunk(2, dim=-1)
    return [round(value, 6) for value in (first**2 + second**2).mean(dim=(0, 1, 2)).sqrt().tolist()]


def chart(data: Data, words: Words) -> Chart:
    panels = []
    ticks = [(row + 0.5, str(number)) for row, number in enumerate(data["layers"])]
    ticks = ticks[:: -(-len(ticks) // 8)]
    for side in ("q", "k"):
        pairs = max(map(len, data[side]))
        rows = [[*row, *[math.nan] * (pairs - len(row))] for row in data[side]]
        highest = max(max(row) for row in data[side])
        panels.append(
            Panel(
                title=words(side),
                x=Axis(low=0, high=pairs, label=words("pair")),
                y=Axis(low=len(rows), high=0, label=words("layer"), ticks=ticks),
                marks=[Heat(rows=rows, low=0, high=highest, scale="rising")],
            )
        )
    title = words("title", name=data["name"])
    return Chart(title=title, about=words("about", count=data["tokens"]), panels=panels, columns=2, height=3.6)
