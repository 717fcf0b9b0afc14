"""The lab's controls: native elements, each with its label. The script gives them their bounds and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ropewalk.report.markup import Html, element

Said = dict[str, dict[str, str]]

OF_BIASES = ("query", "key", "heads", "head", "buckets", "farthest", "scale", "rate", "window")


def of_start(said: Said) -> list[Html]:
    numbers = [_number(name, said) for name in ("base", "width", "trained")]
    return [_select("model", said), *numbers, _select("scaling", said), _slider("to", said)]


def of_panel(name: str, said: Said) -> list[Html]:
    if name == "sinusoids":
        return [_slider(field, said) for field in ("first", "second", "feature", "features")]
    if name == "clocks":
        play = element("p", button("play"), class_="buttons")
        position = _slider("position", said, hint="position_hint"), _number("position", said, label="exact_position")
        return [*position, _slider("pair", said), play]
    if name == "relative":
        both = _slider("shift", said, hint="position_hint"), _slider("apart", said)
        return [*both, _radios("product", ("exact", "float32"), said)]
    if name == "wavelengths":
        return [_slider("pair", said, place="waves")]
    if name == "scalings":
        return [_slider(field, said, place="scalings") for field in ("to", "pair")]
    return [_select("bias", said), *(_slider(field, said) for field in OF_BIASES)]


def button(name: str, text: Any = None) -> Html:
    return element("button", text, type="button", id=name, class_="plain")


def _control(name: str, inside: Any, label: Any, place: str, *, output: bool = False, long: bool = False) -> Html:
    shown = element("output", id=f"{place}{name}-value", for_=f"{place}{name}") if output else None
    named = element("label", label, for_=f"{place}{name}")
    return element("div", named, shown, inside, class_="control long" if long else "control", data_field=name)


def _slider(name: str, said: Said, *, hint: str | None = None, place: str = "") -> Html:
    """`place` where a field has more than one."""
    place = f"{place}-" if place else ""
    about = f"{place}{name}-hint" if hint else None
    box = element("input", type="range", id=f"{place}{name}", data_set=name, aria_describedby=about)
    more = element("small", said[hint], id=about) if hint else None
    return _control(name, [box, more], said[name], place, output=True, long=hint is not None)


def _number(name: str, said: Said, label: str | None = None) -> Html:
    place = "" if label is None else "exact-"
    box = element("input", type="number", id=f"{place}{name}", data_set=name, step="any", inputmode="decimal")
    return _control(name, box, said[label or name], place)


def _select(name: str, said: Said) -> Html:
    return _control(name, element("select", id=name, data_set=name), said[name], "", long=True)


def _radios(name: str, choices: Sequence[str], said: Said) -> Html:
    boxes = []
    for choice in choices:
        box = element("input", type="radio", name=name, value=choice, data_set=name, id=f"{name}-{choice}")
        boxes.append(element("label", box, said[f"{name}_{choice}"]))
    return element("fieldset", element("legend", said[name]), boxes, class_="control", data_field=name)
