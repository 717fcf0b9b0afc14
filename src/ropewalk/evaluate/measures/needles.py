"""Needles: does a model find what it was told far back? Many in one pass, scored by likelihood.

`COUNT` sentences "The code of KEY is VALUE." stand at stratified depths of a text. At its end each code is asked for,
in another order, and answered rightly before the next. A needle is found if, of all the values in the text, the right
one is the most likely: every other needle is a distractor, and chance is 1 / COUNT. Of values that are equally likely,
as they often are in bfloat16, each counts as its share of the tie: what answers drawn among them would find. The short
control, the same sentences and questions with little text between them, comes first: a model that fails it says nothing
about length.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ropewalk.evaluate.passage import Cannot, Engine, Numbers, Passage
from ropewalk.evaluate.statistics import Interval, paired, wilson
from ropewalk.scaling import Scaling

COUNT = 16
ANCHOR = "x"
"""Stands before a text while it is tokenized."""
BEGINS = 2
"""Tokens at the start of a text that special ones may take the place of: BOS, or [gMASK] and <sop>."""
KEYS = (
    "amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "ivory", "jade", "kelp", "lotus",
    "maple", "nickel", "onyx", "pearl", "quartz", "raven", "sable", "topaz", "umber", "violet", "willow", "zinc",
)  # fmt: skip


@dataclass(frozen=True)
class Needles:
    """found: of each pass, for each needle from the first in the text to the last, 1 where it was found, 0 where not,
    and 1 / k where k values tie."""

    length: int
    found: Sequence[Sequence[float]]
    nats: list[float]
    """Of the right values, the mean of each pass."""

    @property
    def share(self) -> float:
        return float(np.mean(self.found))

    @property
    def interval(self) -> tuple[float, float]:
        """Over passes, since needles of one pass share their text, and no narrower than Wilson's over all of them: a
        few passes may well find equally many."""
        low, high = wilson(float(np.sum(self.found)), int(np.size(self.found)))
        if len(self.found) < 2:
            return low, high
        each: Interval = paired([float(np.mean(one)) for one in self.found])
        return max(0.0, min(low, each.low)), min(1.0, max(high, each.high))

    def to_dict(self) -> dict[str, Any]:
        low, high = self.interval
        by_depth = [float(np.mean(column)) for column in zip(*self.found, strict=True)]
        return {
            "length": self.length,
            "passes": len(self.found),
            "found": self.share,
            "low": low,
            "high": high,
            "by_depth": by_depth,
            "nats": float(np.mean(self.nats)),
        }


def measure(
    engine: Engine,
    fillers: Sequence[Numbers],
    encode: Callable[[str], Sequence[int]],
    length: int,
    *,
    scaling: Scaling | None = None,
    seed: int = 0,
) -> Needles:
    """One pass for each filler, a text of at least `length` tokens. encode: without special tokens."""
    found, nats = [], []
    for number, filler in enumerate(fillers):
        # The same keys, values and questions at every length and for every candidate.
        draws = random.Random(seed * 1_000_003 + number)
        tokens, places, order, values = _text(filler, encode, length, draws)
        scored = len(tokens) - min(places)
        answers = engine.choices(Passage.plain(tokens, scored), values, scaling)  # (scored, COUNT)
        asked = answers[[place - min(places) for place in places]]  # (COUNT questions, COUNT values)
        hits = np.empty(COUNT)
        right = asked[np.arange(COUNT), order]
        best = right == asked.min(1)
        hits[order] = best / (asked == right[:, None]).sum(1)
        found.append(hits.tolist())
        nats.append(float(right.mean()))
    return Needles(length, found, nats)


def control(encode: Callable[[str], Sequence[int]]) -> int:
    """Tokens of the short control: the needles and questions with little else. A shorter text has no room for them."""
    return 2 * COUNT * (len(_within(encode, " The code of quartz is")) + 6)


def refusal(encode: Callable[[str], Sequence[int]], length: int) -> str | None:
    """Why needles cannot be asked for in so many tokens; None where they can."""
    if (least := control(encode)) > length:
        return f"{COUNT} of them take {least:,} tokens, and the longest text has {length:,}"
    try:
        _values(encode, random.Random(0))
    except Cannot as error:
        return str(error)
    return None


def _text(
    filler: Numbers, encode: Callable[[str], Sequence[int]], length: int, draws: random.Random
) -> tuple[Numbers, list[int], list[int], Numbers]:
    """Tokens; where the first token of each answer stands; which needle each question is about; the values."""
    keys = draws.sample(KEYS, COUNT)
    words = _values(encode, draws)
    # In pieces, so that a question and its answer are the tokens of their needle, whatever the tokenizer would join.
    asking = [_within(encode, f" The code of {key} is") for key in keys]
    answers = [_within(encode, f"{word}.") for word in words]
    needles = [[*question, *answer] for question, answer in zip(asking, answers, strict=True)]
    order = draws.sample(range(COUNT), COUNT)
    questions: list[int] = []
    places: list[int] = []
    for which in order:
        places.append(len(questions) + len(asking[which]))
        questions += needles[which]
    room = length - len(questions) - sum(map(len, needles))
    if room < 0 or len(filler) < room:
        raise ValueError(
            f"{COUNT} needles and their questions take {length - room:,} tokens, a filler has {len(filler):,}; "
            f"length {length:,} does not fit"
        )
    tokens: list[int] = []
    cuts = [max(BEGINS, round(room * (depth + draws.random()) / COUNT)) for depth in range(COUNT)]
    for start, end, needle in zip([0, *cuts[:-1]], cuts, needles, strict=True):
        tokens += [*filler[start:end].tolist(), *needle]
    tokens += filler[cuts[-1] : room].tolist()
    values = np.asarray([answer[0] for answer in answers], dtype=np.int64)
    first = len(tokens)
    return np.asarray(tokens + questions, dtype=np.int64), [first + place for place in places], order, values


def _within(encode: Callable[[str], Sequence[int]], text: str) -> list[int]:
    """The tokens of a text that begins with a space, as in the middle of another: SentencePiece puts one more space in
    front of what stands alone, and then all values would begin with the same token."""
    before, both = list(encode(ANCHOR)), list(encode(f"{ANCHOR}{text}"))
    return both[len(before) :] if both[: len(before)] == before else list(encode(text))


def _values(encode: Callable[[str], Sequence[int]], draws: random.Random) -> list[str]:
    """Numbers whose first tokens all differ, so that one token tells them apart."""
    letters = [chr(97 + number) for number in range(26)]
    numbers = [f" {number}" for number in range(11, 1000)] + [f" {a}{b}" for a in letters for b in letters]
    draws.shuffle(numbers)
    found: dict[int, str] = {}
    blank = [*_within(encode, " "), *_within(encode, "  ")]  # a bare space, which some tokenizers put before digits
    for text in numbers:
        ids = _within(encode, f"{text}.")
        if ids and ids[0] not in found and ids[0] not in blank:
            found[ids[0]] = text
        if len(found) == COUNT:
            return list(found.values())
    raise Cannot(f"this tokenizer has fewer than {COUNT} numbers or pairs of letters that begin differently")
