"""T5's buckets as a staircase: every distance has its own up to a point, then ever more share one."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from ropewalk.plot.chart import Axis, Chart, Data, Level, Line, Panel
from ropewalk.plot.words import Words
from ropewalk.settings import Settings

TAKES = ""
IN_PYTHON = "a T5"


class Options(Settings):
    buckets: int = Field(default=32, ge=4, le=1024, multiple_of=2)
    farthest: int = Field(default=128, ge=4, le=100_000)
    """Distance from which on all share the last bucket."""


def data(thing: Any, options: Options) -> Data:
    import torch

    from ropewalk.encodings import T5

    if thing is None:
        each = {"causal": False, "bidirectional": True}
        made = {
            name: T5(heads=1, buckets=options.buckets, farthest=options.farthest, bidirectional=both)
            for name, both in each.items()
        }
    elif isinstance(thing, T5):
        made = {"bidirectional" if thing.config.bidirectional else "causal": thing}
    else:
        raise TypeError(f"this picture is of a T5, not of {type(thing).__name__} {thing!r}")
    config = next(iter(made.values())).config
    reach = config.farthest + config.farthest // 4
    ahead = list(range(-reach, reach + 1))
    found = {name: one.bucket(torch.tensor(ahead)).tolist() for name, one in made.items()}
    return {"buckets": config.buckets, "farthest": config.farthest, "ahead": ahead, "bucket": found}


def chart(data: Data, words: Words) -> Chart:
    looks = {"causal": ("blue", 0), "bidirectional": ("orange", 1)}
    steps = [edge for ahead in data["ahead"] for edge in (ahead - 0.5, ahead + 0.5)]
    lines = [
        Line(
            x=steps,
            y=[one for one in found for _ in range(2)],
            label=words(name),
            tone=looks[name][0],
            dashes=looks[name][1],
            thick=not i,
        )
        for i, (name, found) in enumerate(data["bucket"].items())
    ]
    far = data["farthest"]
    marks = [Level(axis="x", at=-far, label=words("farthest", farthest=far)), Level(axis="x", at=0), *lines]
    panel = Panel(
        x=Axis(low=data["ahead"][0], high=data["ahead"][-1], label=words("ahead")),
        y=Axis(low=-0.5, high=data["buckets"] * 1.15, label=words("bucket")),
        marks=marks,
    )
    about = words("about", buckets=data["buckets"], farthest=far)
    return Chart(title=words("title"), about=about, panels=[panel], height=3.6)
