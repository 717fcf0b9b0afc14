"""The tables of a comparison's page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ropewalk.compare.derived import asked_alike, middle, ratios
from ropewalk.plot.chart import number
from ropewalk.report.comparison.numbers import at, decimal, left_out, mean, names, p_value, sentences, signed
from ropewalk.report.markup import Content, Html, element, html
from ropewalk.report.parts import Heading, Shown, fold, table
from ropewalk.report.words import Words

words = Words("compare")
LOOKS = {"better": "good", "worse": "bad", "cannot": "none", "not finite": "bad"}


def verdicts(text: Mapping[str, Any], reference: str) -> Html:
    lengths = text["lengths"]
    heads = [words("arm"), *(Heading(said=words("at", length=f"{n:,}"), number=True) for n in lengths)]
    rows = [
        [name, *(_judged(at(text["verdicts"], n).get(name), at(arm["same_tokens"], n)) for n in lengths)]
        for name, arm in text["arms"].items()
        if arm["same_tokens"] or arm["diverged"]
    ]
    title = words("verdicts_title")
    about = element("p", words("verdicts_about", reference=reference))
    return html([element("h2", title), about, table(heads, rows, label=title, stacks=True)])


def _judged(one: Mapping[str, Any] | None, losses: Any) -> Shown | Content:
    if one is None:  # the reference itself
        own = mean(losses)
        return Shown(said="-" if own is None else f"{own:.3f}", value=0.0)
    said = words(one["verdict"].replace(" ", "_"))
    if one.get("mean") is None:
        return Shown(said=said, look=LOOKS.get(one["verdict"], ""), value=math.inf)
    ends = "" if one["low"] is None else f" [{signed(one['low'])}, {signed(one['high'])}]"
    figure = f"{signed(one['mean'])}{ends}"
    cell = {language: f"{figure} {text}" for language, text in said.items()}
    return Shown(said=cell, look=LOOKS.get(one["verdict"], ""), value=one["mean"])


def anchors(text: Mapping[str, Any]) -> Html:
    """Perplexity on the same tokens, over each arm's own at the trained length."""
    lengths = [n for n in text["lengths"] if n > text["trained"]]
    if not lengths:
        return Html()
    heads = [words("arm"), *(Heading(said=words("at", length=f"{n:,}"), number=True) for n in lengths)]
    rows = [
        [name, *(_ratio(at(arm["same_tokens"], n), ratios(text, name, n)) for n in lengths)]
        for name, arm in text["arms"].items()
    ]
    title = words("anchors_title")
    about = element("p", words("anchors_about", trained=f"{text['trained']:,}"))
    return html([element("h2", title), about, table(heads, rows, label=title, stacks=True)])


def _ratio(losses: Any, each: list[float | None]) -> Shown:
    if isinstance(losses, str):
        return Shown(said=words(losses), look="none", value=math.inf)
    ratio = middle(each)
    if ratio is None:
        return Shown(said="-", value=math.inf)
    known = [one for one in each if one is not None]
    ends = f" [{_times(min(known))}, {_times(max(known))}]" if len(known) > 1 else ""
    return Shown(said=f"{_times(ratio)}{ends}", value=ratio)


def _times(ratio: float) -> str:
    return f"{ratio:.3f}" if ratio < 10 else number(float(f"{ratio:.3g}"))


def shares(tasks: Mapping[str, Any], one: str) -> Html:
    """Every seed's share of right answers."""
    tasks, _ = asked_alike(tasks, one)
    heads = [words("symbols"), *(Heading(said=name, number=True) for name in tasks["arms"])]
    each = [[arm["exact"][one][f"{n}"]["points"] for arm in tasks["arms"].values()] for n in tasks["lengths"]]
    rows = [
        [str(n), *(words(row) if isinstance(row, str) else ", ".join(f"{share:g}" for share in row) for row in rows)]
        for n, rows in zip(tasks["lengths"], each, strict=True)
    ]
    return table(heads, rows, label=words("tasks_title", task=words(one)), sorts=False)


def solved(tasks: Mapping[str, Any], task: str) -> Html:
    """How many seeds of each arm solve each length, with Wilson's interval, and the verdict there."""
    lengths = [Heading(said=words("at_symbols", length=n), number=True) for n in tasks["lengths"]]
    rows: list[list[Shown | Content]] = []
    for name, arm in tasks["arms"].items():
        judged = tasks["verdicts"][task].get(name, {"reach": []})
        cells = [_solved(arm["exact"][task][str(n)], judged.get("lengths", {}).get(str(n))) for n in tasks["lengths"]]
        # Results of before have the verdict on reaches alone, under these names.
        verdict, p = (judged.get(f"reach_{key}", judged.get(key)) for key in ("verdict", "p"))
        far = ", ".join(f"{one:g}" for one in judged["reach"]) or "-"
        rows.append([name, *cells, _with_verdict([far], verdict, p, min(judged["reach"], default=-1.0))])
    heads = [words("arm"), *lengths, Heading(said=words("reach"), number=True)]
    return table(heads, rows, label=words("solved_title", task=words(task)), stacks=True)


def _solved(one: Mapping[str, Any], judged: Mapping[str, Any] | None) -> Shown:
    if isinstance(one["points"], str):
        return Shown(said=words(one["points"]), look="none", value=-1.0)
    if not one["points"]:
        return Shown(said="-", value=-1.0)
    share = f"{one['solved']}/{one['of']}"
    interval = f"{100 * one['low']:.0f}\u2013{100 * one['high']:.0f}\u00a0%"
    judged = judged or {}
    return _with_verdict([share, interval], judged.get("verdict"), judged.get("p"), one["solved"] / one["of"])


def _with_verdict(said: list[Content], verdict: str | None, p: float | None, value: float) -> Shown:
    """Below one another: columns stay narrow enough for seven lengths."""
    if verdict is not None and verdict != "reference":
        said = [*said, words(verdict.replace(" ", "_")), None if p is None else f"p\u00a0{p_value(p)}"]
    return Shown(said=[element("div", one) for one in said], look=LOOKS.get(verdict or "", ""), value=value)


def accounts(found: Mapping[str, Any], part: str) -> Html:
    arms, times = found[part]["arms"], found["timing"]["arms"][part]
    keys = ("equal_tokens", "shared_rate", "equal_time", "rate", "step_time", "parameters", "seeds")
    heads = [words("arm"), *(Heading(said=words(key), number=True) for key in keys)]
    rows: list[list[Shown | Content]] = []
    ranks, title = found[part]["rankings"], words("accounts_title", part=words(f"part_{part}"))
    for name, arm in arms.items():
        own: Content = _validated(mean(arm["loss"]), name, ranks)
        if arm["diverged"]:
            own = words("diverged", count=len(arm["diverged"]), seeds=arm["seeds"])
        both = dict(zip(arm["shared_seed"], arm["shared_loss"], strict=True))
        shared = mean([both[seed] for seed in ranks["seeds"] if seed in both])
        step = times[name]["step"]
        rows.append([
            name, own, _validated(shared, name, ranks), decimal(mean(times[name]["loss_at_equal_time"]), 4),
            "-" if arm["rate"] is None else f"{arm['rate']:g}", "-" if step is None else f"{1000 * step:.1f}",
            "-" if arm["parameters"] is None else f"{arm['parameters']:,}", str(arm["seeds"]),
        ])  # fmt: skip
    seeds = ", ".join(map(str, ranks["seeds"])) or words("no_seed")
    return html([
        element("h2", title), element("p", sentences(words(f"accounts_{part}"), words("accounts_about", seeds=seeds))),
        [element("p", said) for said in left_out(found[part], found["reference"])],
        element("p", _rankings(found, ranks)), table(heads, rows, label=title, stacks=True), _search(arms, part),
    ])  # fmt: skip


def _validated(loss: float | None, name: str, ranks: Mapping[str, Any]) -> Content:
    said = decimal(loss, 4)
    return words("of_other_data", loss=said) if loss is not None and name in ranks.get("left_out", {}) else said


def _rankings(found: Mapping[str, Any], ranks: Mapping[str, Any]) -> Content:
    tau = ranks["kendall_tau"]
    if found["study"]["rates"] is None:
        return words("shared_only")
    if tau is None:
        return words("rankings_unknown")
    return words("rankings_agree" if tau == 1 else "rankings_differ", tau=decimal(tau, 2), count=len(ranks["seeds"]))


def _search(arms: Mapping[str, Any], part: str) -> Html:
    """The losses of the search for learning rates, and for whom it should have gone further."""
    searched = {name: arm["search"] for name, arm in arms.items() if arm.get("search")}
    if not searched:
        return Html()
    factors = sorted({factor for each in searched.values() for factor in each}, key=float)
    heads = [words("arm"), *(Heading(said=f"\u00d7 {float(factor):g}", number=True) for factor in factors)]
    rows: list[list[Shown | Content]] = []
    for name, each in searched.items():
        own = arms[name]["factor"]
        cells = [
            Shown(
                said=words("not_finite") if each.get(factor, 0.0) is None else decimal(each.get(factor), 4),
                look="good" if own is not None and float(factor) == own else "",
                value=math.inf if each.get(factor) is None else each[factor],
            )
            for factor in factors
        ]
        rows.append([name, *cells])
    edge = [name for name in searched if arms[name].get("edge")]
    said = words("edge", names=names(edge)) if edge else words("no_edge")
    title = words("search_title", part=words(f"part_{part}"))
    return html([element("p", said), fold(title, element("p", words("search_about")), table(heads, rows, label=title))])


def costs(found: Mapping[str, Any]) -> Html:
    heads = [words("arm"), *(Heading(said=words(key), number=True) for key in ("step", "loss"))]
    times = found["timing"]["arms"]["text"]
    rows = [
        [
            name,
            "-" if times[name]["step"] is None else f"{1000 * times[name]['step']:.1f}",
            decimal(mean(arm["loss"]), 4),
        ]
        for name, arm in found["text"]["arms"].items()
        if name not in found["text"]["rankings"].get("left_out", {})
    ]
    return table(heads, rows, label=words("cost_title"))
