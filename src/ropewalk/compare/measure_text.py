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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ropewalk.data.config import TextData
from ropewalk.data.layout import describe
from ropewalk.data.stored import Documents
from ropewalk.evaluate.documents import Document
from ropewalk.evaluate.engines.ours import Ours
from ropewalk.evaluate.measures import perplexity
from ropewalk.evaluate.passage import Numbers, Passage
from ropewalk.models import Transformer

PROTOCOL = 2
"""Raised when a measurement changes: trials measured otherwise are not mixed with new ones."""
CANNOT = "cannot"
OCTAVE = 4
"""Bins of each doubling of the position."""


def pieces(data: TextData, longest: int, most: int) -> list[Document]:
    """Validation text in pieces of `longest` tokens: of the whole stream where documents are trained end to end as one
    text, else each of one document."""
    folder = Path(data.path)
    stored = Documents(folder, "valid", "tokens", describe(folder))
    if as_one_text(data):
        spans = [(start, start + longest) for start in range(0, stored.tokens - longest + 1, longest)]
    else:
        bounds = stored.bounds(0, stored.documents)
        # One piece a document: they are the unit of every interval.
        spans = [(int(a), int(a) + longest) for a, b in itertools.pairwise(bounds) if b - a >= longest]
    if len(spans) < 2:
        raise ValueError(
            f"{folder}: {len(spans)} pieces of validation text have {longest:,} tokens, 2 are needed; prepare it with "
            "a greater --valid-fraction, or measure with shorter text.lengths"
        )
    # From the whole of it: what stands side by side in a corpus is often of one author.
    count = min(most, len(spans))
    chosen = [spans[number * len(spans) // count] for number in range(count)]
    return [Document(f"{a}", "", stored.span(a, b), longest) for a, b in chosen]


def as_one_text(data: TextData) -> bool:
    return data.packing == "stream" and not data.isolate


def measure(model: Transformer, data: TextData, asked: dict[str, Any]) -> dict[str, Any]:
    trained, lengths, tail = asked["trained"], asked["lengths"], asked["tail"]
    found = pieces(data, lengths[-1], asked["documents"])
    engine = Ours(model, model="")
    table = model.plan.table

    def up_to(length: int, compute: Callable[[], Any]) -> Any:
        return CANNOT if table is not None and length > table else compute()

    def tails(length: int) -> list[float | None]:
        return [_mean(engine.nats(Passage.plain(one.tokens[-length:], tail))) for one in found]

    def windows(length: int, stride: int | None) -> list[float | None]:
        return [_finite(value) for value in perplexity.measure(engine, found, length, stride=stride).nats]

    short = [length for length in _doublings(trained) if length > tail]
    return {
        "pieces": len(found),
        "same_tokens": {n: up_to(n, lambda n=n: tails(n)) for n in sorted({*short, *lengths})},
        "non_overlapping": {n: up_to(n, lambda n=n: windows(n, None)) for n in lengths if n >= trained},
        "sliding": {trained: up_to(trained, lambda: windows(trained, max(1, trained // 2)))},
        "context": [_context(engine, one.tokens, trained) for one in found],
        "by_position": _by_position(engine, [one.tokens for one in found], min(lengths[-1], table or lengths[-1])),
    }


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


def _by_position(engine: Ours, texts: Sequence[Numbers], longest: int) -> list[dict[str, Any]]:
    """By position in one pass over each piece, in parts that grow with it."""
    mean = np.mean([engine.nats(Passage.plain(text[:longest], longest - 1)) for text in texts], 0)
    count = round(OCTAVE * math.log2(longest / 8))
    edges = np.unique(np.round(np.geomspace(8, longest, max(2, count + 1))).astype(int))
    # nats[i] is the loss of token i + 1.
    return [
        {"from": int(a), "to": int(b), "loss": _finite(float(mean[a - 1 : b - 1].mean()))}
        for a, b in itertools.pairwise(edges)
    ]


def _mean(nats: Any) -> float | None:
    return _finite(float(nats.mean()))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
