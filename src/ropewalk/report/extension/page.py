"""The page of `ropewalk extend`: the verdict, the finalists and how they were chosen, what was written.

Made from the JSON of a tournament alone, so that a kept result can be shown again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ropewalk.plot.chart import Chart
from ropewalk.report.extension.charts import gains, needles, pairs, where
from ropewalk.report.extension.headline import headline, tuned_headline
from ropewalk.report.extension.shown import Shown, words
from ropewalk.report.extension.tables import how, judged, rounds, searched, tuned, written
from ropewalk.report.markup import LANGUAGES, Content, Html, element
from ropewalk.report.page import page as whole_page
from ropewalk.report.parts import figure


def page(model: str, found: Mapping[str, Any]) -> str:
    """One HTML file. found: what `ropewalk extend --json` prints."""
    shown = Shown(found)
    body: list[Content] = [
        element("h1", words("title", model=model, to=shown.to)),
        element(
            "p",
            words(
                "intro",
                engine=_engine(found["engine"]),
                trained=f"{found['trained']:,}",
                candidates=(whole := sum(one["text"] == "whole" for one in found["candidates"])),
                baselines=len(found["candidates"]) - whole,
                documents=len(found["sets"]["judge"]),
            ),
            class_="soft",
        ),
        headline(shown),
        tuned_headline(found["tuned"]) if found.get("tuned") else None,
        element("h2", words("judged_title")),
        element("p", words("judged_about", crop=f"{shown.first['tail']['best_crop']:,}", to=shown.to)),
        judged(shown),
        _figure(gains, shown, "gains"),
        _figure(where, shown, "where") if any(one["by_position"] for one in found["judged"].values()) else None,
        _figure(needles, shown, "map") if any(one["needles"] for one in found["judged"].values()) else None,
        _figure(pairs, shown, "pairs"),
        rounds(shown) if found["rounds"] else None,
        searched(found["searched"]) if found.get("searched") else None,
        tuned(shown, found["tuned"]) if found.get("tuned") else None,
        written(shown),
        how(shown),
    ]
    return whole_page(words("page", model=model, to=shown.to), body)


def _engine(name: str) -> dict[str, str]:
    """As it is in the JSON, where a text's first token is named in English."""
    engine, begun, start = name.partition(", texts begin with ")
    return words("begun", engine=engine, start=start) if begun else dict.fromkeys(LANGUAGES, name)


def _figure(made: Callable[[Shown, str], Chart], shown: Shown, name: str) -> Html:
    return figure({language: made(shown, language) for language in LANGUAGES}, name)
