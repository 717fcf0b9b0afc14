"""The last round: what the finalists are worth on documents that chose nothing, and the verdict.

    better than cropping    Holm over the finalists, paired by document; at a length that the model reads as it is,
                            better than leaving it too, in the same correction
    a tie                   with the best of those, Holm again: taken is no change, then a formula before what was
                            searched, then the smallest factor, then the smallest cost on short text

A window with sinks and cropping itself are measured beside them and win nothing: there is nothing to write for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from ropewalk.evaluate.documents import Document
from ropewalk.evaluate.measures import needles
from ropewalk.evaluate.passage import Cannot, Engine, Passage
from ropewalk.evaluate.statistics import FEWEST, Interval, holm, p_value, paired
from ropewalk.extend import tails
from ropewalk.extend.candidates import Candidate
from ropewalk.extend.candidates.base import SEARCHED
from ropewalk.extend.rounds import Ask
from ropewalk.extend.view import seen

Kind = Literal["extend", "tie", "leave", "crop", "crop better", "too few"]
PARTS = 32
"""Equal parts of the text for which the loss is given."""
READ = 2
"""Documents of which every token is scored, for the loss by position."""
ASKED = 4
"""Documents into which needles are put."""
LOSSES_ALONE = "needles, foreign text, short text and loss by position: only the verdict was asked for"


@dataclass(frozen=True)
class Judged:
    """One candidate on the documents to judge on."""

    candidate: Candidate
    tail: tails.Tail
    needles: list[needles.Needles] = field(default_factory=list)
    by_position: list[float] = field(default_factory=list)
    """Nats per token in equal parts of the text, from its start to its end; of the one that a verdict names."""

    @property
    def gains(self) -> list[float]:
        """Over the best crop at the longest length, one a document; of sinks, on the first ones alone."""
        crop, loss = self.tail.crop[self.tail.best_crop], self.tail.loss[self.tail.lengths[-1]]
        return [before - after for before, after in zip(crop, loss, strict=False)]

    @property
    def gain(self) -> Interval:
        return paired(self.gains)

    def to_dict(self) -> dict[str, Any]:
        return {
            "candidate": self.candidate.to_dict(),
            "tail": self.tail.to_dict(),
            "needles": [one.to_dict() for one in self.needles],
            "by_position": self.by_position,
        }


@dataclass(frozen=True)
class Verdict:
    kind: Kind
    winner: str
    """A candidate; "crop" where none is better than that."""
    best: str
    """The largest mean gain: what the numbers of a verdict without a winner are of."""
    tied: list[str]
    """With the best, itself among them, from the simplest to the strongest."""
    proven: list[str]
    """Better than cropping, after Holm's correction."""
    own: bool = False
    """Whether the model reads this length as it is, so that a change must be better than none."""

    @property
    def named(self) -> str:
        """The candidate that the numbers of the verdict are of."""
        return self.best if self.winner == "crop" else self.winner


def judge(
    ask: Ask,
    candidates: Sequence[Candidate],
    documents: Sequence[Document],
    *,
    near: int,
    lengths: Sequence[int],
    tail_tokens: int,
) -> dict[str, Judged]:
    """The losses of each candidate on these documents, which are all that a verdict is made from."""

    def losses(engine: Engine) -> dict[str, tails.Tail]:
        given: dict[str, Any] = {"near": near, "lengths": lengths, "tail": tail_tokens}
        return {
            one.name: tails.measure(
                seen(engine, one, near),
                documents,
                # Sinks win nothing, and what they are worth is seen on some documents.
                whole=tails.SOME if one.text == "sinks" else len(documents),
                scaling=one.scaling,
                **given,
            )
            for one in candidates
        }

    found = ask("judge", losses)
    return {one.name: Judged(one, found[one.name]) for one in candidates}


def with_needles(
    ask: Ask,
    judged: Mapping[str, Judged],
    documents: Sequence[Document],
    encode: Callable[[str], Sequence[int]] | None,
    *,
    near: int,
    seed: int,
    asked: int = ASKED,
) -> tuple[dict[str, Judged], list[str]]:
    """And the needles that each finds, with what could not be measured and the reason. asked: documents into which they
    are put."""
    skipped: dict[str, None] = {}
    longest = len(documents[0].tokens)

    def searched(engine: Engine) -> dict[str, list[needles.Needles]]:
        assert encode is not None
        fillers = [document.tokens for document in documents[:asked]]
        found: dict[str, list[needles.Needles]] = {}
        for name, one in judged.items():
            if one.candidate.text == "sinks":
                continue  # of needles they see what a crop sees
            under, each = seen(engine, one.candidate, near), found.setdefault(name, [])
            for length in _places(encode, longest):
                try:
                    each.append(
                        needles.measure(under, fillers, encode, length, scaling=one.candidate.scaling, seed=seed)
                    )
                except Cannot as error:
                    skipped[f"needles of {name} at {length:,}: {error}"] = None
        return found

    hidden: dict[str, list[needles.Needles]] = {}
    if encode is not None:
        if (why := needles.refusal(encode, longest)) is None:
            hidden = _if_possible(ask, "needles", searched, skipped)
        else:
            skipped[f"needles: {why}"] = None
    return {name: replace(one, needles=hidden.get(name, [])) for name, one in judged.items()}, list(skipped)


def settle(
    ask: Ask, judged: Mapping[str, Judged], documents: Sequence[Document], *, near: int, tail_tokens: int,
    own: bool = False,
) -> tuple[dict[str, Judged], Verdict, list[str]]:  # fmt: skip
    """The verdict, and the rest about the candidate that it names: the cost on short text, of those too that only this
    can tell from it; the loss with foreign text; the loss by position."""
    skipped: dict[str, None] = {}
    verdict, found = decide(judged, own=own), dict(judged)
    first = _factor(judged[verdict.named])
    names = {verdict.named, *(name for name in verdict.tied if _factor(judged[name]) == first)}

    def short(engine: Engine) -> dict[str, tails.Tail]:
        return {
            name: tails.with_short(
                engine, found[name].tail, documents, tokens=tail_tokens, scaling=found[name].candidate.scaling
            )
            for name in sorted(names)
        }

    for name, measured in ask("judge on short text", short).items():
        found[name] = replace(found[name], tail=measured)
    verdict = decide(found, own=own)
    named = found[verdict.named]
    scaling = named.candidate.scaling

    def foreign(engine: Engine) -> tails.Tail:
        return tails.with_foreign(engine, named.tail, documents, near=near, tokens=tail_tokens, scaling=scaling)

    def everywhere(engine: Engine) -> list[float]:
        whole = [Passage.plain(document.tokens, len(document.tokens) - 1) for document in documents[:READ]]
        each = np.mean([engine.nats(passage, scaling) for passage in whole], axis=0)
        return [float(part.mean()) for part in np.array_split(each, PARTS)]

    measured = ask("judge with foreign text", foreign)
    where = _if_possible(ask, "loss by position", everywhere, skipped) or []
    found[verdict.named] = replace(named, tail=measured, by_position=where)
    return found, verdict, list(skipped)


def _factor(one: Judged) -> float:
    return round(one.candidate.factor, 6)


def _if_possible(ask: Ask, stage: str, measure: Callable[[Engine], Any], skipped: dict[str, None]) -> Any:
    try:
        return ask(stage, measure)
    except Cannot as error:
        skipped[f"{stage}: {error}"] = None
        return {}


def _places(encode: Callable[[str], Sequence[int]], longest: int) -> list[int]:
    """The control, with little between the needles, then the whole length."""
    control = needles.control(encode)
    return [control, longest] if longest > control else [control]


def decide(judged: Mapping[str, Judged], *, own: bool = False) -> Verdict:
    """Of the candidates that read the whole text. own: the model reads this length as it is."""
    finals = {name: one for name, one in judged.items() if one.candidate.text == "whole"}
    best = max(finals, key=lambda name: finals[name].gain.mean)
    if finals[best].gain.documents < FEWEST:
        return Verdict("too few", "crop", best, [], [], own)
    as_it_is = unchanged(finals) if own else None
    left = None if as_it_is is None else as_it_is.candidate.name
    changes = {} if left is None else {name: between(one, finals[left]) for name, one in finals.items() if name != left}
    p_values = {name: p_value(one.gains) for name, one in finals.items()}
    apart = holm(p_values | {f"{name} over leaving": p_value(each) for name, each in changes.items()})
    proven = [name for name, one in finals.items() if apart[name] and one.gain.mean > 0]
    if not proven:
        return Verdict("crop better" if apart[best] else "crop", "crop", best, [], [], own)
    better = proven
    if left is not None:
        better = [name for name in proven if name != left and apart[f"{name} over leaving"] and sum(changes[name]) > 0]
        if not better:
            return Verdict("leave", left, best, [left], proven, own)
    best = max(better, key=lambda name: finals[name].gain.mean)
    behind = {name: p_value(between(finals[best], finals[name])) for name in better if name != best}
    tied = [best, *(name for name, apart in holm(behind).items() if not apart)]
    tied.sort(key=lambda name: _simplest(finals[name]))
    winner = tied[0]
    kind: Kind = "leave" if finals[winner].candidate.scaling is None else "tie" if len(tied) > 1 else "extend"
    return Verdict(kind, winner, best, tied, proven, own)


def unchanged(judged: Mapping[str, Judged]) -> Judged | None:
    """The model as it is, given the whole text."""
    whole = (one for one in judged.values() if one.candidate.text == "whole")
    return next((one for one in whole if one.candidate.scaling is None), None)


def over_leaving(verdict: Verdict, judged: Mapping[str, Judged]) -> Interval | None:
    """By how much the winner is better than no change; None where that is not asked, or is the winner."""
    left = unchanged(judged)
    if not verdict.own or left is None or verdict.winner in ("crop", left.candidate.name):
        return None
    return paired(between(judged[verdict.winner], left))


def _simplest(one: Judged) -> tuple[bool, bool, float, float]:
    """No change at all comes first."""
    return one.candidate.scaling is not None, one.candidate.name == SEARCHED, _factor(one), _short_cost(one)


def _short_cost(one: Judged) -> float:
    """0 before it is measured, which is for those of one factor alike."""
    return one.tail.short_cost.mean if one.tail.has_short else 0.0


def between(one: Judged, other: Judged) -> list[float]:
    """By how much one gains more than another, one number a document."""
    return [a - b for a, b in zip(one.gains, other.gains, strict=True)]


def found_between(one: Judged, other: Judged) -> list[float]:
    """By how much larger a share of needles one finds than another at the longest length, one number a pass; none where
    they were not asked for."""
    if not one.needles or not other.needles:
        return []
    pairs = zip(one.needles[-1].found, other.needles[-1].found, strict=True)
    return [float(np.mean(a)) - float(np.mean(b)) for a, b in pairs]


def sentence(verdict: Verdict, judged: Mapping[str, Judged]) -> str:
    """The verdict in words, with its interval."""
    one = judged[verdict.named]
    length, gain = f"{one.tail.lengths[-1]:,} tokens", one.gain
    crop = f"cropping to {one.tail.best_crop:,}"
    count = f"{gain.documents} documents"
    name = one.candidate.name
    # An interval of one comparison may leave out zero where the correction over all of them does not.
    finals = sum(each.candidate.text == "whole" for each in judged.values())
    doubt = f"; Holm's correction over {finals} finalists leaves it open" if gain.verdict != "no difference" else ""
    rest = besides(one, next((each for each in judged.values() if each.candidate.text == "cropped"), None))
    match verdict.kind:
        case "too few":
            return f"{count} are too few for a verdict; at {length} {name} gains {gain} nats per token over {crop}."
        case "crop":
            return (
                f"Cropping is as good: at {length} the best, {name}, gains {gain} nats per token over {crop} "
                f"({count}){doubt}; {rest}."
            )
        case "crop better":
            return (
                f"Cropping is better: at {length} the best, {name}, gains {gain} nats per token over {crop} "
                f"({count}); {rest}."
            )
        case "leave" if verdict.own:
            return (
                f"Leave it as it is: at {length} no change is shown to be better; it gains {gain} nats per token over "
                f"{crop} ({count}); {rest}."
            )
        case "leave":
            words = f"Leave it as it is: at {length}"
        case "tie":
            others = ", ".join(other for other in verdict.tied if other != name)
            words = f"A tie with {others}: take the simplest, {name}: at {length}"
        case _:
            words = f"Take {name}: at {length}"
    over = over_leaving(verdict, judged)
    crop = crop if over is None else f"no change by {over} and than {crop}"
    return f"{words} it is better than {crop} by {gain} nats per token ({count}); {rest}."


def worth(one: Judged) -> str:
    """What the gain is made of, on the documents for which it was measured: what the far text is worth, less what the
    length costs. A model that only crops has neither."""
    if not one.tail.foreign:
        return ""
    benefit, harm = one.tail.benefit, one.tail.harm
    fewer = "" if harm.documents == one.gain.documents else f" ({harm.documents} documents)"
    return f"far text is worth {benefit}, the length costs {harm}{fewer}"


def besides(one: Judged, crop: Judged | None = None) -> str:
    """What the gain is made of, far tokens, needles and the cost on short text: reasons to read on where cropping has
    the smaller loss. crop: of which needles are given too."""
    far, longest = one.tail.far_gain, one.tail.crop_lengths[-1]
    # Of far tokens the longest crop is the baseline, which need not be the best one.
    over = "" if longest == one.tail.best_crop else f" over cropping to {longest:,}"
    parts = [] if far is None else [f"on far tokens {far}{over}"]
    if found := worth(one):
        parts.append(found)
    if one.needles:
        parts.append(f"needles found {found_share(one.needles, () if crop is None else crop.needles)}")
    if one.candidate.scaling is None:
        parts.append("short text stays as it was")
    elif one.tail.has_short:
        cost = one.tail.short_cost
        fewer = "" if cost.documents == one.gain.documents else f" ({cost.documents} documents)"
        parts.append(f"cost on short text {cost}{fewer}")
    return "; ".join(parts)


def found_share(each: Sequence[needles.Needles], crop: Sequence[needles.Needles] = ()) -> str:
    """At the longest length, with its interval; and of the control, without which it says nothing about length."""
    last = each[-1]
    beside = [f"control {each[0].share:.0%}"] if len(each) > 1 else []
    if crop:
        beside.append(f"cropping finds {crop[-1].share:.0%}")
    said = f" ({', '.join(beside)})" if beside else ""
    return "{:.0%} [{:.0%}, {:.0%}]".format(last.share, *last.interval) + said
