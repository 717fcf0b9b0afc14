"""Perplexity by the protocols of the literature, each token once and each with the same weight.

    non-overlapping   windows end to end, joined by one token; the first tokens of every window have little context
    sliding           windows of the same length, `stride` tokens further each; a token is scored once, with at least
                      length - stride tokens before it (but in the first window)

Averages of window means, as the scripts of YaRN and LongRoPE take them (jquesnelle/yarn, eval/perplexity.py), weigh a
token of the first window less than one of the others; `window_mean` reproduces that figure for comparison and is never
mixed with the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ropewalk.evaluate.documents import Document
from ropewalk.evaluate.passage import Engine, Nats, Numbers, Passage
from ropewalk.scaling import Scaling

Protocol = Literal["non-overlapping", "sliding"]


@dataclass(frozen=True)
class Perplexity:
    protocol: Protocol
    length: int
    stride: int
    nats: list[float]
    """Mean nats per token, one number a document."""
    tokens: int
    """Scored in all: every token of every document but its first."""
    bytes: int
    window_mean: float
    """The mean of window means, over all documents."""

    @property
    def mean(self) -> float:
        return float(np.mean(self.nats))

    def to_dict(self) -> dict[str, Any]:
        return {
            "protocol": self.protocol,
            "length": self.length,
            "stride": self.stride,
            "nats": self.mean,
            "perplexity": math.exp(self.mean),
            "bits_per_byte": self.mean * self.tokens / self.bytes / math.log(2),
            "window_mean_perplexity": math.exp(self.window_mean),
            "tokens": self.tokens,
            "documents": self.nats,
        }


def measure(
    engine: Engine,
    documents: Sequence[Document],
    length: int,
    *,
    stride: int | None = None,
    scaling: Scaling | None = None,
) -> Perplexity:
    """stride: None for windows that do not overlap."""
    step = length if stride is None else stride
    if not 0 < step <= length:
        raise ValueError(f"stride={step} must be at least 1 and at most the window's length {length:,}")
    means, windows, count = [], [], 0
    for document in documents:
        parts = [engine.nats(passage, scaling) for passage in cut(document.tokens, length, step)]
        every: Nats = np.concatenate(parts)
        means.append(float(every.mean()))
        windows += [float(part.mean()) for part in parts]
        count += len(every)
    protocol: Protocol = "non-overlapping" if stride is None else "sliding"
    size = sum(document.bytes for document in documents)
    return Perplexity(protocol, length, step, means, count, size, float(np.mean(windows)))


def cut(tokens: Numbers, length: int, step: int) -> list[Passage]:
    """Windows of at most `length` tokens that together score every token but the first exactly once."""
    done = min(length, len(tokens))
    found = [Passage.plain(tokens[:done], done - 1)]
    while done < len(tokens):
        # A window's own first token has nothing before it, so at most length - 1 tokens of a window are new.
        end = min(done + min(step, length - 1), len(tokens))
        start = max(0, end - length) if step < length else done - 1
        found.append(Passage.plain(tokens[start:end], end - done))
        done = end
    return found
