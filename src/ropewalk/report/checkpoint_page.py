"""The page of one checkpoint, `ropewalk inspect SRC --html OUT`: what the gallery says of each, and its pictures.

A config is hostile: its names and values are text here, and a picture that cannot be drawn of it is named with why.
"""

from __future__ import annotations

from typing import Any

from ropewalk.checkpoints.inspect.lengths import Reach
from ropewalk.checkpoints.inspect.report import Report
from ropewalk.plot.catalogue import chart_of, find
from ropewalk.report.engine_parts import aspects, engines_table, lengths, notes, number, plan, strips, top_of, words
from ropewalk.report.engine_words import both, told
from ropewalk.report.gallery import entry
from ropewalk.report.markup import LANGUAGES, Content, Html, clean, element, html
from ropewalk.report.page import page as whole_page
from ropewalk.report.parts import Heading, figure, fold, table, verdict

PICTURES = {"wavelengths": False, "scalings": True, "unseen": True}
"""Each, and whether it asks for a length to reach."""
LONGEST = 60
"""Signs of a name or a key out of a file; more are cut."""


def page(report: Report) -> str:
    """One HTML file."""
    one = entry(report)
    one["name"] = name = _cut(one["name"])
    different = notes(one, counting=True)
    body: list[Content] = [
        element("h1", words("one_title", name=name)),
        element("p", plan(one), class_="soft"),
        element("p", lengths(one), class_="soft"),
        _verdict(report, one),
        [element("h2", words("one_why")), different] if different else None,
        [element("h2", words("engines_table")), engines_table(one)] if report.rotates else None,
        _reach(report.reach) if report.reach is not None else None,
        [element("h2", words("one_pictures")), strips(one, top_of([one]), departing=True), _pictures(report)]
        if report.rotates
        else None,
        _to_know(report, one),
    ]
    return whole_page(words("one_page", name=name), body)


def _verdict(report: Report, one: dict[str, Any]) -> Html:
    more: list[Content] = []
    if report.resolved.not_understood:
        keys = ", ".join(_cut(key) for key in list(report.resolved.not_understood)[:20])
        more.append(words("one_unclear", keys=keys))
    if report.rotates and report.loading and report.unknown:
        more.append(words("one_partly", aspects=aspects(list(report.unknown))))
    if report.resolved.model_type == "ropewalk":
        return verdict(words("one_own"), *more)
    if not report.rotates:
        return verdict(words("one_still"), *more)
    if not report.loading:
        return verdict(words("one_none"), *more)
    at_odds = [report.rows[name].reading.engine for name in report.at_odds]
    agreeing = [report.rows[name].reading.engine for name in report.loading]
    engines = {language: comma.join(at_odds or agreeing) for language, comma in words("comma").items()}
    said = words("one_differ" if at_odds else "one_agree", engines=engines)
    return verdict(said, *more, good=not at_odds and not report.resolved.not_understood)


def _pictures(report: Report) -> Html:
    found = []
    for name, to_reach in PICTURES.items():
        picture = find(name)
        settings = {"to": report.reach.to} if to_reach and report.reach is not None else {}
        try:
            data = picture.data(report, picture.options(settings))
            charts = {language: chart_of(data, language) for language in LANGUAGES}
            found.append(figure(charts, name))
        except (ValueError, OverflowError, ZeroDivisionError) as error:
            found.append(element("p", words("one_no_picture", why=str(error)), class_="soft"))
    return html(found)


def _reach(reach: Reach) -> Html:
    """What it takes to serve longer texts, and what to paste for each engine."""
    title = element("h2", words("one_reach", to=number(reach.to)))
    first = [element("p", told(said)) for said in reach.words]
    if not reach.stretches:
        return html([title, first])
    logit = ["logit_gain"] if any(one.logit_gain != 1 for one in reach.stretches) else []
    heads = [
        words("one_scaling"),
        *(Heading(said=words(key), number=True) for key in ("one_factor", "one_gain", *logit, "one_past")),
    ]
    rows = [
        [
            one.scaling,
            f"{one.factor:.4g}",
            f"{one.gain:.5g}",
            *((f"{one.logit_gain:.5g}",) if logit else ()),
            str(one.past),
        ]
        for one in reach.stretches
    ]
    choosing = element("p", words("one_choose", to=str(reach.to)))
    pasted = [
        fold(
            words("one_paste", scaling=f"{one.scaling} \u00d7{one.factor:.4g}"),
            [_override(each) for each in one.overrides],
        )
        for one in reach.stretches
        if one.overrides
    ]
    return html(
        [title, first, table(heads, rows, label=words("one_reach", to=number(reach.to)), stacks=True), choosing, pasted]
    )


def _override(override: Any) -> Html:
    if override.text is None:
        return element("p", words("one_cannot", engine=both(override.engine), why=both(override.why or "")))
    into = f" ({override.into})" if override.into else ""
    return html(
        [
            element("p", element("strong", told(override.engine)), into),
            element("pre", override.text),
            [element("p", words("one_but", note=both(note)), class_="soft") for note in override.notes],
        ]
    )


def _to_know(report: Report, one: dict[str, Any]) -> Html:
    resolved = report.resolved
    lines = [element("li", _cut(key), words("because"), told(why)) for key, why in resolved.not_understood.items()]
    lines += [element("li", told(note)) for note in resolved.notes]
    if resolved.refusal is not None:
        lines.append(element("li", words("one_refused", why=both(resolved.refusal))))
    if resolved.not_looked_at:
        keys = ", ".join(_cut(key) for key in resolved.not_looked_at[:20])
        lines.append(element("li", words("one_skipped", keys=keys)))
    engines = [row.reading for name, row in report.rows.items() if name != "paper"]
    named = [f"{reading.engine} ({reading.version})" for reading in engines]
    versions = words("versions", engines={language: comma.join(named) for language, comma in words("comma").items()})
    return html(
        [
            element("h2", words("one_notes")),
            notes(one, counting=False),
            element("ul", lines) if lines else None,
            element("p", versions, class_="soft"),
        ]
    )


def _cut(text: str) -> str:
    text = clean(text)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "\u2026"
