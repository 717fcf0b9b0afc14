"""M-RoPE: which axis, time, height or width, turns each pair, in blocks or interleaved."""

from __future__ import annotations

import json
from typing import Any

from pydantic import Field

from ropewalk.plot.chart import Axis, Chart, Data, Heat, Panel
from ropewalk.plot.words import Words
from ropewalk.settings import Settings

TAKES = "[CHECKPOINT]"
IN_PYTHON = "a RoPE with sections, a plan"


class Options(Settings):
    sections: tuple[int, int, int] = (24, 20, 20)
    """Pairs of time, height and width; of a checkpoint, its own."""
    base: float = Field(default=1_000_000.0, gt=1, le=1e12)


def data(thing: Any, options: Options) -> Data:
    name, sections, own = "RoPE", options.sections, None
    if thing is not None:
        if options.sections != Options.model_fields["sections"].default:
            raise ValueError(
                "sections= are for a picture without a checkpoint, which says its own; leave one of them out"
            )
        name, sections, own = _of(thing)
    if min(sections) < 0 or not 2 <= sum(sections) <= 512:
        raise ValueError(f"sections={list(sections)} are three counts of pairs, 2 to 512 in all")
    kinds = ("blocks", "interleaved")
    return {
        "name": name,
        "sections": list(sections),
        "own": own,
        "axis_of": {kind: _axes(sections, kind, options.base) for kind in kinds},
    }


def _of(thing: Any) -> tuple[str, tuple[int, int, int], str]:
    from ropewalk.plot.subject import planned

    name, plan = planned(thing)
    for layer in plan.layers:
        settings = json.loads(layer.settings)
        if settings.get("sections") and len(settings["sections"]) == 3:
            first, second, third = settings["sections"]
            return name, (first, second, third), settings["arrangement"]
    raise ValueError(f"{name} has positions on one axis; this picture is of M-RoPE, such as Qwen2-VL's")


def _axes(sections: tuple[int, int, int], kind: str, base: float) -> list[int]:
    """Found by moving one axis at a time: the pairs whose phase changes are that axis's."""
    import torch

    from ropewalk import positions
    from ropewalk.encodings import RoPE

    rope = RoPE(head_width=2 * sum(sections), base=base, sections=sections, arrangement=kind)
    phases = rope.phases(positions.explicit(torch.eye(3, dtype=torch.int64)[None], 2))[0]  # (3, pairs)
    return [int((phases[:, pair] != 0).nonzero()[0]) for pair in range(phases.shape[1])]


def chart(data: Data, words: Words) -> Chart:
    found = data["axis_of"]
    pairs = len(found["blocks"])
    ticks = [(row + 0.5, kind) for row, kind in enumerate(found)]
    names = [words("time"), words("height"), words("width")]
    panel = Panel(
        x=Axis(low=0, high=pairs, label=words("pair")),
        y=Axis(low=2, high=0, ticks=ticks),
        marks=[Heat(rows=list(found.values()), low=0, high=2, scale="trio", names=names)],
    )
    told = " ".join(map(str, data["sections"]))
    about = words("about") + (words("own", name=data["name"], own=data["own"]) if data["own"] else "")
    fit = [found["interleaved"].count(axis) for axis in range(3)]
    if fit != data["sections"]:
        about += words("fits", counts=" ".join(map(str, fit)))
    return Chart(title=words("title", sections=told), about=about, panels=[panel], height=1.9)
