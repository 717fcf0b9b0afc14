"""What the encodings of the bias family add to a score, by head and distance; and xPos, which fades it by pair."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field

from ropewalk.plot.chart import Axis, Chart, Data, Line, Panel
from ropewalk.plot.words import Words
from ropewalk.settings import Settings

TAKES = "[MODEL]"
IN_PYTHON = "an encoding, a Transformer"

Kind = Literal["alibi", "t5", "kerple", "fire", "xpos"]
KINDS: tuple[Kind, ...] = ("alibi", "t5", "kerple", "fire", "xpos")


class Options(Settings):
    kinds: tuple[Kind, ...] = KINDS
    """Which encodings, where no model is given."""
    heads: int = Field(default=8, ge=1, le=128)
    length: int = Field(default=256, ge=8, le=4096)
    """The query's position; keys are at 0 to there."""
    head_width: int = Field(default=64, ge=4, le=1024, multiple_of=2)
    """Of xPos, whose pairs fade each at its own rate."""
    seed: int = 0
    """Of learned parameters as training starts."""


def data(thing: Any, options: Options) -> Data:
    ignored = options.model_fields_set & {"kinds", "heads", "head_width", "seed"}
    if thing is not None and ignored:
        names = ", ".join(f"{name}=" for name in Options.model_fields if name in ignored)
        raise ValueError(f"{names} for a picture without a model, which has its own; leave one of them out")
    found = _given(thing) if thing is not None else _made(options)
    panels = []
    for kind, encoding, learned in found:
        rows, step = _fades(encoding, options) if kind == "xpos" else _biases(encoding, options)
        two_way = kind == "t5" and encoding.config.bidirectional
        panels.append({"kind": kind, "learned": learned, "two_way": two_way, "numbers": step, "bias": rows})
    return {"distances": list(range(options.length + 1)), "of_model": thing is not None, "panels": panels}


def _made(options: Options) -> list[tuple[str, Any, bool | None]]:
    """Each kind with its default settings, learned parameters as training starts."""
    import torch

    from ropewalk.encodings import find

    found: list[tuple[str, Any, bool | None]] = []
    for kind in options.kinds:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(options.seed)
            encoding = find(kind)(heads=options.heads, head_width=options.head_width)
        found.append((kind, encoding, False))
    return found


def _given(thing: Any) -> list[tuple[str, Any, bool | None]]:
    """The encodings of a model that have biases, or one encoding, a chain's parts each. A path is loaded, weights and
    all, and is as trained; of parameters given in Python nobody knows."""
    from pathlib import Path

    from ropewalk.encodings import Encoding

    learned = None
    if isinstance(thing, str | Path):
        learned = True
        from ropewalk.checkpoints.load.model import load

        thing = load(thing)
    modules = [one for one in thing.modules() if isinstance(one, Encoding) and one.config.kind != "chain"]
    found = [one for one in modules if "bias" in one.sites or one.config.kind == "xpos"]
    if not found:
        kinds = ", ".join(dict.fromkeys(one.config.kind for one in modules))
        raise ValueError(f"no encoding here has a bias ({kinds}); leave the model out to see those that have")
    return [(one.config.kind, one, learned) for one in found]


def _biases(encoding: Any, options: Options) -> tuple[list[list[float]], list[int]]:
    """A row for each head: what is added to the score of a query at `length` and a key at each distance."""
    import torch

    heads = range(encoding.heads)
    with torch.no_grad():
        signal = encoding.at([options.length], list(range(options.length, -1, -1)), limit=options.length + 1)
        head = torch.tensor(list(heads))[:, None, None]
        bias = signal.bias(head, signal.q.index[:, :, None], signal.k.index[:, None, :])
    return [[round(value, 6) for value in row] for row in bias.reshape(len(heads), -1).tolist()], list(heads)


def _fades(encoding: Any, options: Options) -> tuple[list[list[float]], list[int]]:
    """A row for some pairs of xPos: the logarithm of what their part of a score is multiplied by."""
    import torch

    pairs = encoding.head_width // 2
    chosen = sorted({round(i * (pairs - 1) / 7) for i in range(8)})
    distances = list(range(options.length + 1))
    rows = []
    for pair in chosen:
        ends = (pair, pair + pairs) if encoding.config.layout == "half" else (2 * pair, 2 * pair + 1)
        one = torch.zeros(1, 1, 1, encoding.head_width, dtype=torch.float64)
        one[..., list(ends)] = 1.0
        signal = encoding.at(distances, [0], limit=options.length + 1)
        query = signal.rotate(one.expand(1, 1, len(distances), -1), "query")
        key = signal.rotate(one, "key")
        # A rotation keeps lengths, so the product of lengths is the fade alone.
        fade = query.norm(dim=-1).flatten() * key.norm() / 2
        rows.append([round(math.log(value), 6) for value in fade.tolist()])
    return rows, chosen


def chart(data: Data, words: Words) -> Chart:
    panels = [_panel(one, data["distances"], words) for one in data["panels"]]
    kinds = {one["kind"] for one in data["panels"]}
    said = "about_xpos" if kinds == {"xpos"} else "about_model" if data["of_model"] else "about"
    about = words(said, query=data["distances"][-1])
    one = len(panels) == 1
    return Chart(title=words("title"), about=about, panels=panels, columns=1 if one else 2, height=3.6 if one else 2.35)


def _panel(one: dict[str, Any], distances: list[int], words: Words) -> Panel:
    rows, numbers = one["bias"], one["numbers"]
    lines = []
    for place, (row, name) in enumerate(zip(rows, numbers, strict=True)):
        share = place / max(len(rows) - 1, 1)
        # Named at the ends of the order: the colours between them say the rest.
        named = place in (0, len(rows) - 1)
        label = words("pair" if one["kind"] == "xpos" else "head", number=name) if named else ""
        lines.append(Line(x=distances, y=row, label=label, tone=f"graded:{share:.3f}"))
    low, high = min(min(row) for row in rows), max(max(row) for row in rows)
    room = 0.06 * (high - low or 1)
    title = words.get("t5_two_way" if one["two_way"] else one["kind"], one["kind"])
    if one["kind"] in ("t5", "kerple", "fire") and one["learned"] is not None:
        title = words("learned" if one["learned"] else "start", name=title)
    return Panel(
        title=title,
        x=Axis(low=0, high=distances[-1], label=words("distance")),
        y=Axis(low=low - room, high=high + room, label=words("fade" if one["kind"] == "xpos" else "bias")),
        marks=lines,
    )
