"""One HTML file that stands alone: nothing fetched, a content policy by hash, light and dark, two languages.

page({"en": "Scoreboard", "zh": "..."}, [parts.verdict(...), parts.table(...)]) -> the file
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

from ropewalk.plot.palette import Palette, mixed
from ropewalk.report.markup import Content, Html, element, html

STEPS = 32
"""Shades of a scale of colours, less one."""
SCALES = ("diverging", "rising", "graded", "kinds", "trio")


def page(
    title: Mapping[str, str],
    body: Sequence[Content],
    *,
    style: str = "",
    scripts: Sequence[str] = (),
    wide: bool = False,
) -> str:
    """The file. `style` and `scripts` are code of our own, beside what every page has."""
    shown = html(body)
    styles = stylesheet(charts="<svg" in shown) + style
    codes = [_file("page.js"), *scripts]
    head = [
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy(styles, codes)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title["en"], **{f"data_{language}": said for language, said in title.items()}),
        Html(f"<style>{styles}</style>"),
    ]
    codes_shown = [Html(f"<script>{code}</script>") for code in codes]
    inside = element("main", shown, class_="wide" if wide else None)
    body_shown = element("body", "\n", element("header", switch()), inside, "\n", _lines(codes_shown))
    whole = element("html", "\n", element("head", _lines(head)), "\n", body_shown, lang="en")
    return f"<!doctype html>\n{whole}\n"


def policy(style: str, scripts: Sequence[str]) -> str:
    """Nothing may be fetched, and nothing run but what has these hashes."""
    hashes = " ".join(f"'sha256-{_digest(code)}'" for code in scripts)
    return (
        f"default-src 'none'; style-src 'sha256-{_digest(style)}'; script-src {hashes}; base-uri 'none'; "
        "form-action 'none'"
    )


def switch() -> Html:
    """Between the languages; the script shows it, since it does nothing without."""
    buttons = [
        element(
            "button",
            name,
            type="button",
            data_lang=short,
            lang=tag,
            class_="only",
            aria_pressed=str(short == "en").lower(),
        )
        for short, tag, name in (("en", "en", "English"), ("zh", "zh-CN", "\u4e2d\u6587"))
    ]
    return element("div", buttons, class_="languages", role="group", aria_label="Language, \u8bed\u8a00", hidden=True)


@cache
def stylesheet(charts: bool = False) -> str:
    """The style of every page: colours of the palette on a light and a dark page, then the rules."""
    light, dark = _colours(Palette()), _colours(Palette(dark=True))
    parts = [f":root{{color-scheme:light dark;{light}}}", f"@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"]
    parts.append(_file("page.css"))
    if charts:
        shades = [_shades(Palette(dark)) for dark in (False, True)]
        parts += [_file("chart.css"), shades[0], f"@media (prefers-color-scheme:dark){{{shades[1]}}}"]
    return "\n".join(parts)


def _colours(palette: Palette) -> str:
    named = {name: palette.page(name) for name in ("page", "ink", "soft", "line", "wash")}
    named |= {tone: palette.tone(tone) for tone in palette.tones}
    named |= {f"{fill}-fill": palette.fill(fill) for fill in ("blue", "orange", "green", "violet", "gold")}
    return ";".join(f"--{name}:{colour}" for name, colour in named.items())


def _shades(palette: Palette) -> str:
    """A class for each step of each scale: colours in a style attribute are against the policy."""
    return "".join(
        f".{scale}-{step}{{--shade:{mixed(palette.scale(scale), step / STEPS)}}}"
        for scale in SCALES
        for step in (range(STEPS + 1) if scale not in ("kinds", "trio") else (0, STEPS // 2, STEPS))
    )


def _digest(code: str) -> str:
    return base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()


def _lines(parts: Sequence[Html]) -> Html:
    return Html("\n".join(["", *parts, ""]))


def _file(name: str) -> str:
    return (files("ropewalk.report") / name).read_text(encoding="utf-8")
