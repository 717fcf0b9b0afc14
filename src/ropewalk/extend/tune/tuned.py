"""What training bought: the tuned weights against four others on equal documents, with Holm's correction over all.

untuned      the same scaling before training
crop         the model before training, cropped: the gains of tuned and untuned have this baseline
own crop     the tuned weights themselves, cropped: training on texts like those that judge lowers every loss, and what
             it did for long texts is seen here alone
left         the model as it is, where that won: what is trained then is not what won

The documents that judge are not among those that are trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ropewalk.evaluate.statistics import FEWEST, Interval, holm, p_value, paired
from ropewalk.extend.judging import Judged, besides, between
from ropewalk.extend.tails import Tail

Kind = Literal["take", "crop", "crop better", "own crop", "leave", "same", "worse", "too few"]
Precision = Literal["float32", "bfloat16"]
RATE = 2e-5
"""PoSE's (arXiv 2309.10400, section 4.1)."""


@dataclass(frozen=True)
class Tuning:
    """How long to train, in steps or in minutes, how fast, and in what precision; the weights are float32 in each."""

    steps: int | None = None
    minutes: float | None = None
    rate: float = RATE
    precision: Precision = "float32"


@dataclass(frozen=True)
class Tuned:
    start: str
    """The candidate whose scaling it was trained with."""
    steps: int
    seconds: float
    texts: int
    """That it was trained on."""
    model: Path
    digest: str
    judged: Judged
    over: Interval
    """Loss without training minus loss with it."""
    own: Interval
    """Loss of the tuned weights cropped minus that with the whole text."""
    kind: Kind
    not_measured: list[str]
    alike: int = 0
    """Texts that were not trained on because they are near copies of documents of the tournament."""

    @property
    def sentence(self) -> str:
        one = self.judged
        length, crop = f"{one.tail.lengths[-1]:,} tokens", f"cropping to {one.tail.best_crop:,}"
        words = {
            "take": "Take the tuned weights",
            "crop": "Training helps, but cropping is as good",
            "crop better": "Training helps, but cropping is still better",
            "own crop": "Training helps short texts as much: cropped, the tuned weights are not shown to be worse",
            "leave": "Training helps, but is not shown to be better than leaving the model as it is",
            "same": "Training made no measurable difference",
            "worse": "Training made it worse",
            "too few": f"{self.over.documents} documents are too few for a verdict on training",
        }[self.kind]
        return (
            f"{words}: after {self.steps:,} steps, at {length}, better than {self.start} without them by {self.over} "
            f"nats per token, than {crop} by {one.gain} and than the tuned weights cropped by {self.own} "
            f"({self.over.documents} documents); {besides(one)}."
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "start": self.start,
            "steps": self.steps,
            "seconds": self.seconds,
            "texts": self.texts,
            "alike": self.alike,
            "digest": self.digest,
            "judged": self.judged.to_dict(),
            "over": self.over.to_dict(),
            "own": self.own.to_dict(),
            "kind": self.kind,
            "sentence": self.sentence,
            "not_measured": self.not_measured,
        }


def decide(tuned: Judged, untuned: Judged, own: Sequence[float], left: Judged | None = None) -> tuple[Kind, Interval]:
    """The verdict, and by how much it is better than before training. own: by how much the tuned weights gain over
    themselves cropped, one number a document. left: the model as it is, where that must be beaten too."""
    differences = between(tuned, untuned)
    over = paired(differences)
    if over.documents < FEWEST:
        return "too few", over
    compared = {"untuned": differences, "crop": tuned.gains, "own crop": own}
    if left is not None:
        compared["left"] = between(tuned, left)
    apart = holm({name: p_value(each) for name, each in compared.items()})
    better = {name: apart[name] and sum(each) > 0 for name, each in compared.items()}
    if not apart["untuned"]:
        return "same", over
    if over.mean < 0:
        return "worse", over
    if not better["crop"]:
        return "crop better" if apart["crop"] else "crop", over
    if not better["own crop"]:
        return "own crop", over
    return "take" if better.get("left", True) else "leave", over


def against(tuned: Judged, untuned: Judged) -> Tail:
    """The tail of the tuned weights with the crop of the model before."""
    far = [
        None if one is None or other is None else (other[0], one[1])
        for one, other in zip(tuned.tail.far, untuned.tail.far, strict=True)
    ]
    return replace(tuned.tail, crop=untuned.tail.crop, far=far)
