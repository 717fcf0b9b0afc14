"""The page of `ropewalk eval`: does the model use its context, where does that end, what does short text cost.

Made from the JSON of an evaluation alone, so that a kept result can be shown again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ropewalk.evaluate.battery import FAR_TOKENS, far_from
from ropewalk.evaluate.statistics import FEWEST, Interval, paired
from ropewalk.plot.chart import Axis, Chart, Level, Line, Panel
from ropewalk.report.markup import LANGUAGES, Content, Html, element, html
from ropewalk.report.page import page as whole_page
from ropewalk.report.parts import Heading, figure, fold, table, verdict
from ropewalk.report.words import Words

words = Words("eval")
GOOD = {"better": True, "worse": False}
PARTS = ("benefit", "harm", "short_cost", "far_tokens")


def page(model: str, found: Mapping[str, Any]) -> str:
    """One HTML file. found: what `ropewalk eval --json` prints."""
    tail = found["tail"]
    lengths = [int(length) for length in tail["loss"]]
    said = {"engine": found["engine"], "under": _under(found["scaling"]), "trained": f"{found['trained']:,}"}
    body: list[Content] = [
        element("h1", words("title", model=model)),
        element(
            "p",
            words("intro", longest=f"{lengths[-1]:,}", documents=len(found["documents"]), **said),
            class_="soft",
        ),
        _verdict(found, lengths),
        figure({language: _loss(found, lengths, language) for language in LANGUAGES}, "loss"),
        figure({language: _gain(found, lengths, language) for language in LANGUAGES}, "gain"),
        element("h2", words("parts_title")),
        element("p", words("parts_about")),
        _parts(tail, lengths, scaled=found["scaling"] is not None),
        _engines(found["engines"], scaled=found["scaling"] is not None) if len(found.get("engines", ())) > 1 else None,
        figure({language: _needles(found, language) for language in LANGUAGES}, "needles")
        if len(found["needles"]) > 1
        else None,
        _perplexity(found["perplexity"]) if found["perplexity"] else None,
        _how(found),
    ]
    return whole_page(words("page", model=model), body)


def _under(scaling: Mapping[str, Any] | None) -> dict[str, str]:
    if scaling is None:
        return words("as_it_is")
    factor = f" \u00d7{scaling['factor']:g}" if "factor" in scaling else ""
    return words("under", kind=scaling["kind"], factor=factor)


def _verdict(found: Mapping[str, Any], lengths: Sequence[int]) -> Html:
    tail = found["tail"]
    gain = interval(at(tail["gain"], lengths[-1]))
    chinese = words(
        f"verdict_{gain.verdict.replace(' ', '_')}",
        length=f"{lengths[-1]:,}",
        gain=str(gain),
        benefit=str(interval(tail["benefit"])),
        count=gain.documents,
    )
    more: list[Content] = []
    if gain.documents >= FEWEST and len(lengths) > 1:
        more.append(_end(tail["loss"], lengths))
    if found["scaling"] is not None:
        more.append(words("short", cost=str(interval(tail["short_cost"]))))
    return verdict({"en": found["verdict"], **chinese}, *more, good=GOOD.get(gain.verdict))


def _end(losses: Mapping[Any, Sequence[float]], lengths: Sequence[int]) -> dict[str, str]:
    """The first step to a longer context that is not seen to lower the loss, paired by document. Of later steps it
    says nothing: one of them may lower it again."""
    for shorter, longer in pairwise(lengths):
        before, after = at(losses, shorter), at(losses, longer)
        found = paired([a - b for a, b in zip(before, after, strict=True)]).verdict
        if found != "better":
            where = "ends_at_once" if shorter == lengths[0] else "ends"
            key = f"{where}_worse" if found == "worse" else where
            return words(key, length=f"{shorter:,}", longer=f"{longer:,}")
    return words("ends_never", length=f"{lengths[-1]:,}")


def _loss(found: Mapping[str, Any], lengths: Sequence[int], language: str) -> Chart:
    tail = found["tail"]
    crops = [int(length) for length in tail["crop"]]
    lines = [
        Line(
            x=lengths, y=[_mean(at(tail["loss"], n)) for n in lengths], label=_under(found["scaling"])[language],
            tone="orange", dots=True,
        ),
        Line(
            x=crops, y=[_mean(at(tail["crop"], n)) for n in crops], label=words("cropped")[language], tone="blue",
            dots=True, dashes=1,
        ),
    ]  # fmt: skip
    panel = Panel(
        x=_across(found, lengths, language),
        y=up(lines, words("nats")[language]),
        marks=[*_level(found, language), *lines],
    )
    return Chart(title=words("loss_title")[language], about=words("loss_about")[language], panels=[panel])


def _gain(found: Mapping[str, Any], lengths: Sequence[int], language: str) -> Chart:
    gains = [interval(at(found["tail"]["gain"], length)) for length in lengths]
    line = Line(
        x=lengths, y=[one.mean for one in gains], low=[one.low for one in gains], high=[one.high for one in gains],
        tone="orange", dots=True,
    )  # fmt: skip
    panel = Panel(
        x=_across(found, lengths, language),
        y=up([line], words("gain")[language], zero=True),
        marks=[Level(axis="y", at=0.0), *_level(found, language), line],
    )
    about = words("gain_about", crop=f"{found['tail']['best_crop']:,}")
    return Chart(title=words("gain_title")[language], about=about[language], panels=[panel])


def _needles(found: Mapping[str, Any], language: str) -> Chart:
    each = found["needles"]
    lengths = [one["length"] for one in each]
    parts = {key: [one[key] for one in each] for key in ("found", "low", "high")}
    line = Line(x=lengths, y=parts["found"], low=parts["low"], high=parts["high"], tone="green", dots=True)
    panel = Panel(
        x=_across(found, lengths, language),
        y=Axis(low=0, high=1.02, label=words("found")[language], ticks=[(n / 4, f"{n / 4:.0%}") for n in range(5)]),
        marks=[*_level(found, language), line],
    )
    return Chart(title=words("needles_title")[language], about=words("needles_about")[language], panels=[panel])


def _across(found: Mapping[str, Any], lengths: Sequence[int], language: str) -> Axis:
    """Lengths double, so the axis is logarithmic, with a tick at each that was measured."""
    far = max(lengths[-1], found["trained"]) if lengths[-1] * 2 >= found["trained"] else lengths[-1]
    ticks = [(float(length), f"{length:,}") for length in lengths]
    return Axis(low=lengths[0] * 0.9, high=far * 1.1, label=words("context")[language], log=True, ticks=ticks)


def up(lines: Sequence[Line], label: str, *, zero: bool = False) -> Axis:
    values = [v for line in lines for part in (line.y, line.low or (), line.high or ()) for v in part] + [0.0] * zero
    room = 0.1 * (max(values) - min(values) or 1)
    return Axis(low=min(values) - room, high=max(values) + room, label=label)


def _level(found: Mapping[str, Any], language: str) -> list[Level]:
    longest = max(int(length) for length in found["tail"]["loss"])
    if longest * 2 < found["trained"]:
        return []
    return [Level(axis="x", at=found["trained"], label=words("trained")[language])]


def _parts(tail: Mapping[str, Any], lengths: Sequence[int], *, scaled: bool) -> Html:
    rows = [(words("row_gain", length=f"{length:,}"), at(tail["gain"], length)) for length in lengths]
    rows += [
        (words(f"row_{name}"), tail[name])
        for name in PARTS
        if tail[name] is not None and (scaled or name != "short_cost")
    ]
    cells = [
        [name, signed(one.mean), ends(one), f"{one.deviation:.4f}" if one.documents > 1 else ""]
        for name, one in ((name, interval(each)) for name, each in rows)
    ]
    heads = [words("measure"), *(Heading(said=words(key), number=True) for key in ("mean", "interval", "deviation"))]
    return table(heads, cells, label=words("parts_title"), sorts=False, stacks=True)


def _engines(each: Sequence[Mapping[str, Any]], *, scaled: bool) -> Html:
    title, keys = words("engines_title"), ["apart", "gain", *(["short_cost"] if scaled else [])]
    heads = [words("engine"), *(Heading(said=words(f"engines_{key}"), number=True) for key in ["loss", *keys])]
    rows = [[one["engine"], f"{one['loss']:.4f}", *(_with_ends(interval(one[key])) for key in keys)] for one in each]
    missing = [
        element("p", words("not_measured", what=f"{one['engine']}: {what}"), class_="soft")
        for one in each[1:]
        for what in one["not_measured"]
    ]
    about = element("p", words("engines_about"))
    return html([element("h2", title), about, table(heads, rows, label=title, sorts=False, stacks=True), missing])


def _with_ends(one: Interval) -> Content:
    return [signed(one.mean), " (", ends(one), ")"]


def _perplexity(each: Sequence[Mapping[str, Any]]) -> Html:
    keys = ("window", "stride", "perplexity", "bits")
    heads = [words("protocol"), *(Heading(said=words(key), number=True) for key in keys)]
    rows = [
        [words(one["protocol"]), f"{one['length']:,}", f"{one['stride']:,}", f"{one['perplexity']:.3f}",
         f"{one['bits_per_byte']:.4f}"]
        for one in each
    ]  # fmt: skip
    title = words("perplexity_title")
    return html(
        [element("h2", title), element("p", words("perplexity_about")), table(heads, rows, label=title, stacks=True)]
    )


def _how(found: Mapping[str, Any]) -> Html:
    left = [element("p", words("left_out", names=", ".join(found["left_out"])))] if found["left_out"] else []
    rows = [[one["name"], element("code", one["sha256"][:16])] for one in found["documents"]]
    return html(
        [
            element("h2", words("documents_title")),
            element("p", words("protocol_about", tail=f"{found['tail_tokens']:,}", fewest=FEWEST)),
            element("p", _rule(found)),
            left,
            [element("p", words("not_measured", what=what), class_="soft") for what in found["not_measured"]],
            fold(
                words("documents_title"),
                table([words("document"), "SHA-256"], rows, label=words("documents_title")),
            ),
            element("p", words("again", digest=found["digest"][:16]), class_="soft"),
        ]
    )


def _rule(found: Mapping[str, Any]) -> dict[str, str]:
    """The report has it in English."""
    longest = max(int(length) for length in found["tail"]["loss"])
    trained = found["trained"]
    if longest <= trained:
        near = far_from(trained, [int(length) for length in found["tail"]["loss"]])
        return words("rule_all", rule=found["rule"], near=f"{near:,}")
    said = {"tail": f"{found['tail_tokens']:,}", "trained": f"{trained:,}"}
    return words("rule", rule=found["rule"], least=FAR_TOKENS, **said)


def at(by_length: Mapping[Any, Any], length: int) -> Any:
    """Lengths are text where this was read from JSON."""
    return by_length[length] if length in by_length else by_length[str(length)]


def interval(given: Mapping[str, Any]) -> Interval:
    if given["documents"] == 1:
        return paired([given["mean"]])
    return Interval(**{name: value for name, value in given.items() if name != "verdict"})


def ends(one: Interval) -> Content:
    if one.documents == 1:
        return words("one_document")
    return f"{signed(one.low)}\u00a0\u2026\u00a0{signed(one.high)}"


def signed(value: float) -> str:
    return f"{value:+.4f}".replace("-", "\u2212")


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
