"""The measures of `ropewalk eval` on one checkpoint, and what they say together.

Judge documents are chosen before any candidate is measured: those whose far text can matter, because they repeat pairs
of tokens from farther back than the trained length. The rule and the documents it left out are part of the report.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ropewalk.evaluate.documents import Document, far_places
from ropewalk.evaluate.measures import needles, perplexity, tail
from ropewalk.evaluate.passage import Cannot, Engine, described
from ropewalk.evaluate.statistics import paired
from ropewalk.scaling import Scaling

TAIL = 512
FAR_TOKENS = 4
"""Far tokens that the tail of a judge document has at least."""
READ = 4
"""Documents whose perplexity is measured, for comparison with the literature."""
ALL = "every document judges, since all lengths are within the trained one; far text is that past {near} tokens"
RULE = (
    f"judge documents: at least {FAR_TOKENS} of the last {{tail}} tokens repeat a pair of tokens last seen more than "
    "{trained} tokens back"
)


@dataclass(frozen=True)
class Report:
    engine: str
    trained: int
    scaling: dict[str, Any] | None
    tail_tokens: int
    rule: str
    documents: list[dict[str, Any]]
    left_out: list[str]
    tail: tail.Tail
    needles: list[needles.Needles]
    perplexity: list[perplexity.Perplexity]
    not_measured: list[str]
    """What this engine cannot compute, with the reason."""

    @property
    def verdict(self) -> str:
        """One sentence: is the longer context worth more than cropping?"""
        gain, benefit = self.tail.gain(), self.tail.benefit
        length = f"{self.tail.lengths[-1]:,} tokens"
        if gain.verdict == "too few documents":
            return f"{gain.documents} documents are too few for a verdict; gain over cropping at {length}: {gain} nats."
        words = {
            "better": f"At {length} the model uses its context: better than cropping",
            "worse": f"At {length} the model is worse than if the text were cropped",
            "no difference": f"At {length} the model is no better than cropping",
        }[gain.verdict]
        return f"{words} by {gain} nats per token; the far text is worth {benefit}."

    def to_dict(self) -> dict[str, Any]:
        return {
            "engine": self.engine,
            "trained": self.trained,
            "scaling": self.scaling,
            "tail_tokens": self.tail_tokens,
            "rule": self.rule,
            "documents": self.documents,
            "left_out": self.left_out,
            "verdict": self.verdict,
            "tail": self.tail.to_dict(),
            "needles": [one.to_dict() for one in self.needles],
            "perplexity": [one.to_dict() for one in self.perplexity],
            "not_measured": self.not_measured,
        }


def by_engine(reports: Sequence[Report]) -> list[dict[str, Any]]:
    """Reports of the same documents and lengths, side by side; `apart`: loss at the longest length minus the first's,
    paired by document."""
    first = reports[0].tail
    longest = first.lengths[-1]
    return [
        {
            "engine": one.engine,
            "loss": sum(one.tail.loss[longest]) / len(one.documents),
            "apart": paired(
                [a - b for a, b in zip(one.tail.loss[longest], first.loss[longest], strict=True)]
            ).to_dict(),
            "gain": one.tail.gain().to_dict(),
            "short_cost": one.tail.short_cost.to_dict(),
            "not_measured": one.not_measured,
        }
        for one in reports
    ]


def evaluate(
    engine: Engine,
    documents: Sequence[Document],
    encode: Callable[[str], Sequence[int]] | None,
    *,
    trained: int,
    lengths: Sequence[int],
    scaling: Scaling | None = None,
    tail_tokens: int = TAIL,
    passes: int = 4,
    progress: tail.Progress = lambda stage, done, total: None,
) -> Report:
    """encode: of the model's tokenizer, without special tokens, for needles; None: no needles."""
    longest, near = max(lengths), far_from(trained, lengths)
    lengths = sorted({*lengths, near})  # the crop that all is compared with
    judges, left = [], []
    for document in documents:
        (judges if is_judge(document, longest, trained, tail_tokens) else left).append(document)
    if len(judges) < 2:
        raise ValueError(
            f"{len(judges)} of {len(documents)} documents have far text that can matter; give other or more documents"
        )
    found = tail.measure(
        engine, judges, near=near, lengths=lengths, scaling=scaling, tail=tail_tokens, progress=progress
    )
    searched: list[needles.Needles] = []
    skipped: list[str] = []
    why = None if encode is None else needles.refusal(encode, longest)
    if why is not None:
        skipped.append(f"needles: {why}")
    if encode is not None and why is None:
        control = needles.control(encode)
        asked = [document.tokens for document in documents[:passes]]
        places = [control, *(length for length in sorted({*lengths}) if length > control)]
        for done, length in enumerate(places):
            progress("needles", done, len(places))
            try:
                searched.append(needles.measure(engine, asked, encode, length, scaling=scaling))
            except Cannot as error:
                skipped.append(f"needles at {length:,}: {error}")
    short = min(trained, longest)
    protocols: dict[tuple[int, int | None], None] = dict.fromkeys([(short, None), (longest, None)])
    if short < longest:
        protocols[short, short // 4] = None
    else:  # a window that holds the whole document has nowhere to slide
        skipped.append(
            f"perplexity in sliding windows: documents are read up to {longest:,} tokens, which one window holds"
        )
    read: list[perplexity.Perplexity] = []
    for done, (length, stride) in enumerate(protocols):
        progress("perplexity", done, len(protocols))
        try:
            read.append(perplexity.measure(engine, judges[:READ], length, stride=stride, scaling=scaling))
        except Cannot as error:
            skipped.append(f"perplexity in windows of {length:,}: {error}")
    return Report(
        engine.name,
        trained,
        described(scaling),
        tail_tokens,
        rule(longest, trained, tail_tokens, near),
        [{"name": one.name, "sha256": one.digest} for one in judges],
        [one.name for one in left],
        found,
        searched,
        read,
        skipped,
    )


def is_judge(document: Document, longest: int, trained: int, tail_tokens: int) -> bool:
    return longest <= trained or len(far_places(document.tokens, tail_tokens, trained)) >= FAR_TOKENS


def rule(longest: int, trained: int, tail_tokens: int, near: int) -> str:
    """What `is_judge` decides, in words."""
    words = RULE if longest > trained else ALL
    return words.format(tail=f"{tail_tokens:,}", trained=f"{trained:,}", near=f"{near:,}")


def far_from(trained: int, lengths: Sequence[int]) -> int:
    """Tokens from the end of a text past which it is far: the trained length, or where no length is longer than that,
    the second longest, since a context is no better than itself."""
    several = sorted({*lengths})
    if several[-1] > trained:
        return trained
    if len(several) < 2:
        raise ValueError(f"one length, {several[-1]:,}, has nothing to be compared with; give a shorter one too")
    return several[-2]
