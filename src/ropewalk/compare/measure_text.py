"""What is measured of a model of text: three protocols on the same pieces of text, and the loss by position.

    same tokens        the last `tail` tokens of a piece, with more and more text before them
    non-overlapping    windows end to end; longer windows have fewer tokens with little before them, so that any model
                       whose loss stays flat seems to improve
    sliding            windows of the trained length, half a window further each

A length that an encoding has no positions for is "cannot", and not a number.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ropewalk.data.config import TextData
from ropewalk.data.drawn.skips import Randomised, measured_at
from ropewalk.data.layout import describe
from ropewalk.data.stored import Documents
from ropewalk.evaluate.documents import Document
from ropewalk.evaluate.engines.ours import Ours
from ropewalk.evaluate.measures import perplexity
from ropewalk.evaluate.passage import Nats, Numbers, Passage
from ropewalk.models import Transformer
from ropewalk.scaling import Scaling

T = TypeVar("T")
PROTOCOL = 3
"""Raised when a measurement changes: trials measured otherwise are not mixed with new ones."""
CANNOT = "cannot"
OCTAVE = 4
"""Bins of each doubling of the position."""
CURVES = 12
"""Pieces for all but the loss of the same tokens, which verdicts are given by and which costs the least."""
DRAWN = 0xD2A
"""Seed of the positions of a model that was trained with randomised ones."""


def pieces(data: TextData, longest: int, most: int) -> list[Document]:
    """Validation text in pieces of `longest` tokens: of the whole stream where documents are trained end to end as one
    text, else each of one document."""
    folder = Path(data.path)
    stored = Documents(folder, "valid", "tokens", describe(folder))
    if as_one_text(data):
        spans = [(start, start + longest) for start in range(0, stored.tokens - longest + 1, longest)]
    else:
        bounds = stored.bounds(0, stored.documents)
        # One piece a document: they are the unit of every interval. From its middle: openings are easier or harder to
        # predict than the rest, which would look like an effect of the position.
        starts = [int(a + (b - a - longest) // 2) for a, b in itertools.pairwise(bounds) if b - a >= longest]
        spans = [(start, start + longest) for start in starts]
    if len(spans) < 2:
        raise ValueError(
            f"{folder}: {len(spans)} pieces of validation text have {longest:,} tokens, 2 are needed; prepare it with "
            "a greater --valid-fraction, or measure with shorter text.lengths"
        )
    return [Document(f"{a}", "", stored.span(a, b), longest) for a, b in _spread(spans, most)]


def _spread(each: Sequence[T], most: int) -> list[T]:
    """From the whole of it: what stands side by side in a corpus is often of one author."""
    count = min(most, len(each))
    return [each[number * len(each) // count] for number in range(count)]


def as_one_text(data: TextData) -> bool:
    return data.packing == "stream" and not data.isolate


def measured_on(data: Any) -> tuple[str, bool]:
    """What decides which pieces of text are measured."""
    return data.path, as_one_text(data)


def measure(model: Transformer, data: TextData, asked: dict[str, Any]) -> dict[str, Any]:
    trained, lengths, tail = asked["trained"], asked["lengths"], asked["tail"]
    longest = lengths[-1]
    found = pieces(data, longest, asked["documents"])
    few = _spread(found, CURVES)
    skips = measured_at(data.positions)
    engine = Placed(model, skips)
    table = model.plan.table if skips is None else skips.reach

    def up_to(length: int, compute: Callable[[], Any]) -> Any:
        return CANNOT if table is not None and length > table else compute()

    def tails(length: int) -> list[float | None]:
        return [_mean(engine.nats(Passage.plain(one.tokens[-length:], tail))) for one in found]

    def windows(length: int, stride: int | None) -> list[float | None]:
        if length == longest:  # one window: every token but its first
            return [_mean(nats) for nats in whole]
        return [_finite(value) for value in perplexity.measure(engine, few, length, stride=stride).nats]

    far = min(longest, table or longest)
    whole = [engine.nats(Passage.plain(one.tokens[:far], far - 1)) for one in few]
    short = [length for length in _doublings(trained) if length > tail]
    return {
        "pieces": len(found),
        "same_tokens": {n: up_to(n, lambda n=n: tails(n)) for n in sorted({*short, *lengths})},
        "non_overlapping": {n: up_to(n, lambda n=n: windows(n, None)) for n in lengths if n >= trained},
        "sliding": {trained: up_to(trained, lambda: windows(trained, max(1, trained // 2)))},
        "context": [_context(engine, one.tokens, trained) for one in few],
        "by_position": _by_position(whole),
    }


class Placed(Ours):
    """With positions as in training where these were randomised."""

    def __init__(self, transformer: Transformer, skips: Randomised | None) -> None:
        super().__init__(transformer, model="")
        self.skips = skips

    def nats(self, passage: Passage, scaling: Scaling | None = None) -> Nats:
        if self.skips is not None:
            # Each text has its own, so that an interval over texts holds what the draw does.
            rng = np.random.default_rng([DRAWN, len(passage.tokens), int(passage.digest, 16)])
            positions = self.skips.draw(len(passage.tokens), rng)
            passage = Passage(passage.tokens, positions, passage.scored)
        return super().nats(passage, scaling)


def _doublings(trained: int) -> list[int]:
    """Contexts up to the trained length, from 16 tokens on."""
    found = [trained]
    while found[-1] // 2 >= 16:
        found.append(found[-1] // 2)
    return sorted(found)


def _context(engine: Ours, text: Numbers, trained: int) -> float | None:
    """Nats that the whole length is worth: the last quarter of each window of the trained length, read with a sixteenth
    to an eighth of it before each token, less read with all of it. Of other tokens the loss would differ by more."""
    part = max(1, trained // 16)
    gains = []
    for start in range(0, len(text) - trained + 1, trained):
        window = text[start : start + trained]
        whole = engine.nats(Passage.plain(window, 4 * part))
        for number in range(4):
            end = trained - (3 - number) * part
            short = engine.nats(Passage.plain(window[end - 2 * part : end], part))
            gains.append(float(short.mean() - whole[number * part : (number + 1) * part].mean()))
    return _finite(float(np.mean(gains)))


def _by_position(whole: Sequence[Nats]) -> list[dict[str, Any]]:
    """By position in one pass over each piece, in parts that grow with it."""
    mean = np.mean(whole, 0)
    longest = len(mean) + 1
    count = round(OCTAVE * math.log2(longest / 16))
    edges = np.unique(np.round(np.geomspace(16, longest, max(2, count + 1))).astype(int))
    # nats[i] is the loss of token i + 1.
    return [
        {"from": int(a), "to": int(b), "loss": _finite(float(mean[a - 1 : b - 1].mean()))}
        for a, b in itertools.pairwise(edges)
    ]


def _mean(nats: Any) -> float | None:
    return _finite(float(nats.mean()))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def seed_means(done: Sequence[Mapping[str, Any]], length: int) -> list[float] | str:
    """Of each seed, the loss of the same tokens, by which verdicts are given; or that the arm cannot."""
    rows = [at_length(one["same_tokens"], length) for one in done]
    if CANNOT in rows:
        return CANNOT
    if any(None in row for row in rows):
        return "not finite"
    return [statistics.fmean(row) for row in rows]


def at_length(by_length: Mapping[Any, Any], length: int) -> Any:
    """Lengths are text where this was read from JSON."""
    return by_length[length] if length in by_length else by_length[str(length)]
