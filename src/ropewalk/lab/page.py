"""The lab's page: its panels as HTML, with all words in both languages, around one script."""

from __future__ import annotations

import json
from typing import Any

import yaml

from ropewalk.lab import controls, source
from ropewalk.lab.controls import Said
from ropewalk.plot.palette import Palette
from ropewalk.report.markup import Content, Html, each_language, element
from ropewalk.report.page import page as standing_alone

PANELS = ("sinusoids", "clocks", "relative", "wavelengths", "scalings", "biases")
OF_ROPE = ("clocks", "relative", "wavelengths", "scalings")
"""Panels that say which checkpoint they show."""


def page() -> str:
    """The whole file."""
    words = load_words()
    said = words["static"]
    body: list[Content] = [
        element("h1", said["heading"]),
        element("p", said["intro"]),
        element("noscript", element("p", said["no_script"])),
        _contents(said),
        _start(said),
        *(_panel(name, said) for name in PANELS),
        element("p", said["end"], class_="soft end"),
        element("p", id="status", role="status", class_="aside"),
        _data("words", words["live"]),
        _data("checkpoints", json.loads(source.text("checkpoints.json"))),
    ]
    script = f'"use strict";\n{source.whole()}'
    return standing_alone(said["title"], body, style=stylesheet(), scripts=[script], wide=True)


def load_words() -> dict[str, Said]:
    return yaml.safe_load(source.text("words.yaml"))


def stylesheet() -> str:
    """Colours of the heat maps, on a light and on a dark page, then the rules."""
    scales = []
    for dark in (False, True):
        palette = Palette(dark)
        stops = {"wave": palette.scale("diverging"), "rise": palette.scale("rising")}
        named = ";".join(f"--{name}-{i}:{colour}" for name, scale in stops.items() for i, colour in enumerate(scale))
        scales.append(f":root{{{named}}}")
    return f"\n{scales[0]}\n@media (prefers-color-scheme:dark){{{scales[1]}}}\n{source.text('lab.css')}"


def _data(name: str, data: Any) -> Html:
    """Data that the script reads: not run, and never markup, whatever is in it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return element("script", Html(text), type="application/json", id=name)


def _contents(said: Said) -> Html:
    links = [element("li", element("a", said[f"{name}_title"], href=f"#{name}")) for name in PANELS]
    heading = element("strong", said["contents"], id="contents-title")
    return element("nav", heading, element("ul", links), aria_labelledby="contents-title", class_="contents")


def _start(said: Said) -> Html:
    return element(
        "section",
        element("h2", said["start_heading"], id="start-title"),
        element("p", said["start_text"]),
        element("div", controls.of_start(said), class_="controls"),
        element("p", class_="soft subject"),
        element("p", controls.button("share"), controls.button("reset", said["reset"]), class_="buttons"),
        id="start",
        aria_labelledby="start-title",
        class_="start",
    )


def _panel(name: str, said: Said) -> Html:
    texts = {language: _paragraphs(text) for language, text in said[f"{name}_text"].items()}
    title = element("h2", said[f"{name}_title"], id=f"{name}-title")
    bench = [
        element("p", class_="soft subject") if name in OF_ROPE else None,
        element("div", controls.of_panel(name, said), class_="controls"),
        element("p", id=f"{name}-note", class_="soft note", hidden=True),
        element(
            "figure",
            _pictures(name, said),
            element("figcaption", id=f"{name}-said", class_="said", aria_live="polite"),
        ),
        element("dl", id=f"{name}-numbers", class_="numbers"),
        element("pre", id=f"{name}-code", class_="code", tabindex="0", hidden=True),
        _table(name, said),
    ]
    return element(
        "section",
        element("div", title, each_language("div", texts), class_="prose"),
        element("div", bench, class_="bench"),
        id=name,
        aria_labelledby=f"{name}-title",
        class_="panel",
    )


def _paragraphs(text: str) -> list[Html]:
    return [element("p", one) for one in text.strip().split("\n\n")]


def _table(name: str, said: Said) -> Html:
    """Filled when it is opened. Focusable, so that it can be scrolled with keys."""
    table = element("table", id=f"{name}-table")
    labels = f"{name}-summary {name}-title"
    inside = element("div", table, class_="scrolls tall", tabindex="0", role="region", aria_labelledby=labels)
    return element("details", element("summary", said["table"], id=f"{name}-summary"), inside, id=f"{name}-data")


def _pictures(name: str, said: Said) -> Html:
    if name == "sinusoids":
        maps = [_map(part, said[part]) for part in ("counter", "waves", "products")]
        return element("div", maps, class_="maps", id=f"{name}-picture")
    if name == "biases":
        return element("div", _map("bias-map", None), class_="maps one", id=f"{name}-picture")
    digits = element("p", id="digits", class_="digits", aria_hidden="true") if name == "relative" else None
    return element("div", digits, element("div", id=f"{name}-picture", class_="picture"))


def _map(name: str, title: Content) -> Html:
    """A canvas of one dot for each cell, with a frame over the row and the column that are chosen."""
    about = element("p", element("strong", title) if title else None, element("span", id=f"{name}-axes"),
                    id=f"{name}-about", class_="about")  # fmt: skip
    panel = "biases" if name == "bias-map" else "sinusoids"
    canvas = element("canvas", id=name, role="img", aria_labelledby=f"{name}-about {panel}-said")
    marks = [element("span", class_="mark", hidden=True) for _ in ("row", "column")]
    return element(
        "div",
        about,
        element("div", canvas, marks, class_="canvas"),
        element("p", id=f"{name}-scale", class_="scale"),
        class_=f"map {name}",
    )
