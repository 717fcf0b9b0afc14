"""The gallery as a page: the checkpoints that engines disagree on first, each with why, then all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ropewalk.checkpoints.engines.besides import ASPECTS
from ropewalk.plot.chart import Axis
from ropewalk.plot.pictures.engines import LOOKS
from ropewalk.report.engine_parts import aspects, engines_table, lengths, notes, number, plan, strips, top_of, words
from ropewalk.report.markup import Content, Html, anchor, element, link
from ropewalk.report.page import page as whole_page
from ropewalk.report.parts import Heading, Shown, fold, table, verdict

MADE = "python scripts/gallery.py\nropewalk inspect config.json --html page.html"
CELLS = {"agrees": "good", "departs": "bad", "partly": "fair", "refuses": "none"}
WIDE, HIGH = 240, 16
"""Of a strip, in dots."""
STYLE = """
.strip{display:block;width:150px;height:16px}
.every td:nth-child(2){min-width:12rem}
.every table{font-size:.85rem}
.strip .marks{stroke:var(--blue);stroke-width:1.2;fill:none}
.strip .end{stroke:var(--ink);stroke-width:1.2;stroke-dasharray:3 2;fill:none}
.strip .base{fill:var(--wash)}
"""


def page(data: dict[str, Any]) -> str:
    """One HTML file."""
    entries = data["entries"]
    bad = sorted((one for one in entries if not one["agree"]), key=_worst)
    turning = [one for one in entries if one["rotates"]]
    versions = {one["engine"]: one["version"] for one in entries[0]["engines"].values()}
    named = [f"{engine} ({version})" for engine, version in versions.items()]
    top = top_of(entries)
    body: list[Content] = [
        element("h1", words("title")),
        element("p", words("about", engines=_listed(list(versions)))),
        verdict(words("verdict", bad=len(bad), count=len(turning)), words("verdict_more"), good=not bad),
        _key(),
        element("h2", words("bad"), id="bad") if bad else None,
        _overview(bad) if bad else None,
        [_section(one, top) for one in bad],
        element("h2", words("every"), id="all"),
        element("p", words("every_about", top=f"{top:,.0f}")),
        _table(entries, top),
        fold(words("unread_count", count=len(data["unread"])), [_unread(one) for one in data["unread"]])
        if data["unread"]
        else None,
        element("p", words("versions", engines=_listed(named)), class_="soft"),
        element("p", words("made")),
        element("pre", MADE),
    ]
    return whole_page(words("page"), body, style=STYLE, wide=True)


def _listed(names: Sequence[str]) -> dict[str, str]:
    return {language: comma.join(names) for language, comma in words("comma").items()}


def _worst(one: dict[str, Any]) -> int:
    """Other frequencies first, then gains, then the rest."""
    return min(ASPECTS.index(name) for found in one["engines"].values() for name in found["departs"])


def _overview(bad: list[dict[str, Any]]) -> Html:
    engines = bad[0]["engines"]
    rows = [[_name(one), *(_engine(one["engines"][name]) for name in engines)] for one in bad]
    heads = [words("checkpoint"), *(found["engine"] for found in engines.values())]
    return table(heads, rows, label=words("bad"), stacks=True)


def _name(one: dict[str, Any]) -> Shown:
    said = one["name"] if one["agree"] else link(f"#{anchor(one['name'])}", one["name"])
    return Shown(said=said, value=one["name"])


def _key() -> Html:
    items = [
        element("li", element("span", f"{LOOKS[kind][0]} ", words(f"key_{kind}"), class_=f"badge {look}"))
        for kind, look in CELLS.items()
    ]
    return element("ul", items, class_="key")


def _section(one: dict[str, Any], top: float) -> Html:
    """A checkpoint that some engine computes otherwise."""
    shown = [element("p", words("source"), ": ", link(one["source"])) if one["source"] else None]
    return element(
        "section",
        element("h3", one["name"]),
        element("p", plan(one), " \u00b7 ", lengths(one), class_="soft"),
        notes(one, counting=True),
        strips(one, top, departing=True),
        fold(words("engines_table"), engines_table(one), notes(one, counting=False), shown),
        id=anchor(one["name"]),
        class_="cause",
    )


def _table(entries: list[dict[str, Any]], top: float) -> Html:
    engines = entries[0]["engines"]
    heads: list[Heading | Content] = [
        words("checkpoint"),
        words("positions"),
        Heading(said=words("length"), number=True),
        *(found["engine"] for found in engines.values()),
        words("wavelengths"),
    ]
    rows = [_row(one, list(engines), top) for one in entries]
    return element("div", table(heads, rows, label=words("every"), stacks=True), class_="every")


def _row(one: dict[str, Any], engines: list[str], top: float) -> list[Shown | Content]:
    length = one["trained"] or one["stated"]
    pairs = one["pairs"]
    said = element("small", words("of_pairs", count=pairs[0]["unfinished"], pairs=pairs[0]["pairs"])) if pairs else ""
    return [
        _name(one),
        plan(one),
        Shown(said=number(length) if length else "", value=length or 0, look="" if length else "none"),
        *(_engine(one["engines"][name]) for name in engines),
        Shown(said=[_strip(one, top), said], look="" if pairs else "none", value=pairs[0]["longest"] if pairs else 0),
    ]


def _engine(found: dict[str, Any]) -> Shown:
    kind = found.get("kind")
    if kind is None:
        return Shown(said=["\u2013", element("span", words("none_compared"), class_="aside")], look="none", value=9)
    sign, look = LOOKS[kind][0], CELLS[kind]
    more = aspects(found["departs"] or found["not_compared"]) if kind in ("departs", "partly") else None
    said = [sign, " ", more or element("span", words(f"key_{kind}"), class_="aside")]
    return Shown(said=said, look=look, value=["departs", "partly", "refuses", "agrees"].index(kind))


def _strip(one: dict[str, Any], top: float) -> Content:
    """Every pair of its first layers that turn, on the scale that all strips share."""
    if not one["waves"]:
        return ""
    axis = Axis(low=6, high=top, log=True)
    waves = [wave for wave in one["waves"][0]["rows"][0]["wavelengths"] if wave]
    marks = "".join(f"M{WIDE * min(axis.share(wave), 1):.0f} 3v10" for wave in waves)
    length = one["trained"] or one["stated"]
    end = f"M{WIDE * min(max(axis.share(length), 0), 1):.0f} 0v{HIGH}" if length else None
    parts = [
        element("rect", width=WIDE, height=HIGH, class_="base"),
        element("path", d=marks, class_="marks"),
        element("path", d=end, class_="end") if end else None,
    ]
    return element("svg", parts, viewBox=f"0 0 {WIDE} {HIGH}", class_="strip", aria_hidden="true")


def _unread(one: dict[str, str]) -> Html:
    return element("p", element("strong", one["name"]), " ", element("span", {"en": one["why"]}, class_="soft"))
