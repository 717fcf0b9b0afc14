"""The verdicts of an extension in both languages; the English one comes with the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk.report.eval_page import interval
from ropewalk.report.extension.shown import Shown, words
from ropewalk.report.markup import Html
from ropewalk.report.parts import verdict


def headline(shown: Shown) -> Html:
    kind, gain, over = shown.said["kind"].replace(" ", "_"), shown.gain(shown.first), shown.said.get("over_leaving")
    # A result from before has neither.
    own = "own_" if over or (shown.said.get("own") and kind == "leave") else ""
    chinese = words(
        f"verdict_{own}{kind}",
        name=shown.name,
        others="\u3001".join(name for name in shown.said["tied"] if name != shown.name),
        length=shown.to,
        crop=f"{shown.first['tail']['best_crop']:,}",
        gain=str(gain),
        over=str(interval(over)) if over else "",
        count=gain.documents,
        besides=_besides(shown),
        doubt=words("doubt", finals=_finals(shown))["zh"] if gain.verdict != "no difference" else "",
    )
    good = {"extend": True, "tie": True, "leave": True, "crop better": False}.get(shown.said["kind"])
    # What it is made of is read after what it is.
    english, _, rest = shown.said["sentence"].partition("; ")
    first, _, more = chinese["zh"].partition("\uff1b")
    if not rest or not more:
        return verdict({"en": shown.said["sentence"], **chinese}, good=good)
    below = {"en": rest[0].upper() + rest[1:], "zh": more}
    return verdict({"en": english + ".", "zh": first + "\u3002"}, below, good=good)


def tuned_headline(tuned: Mapping[str, Any]) -> Html:
    """Beside the verdict on the formulas, since it may say to take other weights."""
    kind, over = tuned["kind"].replace(" ", "_"), interval(tuned["over"])
    said = words(
        f"tuned_{kind}", start=tuned["start"], over=str(over), count=over.documents, own=str(interval(tuned["own"]))
    )
    return verdict(said, good={"take": True, "crop better": False, "worse": False}.get(tuned["kind"]))


def _finals(shown: Shown) -> int:
    return sum(one["candidate"]["text"] == "whole" for one in shown.found["judged"].values())


def _crops(shown: Shown) -> list[Any]:
    return [one for one in shown.found["judged"].values() if one["candidate"]["text"] == "cropped"]


def _worth(shown: Shown) -> str:
    tail = shown.first["tail"]
    if not tail["foreign"]:
        return ""
    harm = interval(tail["harm"])
    fewer = harm.documents != shown.gain(shown.first).documents
    some = words("besides_some", count=harm.documents)["zh"] if fewer else ""
    return words("besides_worth", benefit=str(interval(tail["benefit"])), harm=str(harm), some=some)["zh"]


def _besides(shown: Shown) -> str:
    tail, parts = shown.first["tail"], []
    if tail["far_tokens"] is not None:
        longest = max(int(length) for length in tail["crop"])
        over = "" if longest == tail["best_crop"] else words("besides_over", crop=f"{longest:,}")["zh"]
        parts.append(words("besides_far", over=over, far=str(interval(tail["far_tokens"])))["zh"])
    if worth := _worth(shown):
        parts.append(worth)
    if shown.first["needles"]:
        each = shown.first["needles"]
        beside = [("besides_control", each[0])] if len(each) > 1 else []
        beside += [("besides_cropped", crop["needles"][-1]) for crop in _crops(shown) if crop["needles"]]
        listed = "\uff0c".join(words(name, share=f"{one['found']:.0%}")["zh"] for name, one in beside)
        control = f"\uff08{listed}\uff09" if listed else ""
        parts.append(words("besides_needles", needles=_share(each[-1]), control=control)["zh"])
    if shown.first["candidate"]["scaling"] is None:
        parts.append(words("besides_same")["zh"])
    elif tail["short_cost"] is not None:
        cost = interval(tail["short_cost"])
        fewer = cost.documents != shown.gain(shown.first).documents
        some = words("besides_some", count=cost.documents)["zh"] if fewer else ""
        parts.append(words("besides_short", cost=str(cost), some=some)["zh"])
    return "\uff1b".join(parts)


def _share(one: Mapping[str, Any]) -> str:
    return f"{one['found']:.0%} [{one['low']:.0%}, {one['high']:.0%}]"
