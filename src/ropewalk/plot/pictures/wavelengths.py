"""How many tokens each pair of features takes for a turn, against the length the model was trained at."""

from __future__ import annotations

import math
from typing import Any

from ropewalk.plot.chart import Axis, Chart, Data, Level, Line, Panel, Shade
from ropewalk.plot.subject import Rotation, scaling_name, subject
from ropewalk.plot.words import Words

TAKES = "[CHECKPOINT]"
IN_PYTHON = "a plan, an encoding, a model"


class Options(Rotation):
    pass


def data(thing: Any, options: Options) -> Data:
    of = subject(thing, options)
    plain = of.plain()
    scaled: list[float] | None = None
    at = None
    extended = of.plan.extended
    if of.layer.scaling is not None:
        if of.layer.scaling.kind == "dynamic":
            # It does nothing up to the trained length, and more with every token past it.
            at = max(extended or 0, 2 * of.trained)
        layer = of.layer.for_length(at or max(extended or of.trained, of.trained + 1))
        if list(layer.frequencies) != plain:
            scaled = list(layer.frequencies)
    return {
        **of.facts(),
        "extended": extended,
        "scaling": None if scaled is None or of.layer.scaling is None else scaling_name(of.layer.scaling),
        "scaled_at": None if scaled is None else at,
        "wavelengths": [_wavelength(omega) for omega in plain],
        "scaled_wavelengths": None if scaled is None else [_wavelength(omega) for omega in scaled],
        "unfinished": sum(0 < omega * of.trained < 2 * math.pi for omega in plain),
    }


def _wavelength(omega: float) -> float | None:
    """JSON has no infinity: None where a pair does not turn."""
    return 2 * math.pi / omega if omega else None


def chart(data: Data, words: Words) -> Chart:
    plain, scaled = data["wavelengths"], data["scaled_wavelengths"]
    trained, pairs = data["trained"], len(plain)
    longest = max(value for value in [*plain, *(scaled or [])] if value)
    top = 10.0 ** math.ceil(math.log10(max(longest, trained) * 1.2))
    lines = [_line(plain, words("plain") if scaled else "", "blue", 0)]
    if scaled:
        name = data["scaling"]
        if data["scaled_at"]:
            name = words("at_length", name=name, length=data["scaled_at"])
        lines.append(_line(scaled, name, "orange", 1))
    marks = [
        Shade(low=trained, high=top, label=words("unfinished", count=data["unfinished"])),
        Level(axis="y", at=trained, label=words("stated" if data["trained_is_stated"] else "trained", length=trained)),
        *lines,
    ]
    panel = Panel(
        x=Axis(low=0, high=pairs - 1 or 1, label=words("pair")),
        y=Axis(low=1, high=top, label=words("wavelength"), log=True),
        marks=marks,
    )
    still = plain.count(None)
    said = "about_still" if still else "about" if data["unfinished"] else "about_all"
    length = words("the_stated" if data["trained_is_stated"] else "the_trained")
    told = {"count": data["unfinished"], "pairs": pairs, "still": still, "turning": pairs - still}
    about = words(said, length=length, **told)
    return Chart(title=words("title", name=data["name"]), about=about, panels=[panel], height=3.6)


def _line(values: list[float | None], label: str, tone: str, dashes: int) -> Line:
    known = [(pair, value) for pair, value in enumerate(values) if value is not None]
    return Line(x=[p for p, _ in known], y=[v for _, v in known], label=label, tone=tone, dashes=dashes, dots=True)
