"""The page of `ropewalk compare`: what was found, with what certainty, and what was not shown.

Made from study.json alone, so that a kept result can be shown again.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from ropewalk.plot.chart import Chart
from ropewalk.report.comparison.charts import cost, positions, protocol, task
from ropewalk.report.markup import LANGUAGES, Content, Html, element, html
from ropewalk.report.page import page as whole_page
from ropewalk.report.parts import Heading, Shown, figure, numbers, table, verdict
from ropewalk.report.words import Words

words = Words("compare")
KEEPS = 0.03
"""Share of its perplexity by which a model may lose at a longer context and still keep it."""
LOOKS = {"better": "good", "worse": "bad", "cannot": "none", "not finite": "bad"}


def page(name: str, found: Mapping[str, Any]) -> str:
    """One HTML file. found: what `ropewalk compare --json` prints."""
    text, tasks = found["text"], found["tasks"]
    arms = {**(text or {}).get("arms", {}), **(tasks or {}).get("arms", {})}
    others = [name for name in arms if "data" in found["study"]["arms"][name]["differs"]]
    intro = words("intro", arms=len(arms) - 1, reference=found["reference"], trials=found["trials"]["done"])
    body: list[Content] = [
        element("h1", words("title", name=name)),
        element("p", intro, class_="soft"),
        element("p", words("other_data", names=_names(others)), class_="soft") if others else None,
        verdict(*_said(found)),
        _lines(partial(positions, text), "position") if text else None,
        _lines(partial(protocol, text, "same"), "same") if text else None,
        [
            figure({lang: task(tasks, one, lang) for lang in LANGUAGES}, one, _shares(tasks, one))
            for one in tasks["tasks"]
        ]
        if tasks
        else None,
        _verdicts(text, found["reference"]) if text else None,
        _lines(partial(protocol, text, "windows"), "windows") if text else None,
        _accounts(found, "text" if text else "tasks"),
        [figure({lang: cost(found, lang) for lang in LANGUAGES}, "cost", _costs(found))] if text else None,
        _not_shown(found),
        _how(found),
    ]
    return whole_page(words("page", name=name), body)


def _lines(drawn: Callable[..., Chart], name: str) -> Html:
    """The numbers behind it are those of whole lines: where one leaves the picture is no measurement."""
    whole = numbers({lang: drawn(lang, whole=True) for lang in LANGUAGES})
    return figure({lang: drawn(lang) for lang in LANGUAGES}, name, whole)


def _shares(tasks: Mapping[str, Any], one: str) -> Html:
    """Every seed's share of right answers."""
    heads = [words("symbols"), *(Heading(said=name, number=True) for name in tasks["arms"])]
    each = [[arm["exact"][one][f"{n}"]["points"] for arm in tasks["arms"].values()] for n in tasks["lengths"]]
    rows = [
        [str(n), *(words(row) if isinstance(row, str) else ", ".join(f"{share:g}" for share in row) for row in rows)]
        for n, rows in zip(tasks["lengths"], each, strict=True)
    ]
    return table(heads, rows, label=words("tasks_title", task=words(one)), sorts=False)


def _costs(found: Mapping[str, Any]) -> Html:
    heads = [words("arm"), *(Heading(said=words(key), number=True) for key in ("step", "loss"))]
    times = found["timing"]["arms"]["text"]
    rows = [
        [
            name,
            "-" if times[name]["step"] is None else f"{1000 * times[name]['step']:.1f}",
            _number(_mean(arm["loss"]), 4),
        ]
        for name, arm in found["text"]["arms"].items()
    ]
    return table(heads, rows, label=words("cost_title"))


def _said(found: Mapping[str, Any]) -> list[Content]:
    said: list[Content] = []
    if found["trials"]["missing"]:
        said.append(words("missing", count=len(found["trials"]["missing"])))
    if found["text"] is not None:
        said += _said_of_text(found["text"], found["reference"], found["study"]["text"])
    tasks: Any = found["tasks"]
    said += [_said_of_task(tasks, one) for one in tasks["tasks"]] if tasks is not None else []
    return said


def _said_of_text(text: Mapping[str, Any], reference: str, asked: Mapping[str, Any]) -> list[Content]:
    """asked: that part of the study."""
    trained, longest = text["trained"], text["lengths"][-1]
    groups: dict[str, list[str]] = {"keeps": [], "breaks": [], "cannot": [], "lost": []}
    for name, arm in text["arms"].items():
        near, far = (_mean(_at(arm["same_tokens"], n)) for n in (trained, longest))
        if isinstance(_at(arm["same_tokens"], longest), str):
            groups["cannot"].append(name)
        elif near is not None:
            kept = far is not None and math.exp(min(far - near, 50)) <= 1 + KEEPS
            # With its loss: one that has learned nothing keeps that too.
            groups["keeps" if kept else "breaks"].append(name if far is None else f"{name} ({far:.2f})")
        elif arm["seeds"]:
            groups["lost"].append(name)
    factor = f"{longest / trained:g}"
    said: list[Content] = []
    if longest > trained:
        said = [words("text_keeps", factor=factor, names=_names(groups["keeps"]))]
        said += [words(f"text_{key}", names=_names(groups[key])) for key in ("breaks", "cannot", "lost") if groups[key]]
    floor, pays = _at(text["noise_floor"], trained), text["context_pays"]
    if not pays["pays"]:
        gain = "-" if pays["gain"] is None else f"{pays['gain']:.3f}"
        return [*said, words("text_unjudged", why=words("why_context", gain=gain, least=pays["least"]))]
    if floor is None:
        return [*said, words("text_unjudged", why=_why_no_floor(text["arms"][reference], asked))]
    judged = {name: one["verdict"] for name, one in _at(text["verdicts"], trained).items()}
    sides = {key: _names([name for name, one in judged.items() if one == key]) for key in ("better", "worse", "tie")}
    other = [name for name, one in judged.items() if one == "other text"]
    rest = [name for name, one in judged.items() if one not in ("better", "worse", "tie", "other text")]
    said.append(words("text_inside", reference=reference, floor=f"{floor:.3f}", **sides))
    said += [words("text_other", names=_names(other), reference=reference)] if other else []
    return [*said, words("text_rest", names=_names(rest))] if rest else said


def _why_no_floor(reference: Mapping[str, Any], asked: Mapping[str, Any]) -> Content:
    count, lost = reference["seeds"], len(reference["diverged"])
    if asked["reference_seeds"] is None:
        return words("why_unasked", count=count)
    if lost:
        return words("why_diverged", count=lost, seeds=count)
    return words("why_seeds", count=count, asked=reference["asked"]) if count < reference["asked"] else words("why_not")


def _said_of_task(tasks: Mapping[str, Any], one: str) -> Content:
    reach = {name: min(each["reach"], default=0) for name, each in tasks["verdicts"][one].items()}
    best = max(reach.values(), default=0)
    solved = f"{tasks['solved']:.0%}"
    if not best:
        return words("task_none", task=words(one), solved=solved, shortest=min(tasks["lengths"]))
    names = _names([name for name in tasks["arms"] if reach.get(name) == best])
    return words("task_first", task=words(one), solved=solved, best=f"{best:g}", names=names, longest=tasks["longest"])


def _verdicts(text: Mapping[str, Any], reference: str) -> Html:
    lengths = text["lengths"]
    heads = [words("arm"), *(Heading(said=words("at", length=f"{n:,}"), number=True) for n in lengths)]
    rows = [
        [name, *(_judged(_at(text["verdicts"], n).get(name), _at(arm["same_tokens"], n)) for n in lengths)]
        for name, arm in text["arms"].items()
        if arm["same_tokens"] or arm["diverged"]
    ]
    title = words("verdicts_title")
    about = element("p", words("verdicts_about", reference=reference))
    return html([element("h2", title), about, table(heads, rows, label=title, stacks=True)])


def _judged(one: Mapping[str, Any] | None, losses: Any) -> Shown | Content:
    if one is None:  # the reference itself
        mean = _mean(losses)
        return Shown(said="-" if mean is None else f"{mean:.3f}", value=0.0)
    said = words(one["verdict"].replace(" ", "_"))
    if one.get("mean") is None:
        return Shown(said=said, look=LOOKS.get(one["verdict"], ""), value=math.inf)
    ends = "" if one["low"] is None else f" [{_signed(one['low'])}, {_signed(one['high'])}]"
    number = f"{_signed(one['mean'])}{ends}"
    cell = {language: f"{number} {text}" for language, text in said.items()}
    return Shown(said=cell, look=LOOKS.get(one["verdict"], ""), value=one["mean"])


def _accounts(found: Mapping[str, Any], part: str) -> Html:
    arms, times = found[part]["arms"], found["timing"]["arms"][part]
    keys = ("equal_tokens", "shared_rate", "equal_time", "rate", "step_time", "parameters", "seeds")
    heads = [words("arm"), *(Heading(said=words(key), number=True) for key in keys)]
    rows: list[list[Shown | Content]] = []
    ranks, title = found[part]["rankings"], words("accounts_title")
    for name, arm in arms.items():
        own: Content = _number(_mean(arm["loss"]), 4)
        if arm["diverged"]:
            own = words("diverged", count=len(arm["diverged"]), seeds=arm["seeds"])
        both = dict(zip(arm["shared_seed"], arm["shared_loss"], strict=True))
        shared = _mean([both[seed] for seed in ranks["seeds"] if seed in both])
        step = times[name]["step"]
        rows.append([
            name, own, _number(shared, 4), _number(_mean(times[name]["loss_at_equal_time"]), 4),
            "-" if arm["rate"] is None else f"{arm['rate']:g}", "-" if step is None else f"{1000 * step:.1f}",
            "-" if arm["parameters"] is None else f"{arm['parameters']:,}", str(arm["seeds"]),
        ])  # fmt: skip
    about = words("accounts_about", seeds=_names([str(seed) for seed in ranks["seeds"]]))
    tau = ranks["kendall_tau"]
    if found["study"]["rates"] is None:
        said = words("shared_only")
    elif tau is None:
        said = words("rankings_unknown")
    else:
        said = words("rankings_agree" if tau == 1 else "rankings_differ", tau=_number(tau, 2))
    return html([
        element("h2", title), element("p", about), element("p", said),
        table(heads, rows, label=title, stacks=True),
    ])  # fmt: skip


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
    parts.append(element("p", words("cost_said", trials=timing["cost"]["trials"], hours=hours)))
    for each in found["versions"]:
        listed = ", ".join(f"{name} {version}" for name, version in json.loads(each).items())
        parts.append(element("p", words("versions", what=listed), class_="soft"))
    return html([element("h2", words("how_title")), parts])


def _names(names: Sequence[str]) -> Any:
    return ", ".join(names) if names else words("none")


def _mean(values: Any) -> float | None:
    """None where a seed has no number: a mean of those that are left would flatter."""
    numbers = [] if isinstance(values, str) else values or []
    return statistics.fmean(numbers) if numbers and None not in numbers else None


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "\u2212")


def _at(by_length: Mapping[Any, Any], length: int) -> Any:
    """Lengths are text where this was read from JSON."""
    return by_length[length] if length in by_length else by_length.get(str(length))
