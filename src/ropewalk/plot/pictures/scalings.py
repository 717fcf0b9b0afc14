"""What every scaling does to every pair of features: how many times slower it makes it turn."""

from __future__ import annotations

import math
from typing import Any

from pydantic import Field

from ropewalk.amounts import Amount
from ropewalk.checkpoints.inspect.lengths import candidates
from ropewalk.plot.chart import Axis, Chart, Data, Level, Line, Panel
from ropewalk.plot.subject import Rotation, Subject, scaling_name, subject
from ropewalk.plot.words import Words
from ropewalk.scaling import Scaling

TAKES = "[CHECKPOINT]"
IN_PYTHON = "a plan, an encoding, a model"

LOOKS = {
    "linear": ("violet", 2),
    "ntk": ("green", 1),
    "dynamic": ("gold", 4),
    "yarn": ("blue", 0),
    "llama3": ("orange", 3),
    "longrope": ("grey", 0),
}
"""The tone and the dashes of each."""


class Options(Rotation):
    to: Amount | None = Field(default=None, le=2**40)
    """Length to reach; what the checkpoint is extended to, or four times its trained length, unless given."""


def data(thing: Any, options: Options) -> Data:
    of = subject(thing, options)
    to = options.to or max(of.plan.extended or 0, 0) or 4 * of.trained
    if to <= of.trained:
        raise ValueError(f"to={to:,} is within the {of.length_name} length, {of.trained:,}; give a longer one")
    plain = of.plain()
    slower: dict[str, list[float | None]] = {}
    gains: dict[str, float] = {}
    found = candidates(of.plan, of.layer, of.trained, to)
    if not found:
        raise ValueError(f"{of.name} has proportional RoPE, which no scaling here extends")
    for name, scaling in found.items():
        try:
            slower[name] = _slower(plain, of, scaling)
        except ValueError:
            continue  # a scaling that has no frequencies for such a width or base
        gains[name] = scaling.rotary_gain
    own = None
    if of.layer.scaling is not None:
        now = of.layer.for_length(max(to, of.trained + 1))
        own = {
            "name": scaling_name(of.layer.scaling),
            "slower": _ratio(plain, list(now.frequencies)),
            "gain": now.rotary_gain,
        }
    return {**of.facts(), "to": to, "factor": to / of.trained, "slower": slower, "gains": gains, "own": own,
            "wavelengths": [2 * math.pi / omega if omega else None for omega in plain]}  # fmt: skip


def _slower(plain: list[float], of: Subject, scaling: Scaling) -> list[float | None]:
    return _ratio(plain, [float(o) for width in of.layer.ladders for o in scaling.frequencies(of.base, width)])


def _ratio(plain: list[float], scaled: list[float]) -> list[float | None]:
    return [one / other if one and other else None for one, other in zip(plain, scaled, strict=True)]


def chart(data: Data, words: Words) -> Chart:
    pairs = len(data["wavelengths"])
    lines = []
    if data["own"]:
        own = data["own"]["slower"]
        lines.append(_line(own, words("own", name=data["own"]["name"]), "soft", 0, thick=True))
    for name, values in data["slower"].items():
        if data["own"] and values == data["own"]["slower"]:
            continue
        tone, dashes = LOOKS[name]
        gain = data["gains"][name]
        label = name if gain == 1 else words("with_gain", name=name, gain=f"{gain:.4g}")
        lines.append(_line(values, label, tone, dashes))
    highest = max(max(line.y) for line in lines)
    marks: list[Any] = [*lines]
    split = next((i for i, wave in enumerate(data["wavelengths"]) if wave is None or wave > data["trained"]), None)
    if split:
        marks.insert(0, Level(axis="x", at=split - 0.5, label=words("split")))
    panel = Panel(
        x=Axis(low=0, high=pairs - 1, label=words("pair")),
        y=Axis(low=0.9, high=highest * 1.25, label=words("slower"), log=True, ticks=_ticks(highest * 1.25)),
        marks=marks,
    )
    told = {"from": data["trained"], "to": data["to"]}
    return Chart(title=words("title", name=data["name"], **told), about=words("about"), panels=[panel], height=3.9)


def _ticks(highest: float) -> list[tuple[float, str]]:
    step = 2 if highest < 100 else 4 if highest < 2000 else 16
    values = [1]
    while values[-1] * step <= highest:
        values.append(values[-1] * step)
    return [(value, f"{value}\u00d7") for value in values]


def _line(values: list[float | None], label: str, tone: str, dashes: int, thick: bool = False) -> Line:
    known = [(pair, value) for pair, value in enumerate(values) if value is not None]
    return Line(
        x=[p for p, _ in known], y=[v for _, v in known], label=label, tone=tone, dashes=dashes, thick=thick
    )  # fmt: skip
