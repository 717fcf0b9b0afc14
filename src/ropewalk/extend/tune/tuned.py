"""What training bought: the tuned weights against the same scaling untrained, and against cropping, on equal documents.

The crop is that of the model before training, so the two gains have one baseline. Where the verdict without training is
to leave the model as it is, that is a third comparison: what is trained then is not what won. Holm's correction is over
all of them. The documents that judge are not among those that are trained on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ropewalk.evaluate.statistics import FEWEST, Interval, holm, p_value, paired
from ropewalk.extend.judging import Judged, besides, between
from ropewalk.extend.tails import Tail

Kind = Literal["take", "crop", "crop better", "leave", "same", "worse", "too few"]
RATE = 2e-5
"""PoSE's (arXiv 2309.10400, section 4.1)."""


@dataclass(frozen=True)
class Tuning:
    """How long to train, in steps or in minutes, and how fast."""

    steps: int | None = None
    minutes: float | None = None
    rate: float = RATE


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
            "leave": "Training helps, but is not shown to be better than leaving the model as it is",
            "same": "Training made no measurable difference",
            "worse": "Training made it worse",
            "too few": f"{self.over.documents} documents are too few for a verdict on training",
        }[self.kind]
        return (
            f"{words}: after {self.steps:,} steps, at {length}, better than {self.start} without them by {self.over} "
            f"nats per token and than {crop} by {one.gain} ({self.over.documents} documents); {besides(one)}."
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
            "kind": self.kind,
            "sentence": self.sentence,
            "not_measured": self.not_measured,
        }


def decide(tuned: Judged, untuned: Judged, left: Judged | None = None) -> tuple[Kind, Interval]:
    """Holm over two comparisons, with the model before training and with cropping, or three. left: the model as it is,
    where that won."""
    differences = between(tuned, untuned)
    over = paired(differences)
    if over.documents < FEWEST:
        return "too few", over
    than_left = None if left is None else between(tuned, left)
    p_values = {"untuned": p_value(differences), "crop": p_value(tuned.gains)}
    apart = holm(p_values if than_left is None else {**p_values, "left": p_value(than_left)})
    if not apart["untuned"]:
        return "same", over
    if over.mean < 0:
        return "worse", over
    if not apart["crop"]:
        return "crop", over
    if tuned.gain.mean < 0:
        return "crop better", over
    if than_left is not None and not (apart["left"] and paired(than_left).mean > 0):
        return "leave", over
    return "take", over


def against(tuned: Judged, untuned: Judged) -> Tail:
    """The tail of the tuned weights with the crop of the model before."""
    far = [
        None if one is None or other is None else (other[0], one[1])
        for one, other in zip(tuned.tail.far, untuned.tail.far, strict=True)
    ]
    return replace(tuned.tail, crop=untuned.tail.crop, far=far)
