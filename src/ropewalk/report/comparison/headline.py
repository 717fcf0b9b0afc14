"""What was found, in sentences: the head of the page of `ropewalk compare`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ropewalk.compare.derived import asked_alike, best_on_task, budget_used_up, on_other_text
from ropewalk.report.comparison.numbers import at, mean, names, p_value, percent, sentences, unlike
from ropewalk.report.markup import Content
from ropewalk.report.words import Words

words = Words("compare")
KEEPS = 0.03
"""Share of its perplexity by which a model may lose at a longer context and still keep it."""


def headline(found: Mapping[str, Any]) -> list[Content]:
    said: list[Content] = []
    if missing := len(found["trials"]["missing"]):
        said.append(words("missing", count=missing))
    if budget_used_up(found):
        said.append(words("budget", hours=f"{found['study']['budget']:g}"))
    if found["text"] is not None:
        said += _of_text(found["text"], found["reference"], found["study"]["text"])
    tasks: Any = found["tasks"]
    return [*said, *(_of_task(tasks, one, found["reference"]) for one in tasks["tasks"])] if tasks is not None else said


def _of_text(text: Mapping[str, Any], reference: str, asked: Mapping[str, Any]) -> list[Content]:
    """asked: that part of the study."""
    trained, longest = text["trained"], text["lengths"][-1]
    other = on_other_text(text)
    groups: dict[str, list[str]] = {"keeps": [], "flat": [], "breaks": [], "cannot": [], "lost": []}
    for name, arm in text["arms"].items():
        near, far = (mean(at(arm["same_tokens"], n)) for n in (trained, longest))
        if isinstance(at(arm["same_tokens"], longest), str):
            groups["cannot"].append(name)
        elif near is None:
            groups["lost"] += [name] if arm["seeds"] else []
        elif name not in other:
            kept = far is not None and math.exp(min(far - near, 50)) <= 1 + KEEPS
            # One that has learned nothing keeps its loss too.
            judged = [(at(text["verdicts"], n) or {}).get(name, {}).get("verdict") for n in text["lengths"]]
            flat = kept and set(judged) == {"worse"}
            groups["flat" if flat else "keeps" if kept else "breaks"].append(
                name if far is None else f"{name} ({far:.2f})"
            )
    said: list[Content] = []
    if longest > trained:
        factor = f"{longest / trained:g}"
        said = [words("text_keeps", length=f"{longest:,}", factor=factor, names=names(groups["keeps"]))]
        said += [
            words(f"text_{key}", names=names(groups[key]), reference=reference)
            for key in ("flat", "breaks", "cannot", "lost")
            if groups[key]
        ]
    said += unlike("text_other", other, reference)
    floor, pays = at(text["noise_floor"], trained), text["context_pays"]
    if not pays["pays"]:
        gain = "-" if pays["gain"] is None else f"{pays['gain']:.3f}"
        return [*said, words("text_unjudged", why=words("why_context", gain=gain, least=pays["least"]))]
    if floor is None:
        return [*said, words("text_unjudged", why=_why_no_floor(text["arms"][reference], asked))]
    judged = {name: one["verdict"] for name, one in at(text["verdicts"], trained).items()}
    sides = {key: names([name for name, one in judged.items() if one == key]) for key in ("better", "worse", "tie")}
    rest = [name for name, one in judged.items() if one not in ("better", "worse", "tie", "other text")]
    said.append(words("text_inside", reference=reference, floor=f"{floor:.3f}", **sides))
    return [*said, words("text_rest", names=names(rest))] if rest else said


def _why_no_floor(reference: Mapping[str, Any], asked: Mapping[str, Any]) -> Content:
    count, lost = reference["seeds"], len(reference["diverged"])
    if asked["reference_seeds"] is None:
        return words("why_unasked", count=count)
    if lost:
        return words("why_diverged", count=lost, seeds=count)
    return words("why_seeds", count=count, asked=reference["asked"]) if count < reference["asked"] else words("why_not")


def _of_task(tasks: Mapping[str, Any], task: str, reference: str) -> Content:
    """The best arms at the longest length at which any seed is right, what they are against the reference, and how far
    every seed of an arm solves all."""
    tasks, other = asked_alike(tasks, task)
    left = unlike("task_other", other, reference)
    found = best_on_task(tasks, task)
    if found is None:
        any_points = any(one["points"] for arm in tasks["arms"].values() for one in arm["exact"][task].values())
        return sentences(words("task_nothing" if any_points else "task_unmeasured", task=words(task)), *left)
    length, best = found
    shares = {name: arm["exact"][task][str(length)]["points"] for name, arm in tasks["arms"].items()}
    said: list[dict[str, str]] = [
        words(
            "task_best", task=words(task), length=length, longest=tasks["longest"],
            names=names([f"{name} ({percent(shares[name])})" for name in best]),
        )
    ]  # fmt: skip
    if reference not in best and not isinstance(shares[reference], str) and shares[reference]:
        said.append(words("task_reference", name=reference, points=percent(shares[reference])))
    if length < max(tasks["lengths"]):
        said.append(words("task_longer", longest=max(tasks["lengths"])))
    said += _verdicts_on_task(tasks["verdicts"][task], reference, length)
    said += _elsewhere(
        tasks["verdicts"][task], reference, [n for n in tasks["lengths"] if tasks["longest"] < n != length]
    )
    said.append(_reaches(tasks, task))
    return sentences(*said, *left)


def _verdicts_on_task(verdicts: Mapping[str, Any], reference: str, length: int) -> list[dict[str, str]]:
    # Results of before have no verdicts at single lengths.
    judged = {name: one.get("lengths", {}).get(str(length)) for name, one in verdicts.items() if name != reference}
    known = {name: one for name, one in judged.items() if one}
    said: list[dict[str, str]] = []
    if any(one["verdict"] in ("better", "worse", "tie") for one in known.values()):
        sides = {key: [n for n, one in known.items() if one["verdict"] == key] for key in ("better", "worse", "tie")}
        each = {
            key: names([f"{name} (p {p_value(known[name]['p'])})" if key != "tie" else name for name in side])
            for key, side in sides.items()
        }
        said.append(words("task_against", length=length, reference=reference, **each))
    for key, verdict in (("task_cannot", "cannot"), ("task_rest", "no verdict")):
        if which := [name for name, one in known.items() if one["verdict"] == verdict]:
            said.append(words(key, names=names(which)))
    return said


def _elsewhere(verdicts: Mapping[str, Any], reference: str, lengths: Sequence[int]) -> list[dict[str, str]]:
    """Who is better or worse at these lengths: at the longest one that any seed solves, hardly anything is solved."""
    sides: dict[str, list[str]] = {"better": [], "worse": []}
    for name, one in verdicts.items():
        for key, side in sides.items():
            where = [str(n) for n in lengths if one.get("lengths", {}).get(str(n), {}).get("verdict") == key]
            side += [f"{name} ({', '.join(where)})"] if where else []
    if not any(sides.values()):
        return []
    return [words("task_elsewhere", reference=reference, **{key: names(side) for key, side in sides.items()})]


def _reaches(tasks: Mapping[str, Any], task: str) -> dict[str, str]:
    reach = {name: min(each["reach"], default=0) for name, each in tasks["verdicts"][task].items()}
    best = max(reach.values(), default=0)
    solved = f"{tasks['solved']:.0%}"
    if not best:
        return words("reach_none", solved=solved, shortest=min(tasks["lengths"]))
    which = names([name for name in tasks["arms"] if reach.get(name) == best])
    return words("reach_first", solved=solved, best=f"{best:g}", names=which)
