"""Loss by position, with a band: where a model stops using its context, and what a scaling costs on short text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import Field

from ropewalk.amounts import Amount
from ropewalk.evaluate.statistics import paired
from ropewalk.plot.chart import Axis, Chart, Data, Level, Line, Panel
from ropewalk.plot.runs import named_runs
from ropewalk.plot.words import Words
from ropewalk.settings import Settings

TAKES = "RUN..."
IN_PYTHON = "a mapping from a name to {at, loss, low, high} or {at, losses}"
LOOKS = (("blue", 0), ("orange", 1), ("green", 3), ("violet", 2), ("gold", 4), ("grey", 5))


class Options(Settings):
    together: bool = False
    """Take the runs for repetitions of one: their mean, with a band of 95 %."""
    trained: Amount | None = Field(default=None, le=2**40)
    """Trained length, to be marked."""
    log: bool = False
    """Positions on a logarithmic axis."""


def data(thing: Any, options: Options) -> Data:
    """Of runs: their last evaluation, from metrics.jsonl. Of a mapping: `at` has positions and `losses` a list of
    losses for each document; or `loss` one list, with `low` and `high` around it where there is a band."""
    if isinstance(thing, Mapping):
        if options.together:
            raise ValueError("together= joins runs; of a mapping, give `losses`, a list for each document")
        series = [_series(str(name), given) for name, given in thing.items()]
    else:
        found = [(name, _evaluated(path)) for name, path in named_runs(thing)]
        series = [_joined(found)] if options.together else [_series(name, one) for name, one in found]
    return {"trained": options.trained, "log": options.log, "series": series}


def _evaluated(path: Path) -> dict[str, Any]:
    from ropewalk.train.metrics import read

    records = [one for one in read(path)["valid"] if one.get("by_position")]
    if not records:
        raise ValueError(f"{path} holds no evaluation by position yet; wait for one, or name another run")
    bins = records[-1]["by_position"]
    starts = [one["from"] for one in bins]
    # Bins are equally wide, and one without a token is left out.
    width = min((after - before for before, after in pairwise(starts)), default=1)
    return {"at": [start + (width - 1) // 2 for start in starts], "loss": [_number(one["loss"]) for one in bins]}


def _joined(found: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    first, at = found[0][0], found[0][1]["at"]
    for name, one in found:
        if one["at"] != at:
            raise ValueError(f"{name} was evaluated at other positions than {first}; compare like with like")
    return _series(", ".join(name for name, _ in found), {"at": at, "losses": [one["loss"] for _, one in found]})


def _series(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    at = [int(place) for place in given["at"]]
    if "losses" not in given:
        band = {key: None if given.get(key) is None else list(given[key]) for key in ("low", "high")}
        return {"name": name, "at": at, "loss": [_number(loss) for loss in given["loss"]], **band, "count": None}
    losses = [[_number(loss) for loss in one] for one in given["losses"]]
    count = len(losses)
    if not losses or any(len(one) != len(at) for one in losses):
        raise ValueError(f"{name}: every document needs {len(at)} losses, one a position")
    found = [[one for one in column if one is not None] for column in zip(*losses, strict=True)]
    # A place where one of them is not finite has no mean.
    means = [paired(column) if len(column) == count else None for column in found]
    loss, low, high = ([one and getattr(one, end) for one in means] for end in ("mean", "low", "high"))
    band = {"low": low, "high": high} if count > 1 else {"low": None, "high": None}
    return {"name": name, "at": at, "loss": loss, **band, "count": count}


def _number(value: Any) -> float | None:
    """metrics.jsonl has words for what is not finite."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def chart(data: Data, words: Words) -> Chart:
    lines = []
    for one, (tone, dashes) in zip(data["series"], LOOKS * 9, strict=False):
        at, kept = one["at"], [i for i, loss in enumerate(one["loss"]) if loss is not None]
        low, high = (None if one[key] is None else [one[key][i] for i in kept] for key in ("low", "high"))
        look: dict[str, Any] = {"tone": tone, "dashes": dashes, "low": low, "high": high}
        x = [max(at[i], 1) if data["log"] else at[i] for i in kept]
        y = [one["loss"][i] for i in kept]
        lines.append(Line(x=x, y=y, label=one["name"], dots=len(x) <= 32, **look))
    values = [v for line in lines for part in (line.y, line.low or (), line.high or ()) for v in part]
    if not values:
        raise ValueError(f"no loss of {', '.join(one['name'] for one in data['series'])} is finite: nothing to draw")
    lowest, highest = min(values), max(values)
    room = 0.08 * (highest - lowest or 1)
    near, far = min(x for line in lines for x in line.x), max(x for line in lines for x in line.x)
    marks: list[Any] = [*lines]
    if data["trained"]:
        marks.insert(0, Level(axis="x", at=data["trained"], label=words("trained", length=data["trained"])))
        far = max(far, data["trained"])
    panel = Panel(
        x=Axis(low=near, high=max(far, near + 1), label=words("position"), log=data["log"]),
        y=Axis(low=lowest - room, high=highest + room, label=words("loss")),
        marks=marks,
    )
    banded = any(one["low"] is not None for one in data["series"])
    about = words("about") + (words("band") if banded else "")
    return Chart(title=words("title"), about=about, panels=[panel], height=3.6)
