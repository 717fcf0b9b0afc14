"""Which keys each query sees in packed, padded and windowed sequences, with the keys' positions in the cells."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ropewalk.plot.chart import Axis, Cell, Chart, Data, Note, Panel
from ropewalk.plot.words import Words
from ropewalk.settings import Settings

TAKES = ""
IN_PYTHON = "Positions"
FILLS = ("blue", "orange", "green", "violet", "gold")
MOST = 24
"""Tokens of a sequence; with more, the numbers in the cells are too small to read."""


class Options(Settings):
    packed: tuple[int, ...] | None = Field(default=None, min_length=1, max_length=MOST)
    """Lengths of the documents of one packed sequence: packed=[3,2,4]."""
    padded: tuple[int, ...] | None = Field(default=None, min_length=1, max_length=4)
    """Lengths of the sequences of one padded batch: padded=[5,8]."""
    side: Literal["left", "right"] = "left"
    """Where padding goes."""
    length: int | None = Field(default=None, ge=1, le=MOST)
    """Tokens of one plain sequence."""
    window: int | None = Field(default=None, ge=1)
    """Tokens a query sees, itself included."""
    keep_first: int = Field(default=0, ge=0)
    """Keys at the start that stay visible past the window."""
    causal: bool = True


def data(thing: Any, options: Options) -> Data:
    from ropewalk import positions
    from ropewalk.attention.rule import Rule

    rule = Rule(causal=options.causal, window=options.window, keep_first=options.keep_first)
    given = {name for name in ("packed", "padded", "length") if getattr(options, name) is not None}
    if thing is not None:
        if given:
            raise ValueError(f"{', '.join(sorted(given))} and positions both say where tokens are; give one of them")
        every = [("given", thing, rule)]
    elif given:
        made = {
            "packed": lambda: positions.packed([list(options.packed or ())]),
            "padded": lambda: positions.padded(list(options.padded or ()), side=options.side),
            "length": lambda: positions.plain(options.length or 1),
        }
        every = [("plain" if name == "length" else name, made[name](), rule) for name in made if name in given]
    else:
        every = [
            ("packed", positions.packed([[3, 2, 3]]), rule),
            ("padded", positions.padded([5], side=options.side, width=8), rule),
            ("plain", positions.plain(8), Rule(window=3)) if rule == Rule() else ("plain", positions.plain(8), rule),
        ]
    return {"panels": [one for what, at, how in every for one in _sequences(what, at, how)]}


def _sequences(what: str, at: Any, rule: Any) -> list[dict[str, Any]]:
    if at.shape[1] > MOST:
        raise ValueError(f"a sequence of {at.shape[1]} tokens is too long to read in a picture; give at most {MOST}")
    if at.axes is not None:
        raise ValueError("positions on several axes have no one number to write in a cell; give those of a text")
    visible = rule.mask(at, at)[:, 0].tolist()
    rows = zip(at.index.tolist(), at.segment.tolist(), visible, strict=True)
    return [
        {"what": what, "window": rule.window, "keep_first": rule.keep_first, "causal": rule.causal,
         "index": index, "segment": segment, "visible": seen}
        for index, segment, seen in rows
    ]  # fmt: skip


def chart(data: Data, words: Words) -> Chart:
    panels = [_panel(one, words) for one in data["panels"]]
    columns = min(len(panels), 3)
    return Chart(
        title=words("title"), about=words("about"), panels=panels, columns=columns,
        height={1: 4.6, 2: 3.9}.get(columns, 3.2),
    )  # fmt: skip


def _panel(one: dict[str, Any], words: Words) -> Panel:
    index, segment, visible = one["index"], one["segment"], one["visible"]
    size = len(index)
    marks: list[Any] = []
    for place, (position, document) in enumerate(zip(index, segment, strict=True)):
        name = words("pad") if document < 0 else str(position)
        marks += [Cell(x=place, y=-1, text=name, faint=True), Cell(x=-1, y=place, text=name, faint=True)]
    for q in range(size):
        for k in range(size):
            seen = visible[q][k]
            padding = segment[q] < 0 or segment[k] < 0
            fill = FILLS[segment[k] % len(FILLS)] if seen else "wash" if padding else "none"
            marks.append(Cell(x=k, y=q, text=str(index[k]) if seen else "", fill=fill))
    marks.append(Note(x=-1, y=-1.9, text=words("axes"), align="left"))
    title = words(one["what"])
    if one["window"] is not None:
        title = words("windowed", name=title, window=one["window"])
    return Panel(
        title=title,
        x=Axis(low=-1.6, high=size - 0.4),
        y=Axis(low=size - 0.4, high=-2.3),
        marks=marks,
        frame=False,
        square=True,
    )
