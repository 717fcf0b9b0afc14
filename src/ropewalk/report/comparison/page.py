"""The page of `ropewalk compare`: what was found, with what certainty, and what was not shown.

Made from study.json alone, so that a kept result can be shown again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from ropewalk.compare.derived import budget_used_up
from ropewalk.plot.chart import Chart
from ropewalk.report.comparison.charts import cost, positions, protocol, task
from ropewalk.report.comparison.headline import headline
from ropewalk.report.comparison.numbers import names, sentences
from ropewalk.report.comparison.tables import accounts, anchors, costs, shares, solved, verdicts
from ropewalk.report.markup import LANGUAGES, Content, Html, element, html
from ropewalk.report.page import page as whole_page
from ropewalk.report.parts import figure, numbers, verdict
from ropewalk.report.words import Words

words = Words("compare")


def page(name: str, found: Mapping[str, Any]) -> str:
    """One HTML file. found: what `ropewalk compare --json` prints."""
    text, tasks = found["text"], found["tasks"]
    arms = {**(text or {}).get("arms", {}), **(tasks or {}).get("arms", {})}
    others = [name for name in arms if "data" in found["study"]["arms"][name]["differs"]]
    intro = words("intro", arms=len(arms) - 1, reference=found["reference"], trials=found["trials"]["done"])
    body: list[Content] = [
        element("h1", words("title", name=name)),
        element("p", intro, class_="soft"),
        element("p", words("other_data", names=names(others)), class_="soft") if others else None,
        verdict(*headline(found)),
        _text(found) if text else None,
        _tasks(found) if tasks else None,
        [accounts(found, part) for part in ("text", "tasks") if found[part]],
        [figure({lang: cost(found, lang) for lang in LANGUAGES}, "cost", costs(found))] if text else None,
        _not_shown(found),
        _how(found),
    ]
    return whole_page(words("page", name=name), body)


def _text(found: Mapping[str, Any]) -> list[Content]:
    # At one length a figure would have one point for each arm: the verdicts have the losses, csv/ has the windows.
    several = len(found["text"]["lengths"]) > 1
    return [
        _lines(partial(positions, found), "position"),
        _lines(partial(protocol, found, "same"), "same") if several else None,
        verdicts(found["text"], found["reference"]),
        anchors(found["text"]),
        _lines(partial(protocol, found, "windows"), "windows") if several else None,
    ]


def _tasks(found: Mapping[str, Any]) -> list[Content]:
    tasks = found["tasks"]
    about = words("solved_about", solved=f"{tasks['solved']:.0%}", reference=found["reference"])
    return [
        element("h2", words("part_tasks_title")),
        element("p", about),
        *(
            [figure({lang: task(found, one, lang) for lang in LANGUAGES}, one, shares(tasks, one)), solved(tasks, one)]
            for one in tasks["tasks"]
        ),
    ]


def _lines(drawn: Callable[..., Chart], name: str) -> Html:
    """The numbers behind it are those of whole lines: where one leaves the picture is no measurement."""
    whole = numbers({lang: drawn(lang, whole=True) for lang in LANGUAGES})
    return figure({lang: drawn(lang) for lang in LANGUAGES}, name, whole)


def _not_shown(found: Mapping[str, Any]) -> Html:
    arms = [arm for part in ("text", "tasks") if found[part] for arm in found[part]["arms"].values()]
    size = max((arm["parameters"] or 0 for arm in arms), default=0)
    tokens = max((arm["tokens"] or 0 for arm in arms), default=0)
    said = words("not_shown", parameters=f"{size:,}", tokens=f"{tokens:,}", reference=found["reference"])
    return html([element("h2", words("not_shown_title")), element("p", said)])


def _how(found: Mapping[str, Any]) -> Html:
    timing = found["timing"]
    times = {
        one["hash"]: f"{datetime.fromtimestamp(one['time'], UTC):%Y-%m-%d %H:%M} UTC" for one in timing["registered"]
    }
    parts = [element("p", words("registered", hash=found["hash"], time=times.get(found["hash"], "-")))]
    others = [name for name in times if name != found["hash"]]
    if others:
        first = next(iter(times))
        parts.append(element("p", words("changed", count=len(others), hash=first, time=times[first])))
    hours = f"{timing['cost']['seconds'] / 3600:.2f}"
    said = [words("cost_said", trials=timing["cost"]["trials"], hours=hours)]
    # Where the budget is used up, it does not.
    said += [] if budget_used_up(found) else [words("runs_missing")]
    parts.append(element("p", sentences(*said)))
    for each in found["versions"]:
        listed = ", ".join(f"{name} {version}" for name, version in json.loads(each).items())
        parts.append(element("p", words("versions", what=listed), class_="soft"))
    return html([element("h2", words("how_title")), parts])
