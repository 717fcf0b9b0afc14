"""The page of `ropewalk inspect --many`: what position settings many checkpoints have, and where engines differ.

Made from the summary alone. Every name and value in it comes from somebody else's file, and is text here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from ropewalk.checkpoints.engines import ENGINES
from ropewalk.plot.chart import Axis, Chart, Line, Panel
from ropewalk.report.engine_parts import aspects, number
from ropewalk.report.engine_parts import words as gallery_words
from ropewalk.report.markup import LANGUAGES, Content, Html, clean, element, html
from ropewalk.report.page import page as whole_page
from ropewalk.report.parts import Heading, Shown, figure, fold, table, verdict
from ropewalk.report.words import Words

words = Words("census")
MOST_ROWS = 40
"""Of a table; the Parquet file has all."""
MOST_POINTS = 100
LENGTHS = {"stated": "blue", "trained": "orange", "extended": "green"}
ANSWERS = ("content", "same", "unchanged", "retries")

Ranked = Sequence[Sequence[Any]]


def page(found: Mapping[str, Any]) -> str:
    """One HTML file. found: what `ropewalk inspect --many --json` prints."""
    read = dict(found["states"]).get("read", 0)
    body: list[Content] = [
        element("h1", words("title", count=f"{found['checkpoints']:,}")),
        element("p", words("intro", read=f"{read:,}"), class_="soft"),
        _verdict(found),
        element("h2", words("engines_title")),
        element("p", words("engines_about")),
        _engines(found),
        _examples(found["examples"]["differ"]),
        _counted("kinds", found["kinds"], read, _kind),
        _counted("scalings", found["scalings"], found["rotating"], _scaling),
        _counted("bases", found["bases"], found["rotating"], _number),
        _distribution("bases", {"bases": found["bases"]}, {"bases": "blue"}),
        _lengths(found["lengths"], read),
        _counted("model_types", found["model_types"], read, _cut),
        _counted("states", found["states"], found["checkpoints"], _state),
        _counted("unknown_types", found["unknown_types"], found["checkpoints"], _cut),
        _counted("fields", found["fields"], found["checkpoints"], _cut),
        _unread(found["examples"]["unread"]),
        _counted("not_understood", found["not_understood"], read, _cut),
        element("h2", words("how_title")),
        element("p", words("how", **{name: f"{found['answers'].get(name, 0):,}" for name in ANSWERS})),
        element("p", words("again"), class_="soft"),
    ]
    return whole_page(words("page", count=f"{found['checkpoints']:,}"), body)


def _verdict(found: Mapping[str, Any]) -> Html:
    differing, loaded = found["differing"], found["loaded"]
    if not loaded:
        return verdict(words("verdict_none"))
    numbers = {"differing": f"{differing:,}", "loaded": f"{loaded:,}", "share": f"{differing / loaded:.1%}"}
    unknown = sum(count for _, count in found["unknown_types"])
    more: list[Content] = []
    if found["partly_compared"]:
        more.append(words("partly", count=f"{found['partly_compared']:,}"))
    if unknown:
        more.append(words("unknown", count=f"{unknown:,}", types=f"{len(found['unknown_types']):,}"))
    return verdict(words("verdict_differ" if differing else "verdict_agree", **numbers), *more, good=not differing)


def _engines(found: Mapping[str, Any]) -> Html:
    heads = [
        words("engine"),
        *(Heading(said=words(key), number=True) for key in ("loads", "differs", "share")),
        words("in_what"),
    ]
    rows: list[list[Shown | Content]] = []
    for name, one in found["engines"].items():
        departing = [aspect for aspect, _ in one["aspects"]]
        counts = dict(one["aspects"])
        said = {
            language: comma.join(f"{aspects([aspect])[language]} {counts[aspect]:,}" for aspect in departing)
            for language, comma in gallery_words("comma").items()
        }
        rows.append(
            [
                ENGINES[name].ENGINE,
                _count(one["loads"]),
                _count(one["differs"]),
                _share(one["differs"], one["loads"]),
                said if departing else "",
            ]
        )
    return table(heads, rows, label=words("engines_title"), stacks=True)


def _examples(examples: Sequence[Mapping[str, Any]]) -> Html:
    if not examples:
        return Html()
    heads = [words("checkpoint"), words("model_type"), words("engines_differ")]
    rows = [
        [_cut(one["name"]), _cut(one["model_type"]), ", ".join(ENGINES[name].ENGINE for name in one["at_odds"])]
        for one in examples
    ]
    title = words("examples_differ", count=len(rows))
    return fold(title, table(heads, rows, label=title, stacks=True))


def _unread(examples: Sequence[Mapping[str, Any]]) -> Html:
    if not examples:
        return Html()
    title = words("examples_unread", count=len(examples))
    rows = [[_cut(one["name"]), {"en": one["why"]}] for one in examples]
    return fold(title, table([words("checkpoint"), words("why")], rows, label=title, stacks=True))


def _counted(name: str, ranked: Ranked, of: int, said: Any) -> Html:
    """A heading and what was counted, most frequent first; nothing where there is nothing."""
    if not ranked:
        return Html()
    title = words(f"{name}_title")
    heads = [words(name), *(Heading(said=words(key), number=True) for key in ("count", "share"))]
    rows = [[said(value), _count(count), _share(count, of)] for value, count in ranked[:MOST_ROWS]]
    left = ranked[MOST_ROWS:]
    more = words("more", values=f"{len(left):,}", count=f"{sum(count for _, count in left):,}")
    about = words(f"{name}_about")
    return html(
        [
            element("h2", title),
            element("p", about),
            table(heads, rows, label=title),
            element("p", more, class_="soft") if left else None,
        ]
    )


def _lengths(lengths: Mapping[str, Ranked], read: int) -> Html:
    if not any(lengths.values()):
        return Html()
    title = words("lengths_title")
    heads = [words("length"), *(Heading(said=words(name), number=True) for name in lengths)]
    counts = {name: dict(map(tuple, ranked)) for name, ranked in lengths.items()}
    total = {value: sum(one.get(value, 0) for one in counts.values()) for one in counts.values() for value in one}
    order = sorted(total, key=lambda value: (-total[value], value))
    rows = [[_number(value), *(_count(one.get(value, 0)) for one in counts.values())] for value in order[:MOST_ROWS]]
    more = words("more", values=f"{len(order) - MOST_ROWS:,}", count=f"{sum(total[v] for v in order[MOST_ROWS:]):,}")
    return html(
        [
            element("h2", title),
            element("p", words("lengths_about", read=f"{read:,}")),
            table(heads, rows, label=title),
            element("p", more, class_="soft") if len(order) > MOST_ROWS else None,
            _distribution("lengths", {name: lengths[name] for name in LENGTHS}, LENGTHS),
        ]
    )


def _distribution(name: str, each: Mapping[str, Ranked], tones: Mapping[str, str]) -> Html:
    """The share of checkpoints at or below each value; nothing where all have the same."""
    known = {key: _shares(ranked) for key, ranked in each.items() if ranked}
    every = [x for xs, _ in known.values() for x in xs]
    if not every or min(every) == max(every):
        return Html()

    def chart(language: str) -> Chart:
        lines = [
            Line(x=xs, y=ys, label=words(key)[language] if len(known) > 1 else "", tone=tones[key])
            for key, (xs, ys) in known.items()
        ]
        panel = Panel(
            x=Axis(low=min(every) * 0.9, high=max(every) * 1.1, label=words(f"{name}_axis")[language], log=True),
            y=Axis(
                low=0, high=1.02, label=words("share_axis")[language], ticks=[(n / 4, f"{n / 4:.0%}") for n in range(5)]
            ),
            marks=lines,
        )
        return Chart(
            title=words(f"{name}_chart")[language], about=words(f"{name}_chart_about")[language], panels=[panel]
        )

    return figure({language: chart(language) for language in LANGUAGES}, name)


def _shares(ranked: Ranked) -> tuple[list[float], list[float]]:
    pairs = sorted((value, count) for value, count in ranked)
    total = sum(count for _, count in pairs)
    points = list(zip((v for v, _ in pairs), (c / total for c in accumulate(c for _, c in pairs)), strict=True))
    step = max(1, len(points) // MOST_POINTS)
    # The last point is where all are.
    kept = points[:-1:step] + points[-1:]
    # In steps: between two values there is nobody.
    before = [0.0, *(y for _, y in kept[:-1])]
    steps = [point for (x, y), low in zip(kept, before, strict=True) for point in ((x, low), (x, y))]
    return [float(x) for x, _ in steps], [y for _, y in steps]


def _number(value: float) -> Shown:
    return Shown(said=number(value), value=value)


def _kind(kind: str) -> Content:
    return gallery_words.table("kinds").get(kind, kind)


def _scaling(kind: str) -> Content:
    return words("no_scaling") if kind == "none" else kind


def _state(state: str) -> Content:
    known = words.table("state_words")
    return known.get(state, state)


def _count(count: int) -> Shown:
    return Shown(said=f"{count:,}", value=count)


def _share(count: int, of: int) -> Shown:
    share = count / of if of else 0.0
    return Shown(said=f"{share:.1%}" if of else "", value=share)


def _cut(text: str) -> str:
    text = clean(text)
    return text if len(text) <= 80 else text[:79] + "\u2026"
