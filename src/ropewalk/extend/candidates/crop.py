"""Far text thrown away: what every method has to beat.

    crop    the last n tokens, n at most what the model reads as it is: its trained length, or that of its own scaling
    sinks   the same, and the first tokens of the text kept before them (StreamingLLM, arXiv 2309.17453)

A window with sinks is a crop too: of the text between, the model sees nothing. It needs an engine that moves its cache.
"""

from __future__ import annotations

from collections.abc import Iterator

from ropewalk.extend.candidates.base import SINKS, Candidate, Rope


def candidates(rope: Rope) -> Iterator[Candidate]:
    yield Candidate("crop", "far text thrown away", text="cropped")
    yield Candidate("sinks", f"a crop that keeps the first {SINKS} tokens, arXiv 2309.17453", text="sinks")
