"""What pages say of a checkpoint of `gallery.entry`: its plan, what engines compute otherwise and why, wavelengths."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ropewalk.amounts import consecutive
from ropewalk.plot.chart import RAISED, Axis, Chart, Level, Line, Panel
from ropewalk.report.engine_words import linked, told
from ropewalk.report.gallery import CONFIG
from ropewalk.report.markup import LANGUAGES, Content, Html, anchor, element, html
from ropewalk.report.parts import Heading, Shown, figure, table
from ropewalk.report.words import Words

words = Words("gallery")
TONES = {CONFIG: ("blue", 0), "transformers 5": ("violet", 0), "transformers 4": ("gold", 0), "vLLM": ("green", 0)}
OTHER = ("orange", 0)
LOW = 6.0
"""A pair takes at least 2 pi tokens for a turn."""


def number(value: float) -> str:
    """8,192; 500,000; what is too long for a line in powers of ten."""
    return f"{value:,.10g}" if abs(value) < 1e15 else f"{value:.6g}"


def plan(one: dict[str, Any]) -> Content:
    """What its layers have, in a line."""
    several = len(one["layers"]) > 1
    said: list[Content] = []
    for layer in one["layers"]:
        start = words("layers_of", count=layer["count"], all=one["count"]) if several else ""
        said += ["; " if said else "", start, _layer(layer)]
    return said


def _layer(layer: dict[str, Any]) -> Content:
    said: list[Content] = [words.table("kinds").get(layer["kind"], layer["kind"])]
    if layer["base"] is not None:
        said.append(f"\u03b8 {number(layer['base'])}")
    if layer["rotated"] and layer["rotated"] != layer["head"]:
        said.append(words("part", part=layer["rotated"], whole=layer["head"]))
    if layer["scaling"]:
        said.append(layer["scaling"] + (f" \u00d7{layer['factor']:.6g}" if layer["factor"] else ""))
    if layer["window"]:
        said.append(words("window", n=number(layer["window"])))
    return _commas(said)


def lengths(one: dict[str, Any]) -> Content:
    said: list[Content] = []
    length = "trained" if one["trained"] else "stated"
    if one[length]:
        said.append(words(f"{length}_at", length=number(one[length])))
    if one["extended"]:
        said.append(words("extended_to", length=number(one["extended"])))
    if one["pairs"]:
        first = one["pairs"][0]
        told = {"count": first["unfinished"], "pairs": first["pairs"], "longest": number(round(first["longest"]))}
        said.append(words("never_turn", **told))
    return _joined(said, " \u00b7 ")


def aspects(names: Sequence[str]) -> dict[str, str]:
    known = words.table("aspects")
    return {
        language: comma.join(known[name][language] if name in known else name for name in names)
        for language, comma in words("comma").items()
    }


def _commas(said: list[Content]) -> Content:
    return _joined(said, words("comma"))


def _joined(said: list[Content], between: Content) -> Content:
    return [part for place, one in enumerate(said) for part in ([between, one] if place else [one])]


def notes(one: dict[str, Any], *, counting: bool) -> Html:
    """What engines do otherwise, or, not `counting`, what is only worth knowing; each once, with all engines it is
    true of."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for engine in one["engines"].values():
        for note in engine["notes"]:
            if note["counts"] == counting:
                found.setdefault((note["what"], note["why"], note["issue"]), []).append(engine["engine"])
    items = [
        element(
            "li", element("strong", _commas(list(dict.fromkeys(engines)))), " ", _told(*note), _issue(note[2], counting)
        )
        for note, engines in found.items()
    ]
    if not counting:
        items += [
            element("li", element("strong", engine["engine"]), " ", words("refused"), told(engine["refusal"]))
            for engine in one["engines"].values()
            if engine["refusal"] and one["rotates"]
        ]
    return element("ul", items) if items else Html()


def _told(what: str, why: str, issue: str) -> Html:
    """What it does, and what makes it so."""
    return html([told(what), words("because"), element("span", told(why), class_="soft"), words("stop")])


def _issue(issue: str, counting: bool) -> Html:
    if issue:
        return linked(issue)
    return element("span", words("no_issue"), class_="soft") if counting else Html()


def engines_table(one: dict[str, Any]) -> Html:
    """The numbers of every engine beside the config's."""
    rows: list[list[Shown | Content]] = []
    for engine in one["engines"].values():
        bad = engine.get("kind") == "departs"
        if engine["refusal"]:
            rows.append([engine["engine"], Shown(said=words("key_refuses"), look="none"), "", "", "", ""])
            continue
        departs = aspects(engine.get("departs", ()))
        rows.append(
            [
                engine["engine"],
                Shown(said=["\u2260 ", departs] if bad else words("key_agrees"), look="bad" if bad else "good"),
                _apart(engine),
                " / ".join(f"{gain:.5g}" for gain in engine["rotary_gain"]),
                " / ".join(f"{gain:.5g}" for gain in engine["logit_gain"]),
                number(engine["length"]) if engine["length"] else "",
            ]
        )
    heads = [words("engine"), words("positions"), words("frequencies"), words("rotary_gain"), words("logit_gain"),
             Heading(said=words("length"), number=True)]  # fmt: skip
    return table(heads, rows, label=words("engines_table"), sorts=False, stacks=True)


def _apart(engine: dict[str, Any]) -> Content:
    short, long = (_size(engine[key]) for key in ("apart", "apart_long"))
    return short if short == long else words("short_then_long", short=short, long=long)


def _size(apart: float | None) -> dict[str, str]:
    if apart is None:
        return words("other_pairs")
    return words("same") if apart == 1 else words("up_to", ratio=f"{apart:.3g}")


def top_of(entries: Sequence[dict[str, Any]]) -> float:
    """Where the scale of wavelengths ends: a power of ten."""
    every = [
        wave for one in entries for each in one["waves"] for row in each["rows"] for wave in row["wavelengths"] if wave
    ]
    every += [one[key] for one in entries for key in ("trained", "stated") if one[key]]
    return 10.0 ** min(math.ceil(math.log10(max(every, default=10))), 300)


def strips(one: dict[str, Any], top: float, *, departing: bool = False) -> Html:
    """A figure for each set of layers: a row of dots as the config says, and one for each engine that departs."""
    found = []
    for place, waves in enumerate(one["waves"]):
        if departing and all(row["who"] == CONFIG for row in waves["rows"]):
            continue
        charts = {language: _chart(one, waves, top, language) for language in LANGUAGES}
        found.append(figure(charts, anchor(one["name"], "waves", str(place)), _numbers(one, waves)))
    return html(found)


def _numbers(one: dict[str, Any], waves: dict[str, Any]) -> Html:
    rows = waves["rows"]
    most = max(len(row["wavelengths"]) for row in rows)
    values = [[*row["wavelengths"], *[None] * (most - len(row["wavelengths"]))] for row in rows]
    heads = [words("pair"), *(Heading(said=_row_name(row), number=True) for row in rows)]
    body = [[str(pair), *("" if wave is None else f"{wave:,.7g}" for wave in each)]
            for pair, each in enumerate(zip(*values, strict=True))]  # fmt: skip
    return table(heads, body, label=words("strip_title", name=one["name"]), sorts=False)


def _row_name(row: dict[str, Any]) -> dict[str, str]:
    return words(f"row_{row['when']}", who=words("row_config") if row["who"] == CONFIG else row["who"])


def _chart(one: dict[str, Any], waves: dict[str, Any], top: float, language: str) -> Chart:
    rows = waves["rows"]
    names = [_row_name(row)[language] for row in rows]
    marks: list[Any] = []
    length = one["trained"] or one["stated"]
    if length:
        key = "trained_at" if one["trained"] else "stated_at"
        marks.append(Level(axis="x", at=length, label=words(key, length=number(length))[language]))
    for place, row in enumerate(rows):
        known = [wave for wave in row["wavelengths"] if wave]
        tone, _ = TONES.get(row["who"], OTHER)
        marks.append(Line(x=known, y=[place] * len(known), tone=tone, dots=True, joined=False))
    panel = Panel(
        x=Axis(low=LOW, high=top, log=True, label=words("strip_axis")[language], ticks=_powers(top)),
        y=Axis(low=len(rows) - 0.4, high=-0.9, ticks=list(enumerate(names))),
        marks=marks,
    )
    several = len(one["waves"]) > 1
    title = words("strip_title_layers" if several else "strip_title", name=one["name"], layers=_spans(waves["layers"]))
    return Chart(
        title=title[language], about=words("strip_about")[language], panels=[panel], height=0.75 + 0.3 * len(rows)
    )


def _powers(top: float) -> list[tuple[float, str]]:
    """Short enough to stand beside one another on a narrow screen."""
    last = round(math.log10(top))
    every = range(1, last + 1, max(1, last // 10))
    return [(10.0**power, str(10**power) if power < 3 else f"10{str(power).translate(RAISED)}") for power in every]


def _spans(numbers: Sequence[int]) -> str:
    """0-3, 5, 7-9; cut where it is long."""
    said = [str(a) if a == b else f"{a}\u2013{b}" for a, b in consecutive(numbers)]
    return ", ".join(said) if len(said) <= 6 else f"{', '.join(said[:5])}, \u2026"
