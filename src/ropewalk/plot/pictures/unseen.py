"""Which angles of each pair were never seen in training, at which distance, before and after a scaling."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field

from ropewalk.amounts import Amount
from ropewalk.checkpoints.inspect.lengths import candidates
from ropewalk.plot.chart import Axis, Chart, Data, Heat, Level, Panel, spread
from ropewalk.plot.subject import Rotation, Subject, scaling_name, subject
from ropewalk.plot.words import Words

TAKES = "[CHECKPOINT]"
IN_PYTHON = "a plan, an encoding, a model"

TURNED, SEEN, UNSEEN = 0, 1, 2
"""The pair completed a turn in training; it did not, and this angle is among those it passed; it is not."""
SLACK = 1 + 1e-9
"""Angles equal but for rounding are equal."""


class Options(Rotation):
    to: Amount | None = Field(default=None, le=2**40)
    """Length to reach; what the checkpoint is extended to, or four times its trained length, unless given."""
    scaling: Literal["linear", "ntk", "dynamic", "yarn", "llama3", "longrope"] | None = None
    """Scaling to compare with; the checkpoint's own, or yarn, unless given."""


def data(thing: Any, options: Options) -> Data:
    of = subject(thing, options)
    to = options.to or of.plan.extended or 4 * of.trained
    if to <= of.trained:
        raise ValueError(f"to={to:,} is within the {of.length_name} length, {of.trained:,}; give a longer one")
    farthest = min(to, of.layer.window or to)
    if farthest <= of.trained:
        raise ValueError(
            f"the layer sees at most {farthest:,} tokens of {of.name}, within its {of.length_name} length, "
            f"{of.trained:,}: where the engine keeps to that window, no distance grows with the text, and no scaling "
            "is needed"
        )
    distances = spread(1, farthest - 1, 160)
    plain = of.plain()
    name, scaled = _scaled(of, options.scaling, to)
    before, after = _kinds(plain, plain, of.trained, distances), _kinds(plain, scaled, of.trained, distances)
    return {
        **of.facts(),
        "to": farthest,
        "scaling": name,
        "distances": distances,
        "before": before,
        "after": after,
        "pairs_unseen": [_past(plain, omegas, of.trained, farthest) for omegas in (plain, scaled)],
    }


def _scaled(of: Subject, wanted: str | None, to: int) -> tuple[str, list[float]]:
    own = of.layer.scaling
    if own is not None and wanted in (None, own.kind):
        return scaling_name(own), list(of.layer.for_length(to).frequencies)
    found = candidates(of.plan, of.layer, of.trained, to)
    if not found:
        raise ValueError(f"{of.name} has proportional RoPE, which no scaling here extends; leave scaling= out")
    chosen = wanted or "yarn"
    if chosen not in found:
        raise ValueError(f"scaling={chosen} needs lists that {of.name} does not have; there are {', '.join(found)}")
    scaling = found[chosen]
    return scaling_name(scaling), [float(o) for w in of.layer.ladders for o in scaling.frequencies(of.base, w)]


def _kinds(plain: list[float], omegas: list[float], trained: int, distances: list[int]) -> list[list[int]]:
    """A row for each pair. In training it passed the angles from 0 to what it turns within the trained length."""
    rows = []
    for was, now in zip(plain, omegas, strict=True):
        reached = was * trained
        if reached >= 2 * math.pi or not was:
            rows.append([TURNED] * len(distances))
            continue
        angles = [distance * now % (2 * math.pi) for distance in distances]
        rows.append([SEEN if angle <= reached * SLACK else UNSEEN for angle in angles])
    return rows


def _past(plain: list[float], omegas: list[float], trained: int, to: int) -> int:
    """Pairs that leave the angles they passed in training somewhere below `to`."""
    every = zip(plain, omegas, strict=True)
    return sum(0 < was * trained < 2 * math.pi and now * (to - 1) > was * trained * SLACK for was, now in every)


def chart(data: Data, words: Words) -> Chart:
    distances, pairs = data["distances"], len(data["before"])
    place = {d: i + 0.5 for i, d in enumerate(distances)}
    ticks = [(_nearest(place, 10**power), f"{10**power:,}") for power in range(1, 13) if 10**power <= distances[-1]]
    x = Axis(low=0, high=len(distances), label=words("distance"), ticks=ticks)
    edge = Level(axis="x", at=_nearest(place, data["trained"]))
    names = [words("turned"), words("seen"), words("unseen")]
    first, second = data["pairs_unseen"]
    panels = []
    for key, title in (("before", words("before")), ("after", data["scaling"])):
        heat = Heat(rows=data[key], low=0, high=2, scale="kinds", names=names, bar=key == "before")
        y = Axis(low=pairs, high=0, label=words("pair"))
        panels.append(Panel(title=title, x=x, y=y, marks=[heat, edge]))
    told = {"name": data["name"], "trained": data["trained"], "to": data["to"]}
    length = words("the_stated" if data["trained_is_stated"] else "the_trained")
    counts = {"first": first, "second": second, "pairs": pairs}
    about = words("about", length=length, scaling=data["scaling"], trained=data["trained"], **counts)
    return Chart(title=words("title", **told), about=about, panels=panels, height=2.7)


def _nearest(place: dict[int, float], distance: int) -> float:
    return place[min(place, key=lambda known: abs(math.log(known / distance)))]
