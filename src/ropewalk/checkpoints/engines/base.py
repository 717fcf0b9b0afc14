"""What an engine would compute from a checkpoint's positions: the form of every engine's answer, and what they share.

Each engine is one file with one function `read(resolved) -> Reading`, whose rule was read in that engine's sources and
whose version stands in the file. A rule starts from the resolved plan (what the checkpoint's keys mean) and says where
the engine does something else: a key it does not read, a formula of its own, a moment at which it decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ropewalk.checkpoints.engines.besides import FREQUENCIES, Besides
from ropewalk.scaling import YaRN

CLOSE = 1e-6
"""Frequencies and gains this near, relatively, are the same: engines compute them in float32 (2**-24 is 6e-8)."""


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    what: str
    """What the engine does, in a line."""
    why: str
    """What in its code or in the checkpoint's keys makes it so."""
    issue: str = ""
    """Where this is described in public."""
    about: str = FREQUENCIES
    """Which of the things that are compared it is about."""
    counts: bool = True
    """Whether a number that reaches the scores differs from the plan; else it is worth knowing and no more."""


@dataclass(frozen=True, kw_only=True)
class LayerReading:
    """The numbers for layers that are alike; a NoPE layer has none."""

    side: str
    numbers: tuple[int, ...]
    frequencies: tuple[float, ...]
    """For a text within the trained length."""
    stretched: tuple[float, ...]
    """For a text of the extended length; the same unless the engine switches."""
    rotary_gain: float = 1.0
    logit_gain: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Reading:
    engine: str
    version: str
    """What the rule was read from."""
    layers: tuple[LayerReading, ...] = ()
    switch: str = "static"
    """When the numbers change with the length, in words."""
    length: int | None = None
    """The longest text it serves by default."""
    ignored: tuple[str, ...] = ()
    """Keys of the checkpoint that this engine does not read and that would change a number."""
    notes: tuple[Disagreement, ...] = ()
    besides: Besides | None = None
    """Windows and the like; None where it has no say in them."""
    unknown: tuple[str, ...] = ()
    """What the checkpoint has and this engine's rule is not known for, so that it was not compared."""
    refusal: str | None = None
    """Why it does not load such a checkpoint at all."""

    @property
    def disagrees(self) -> bool:
        return any(note.counts for note in self.notes)


def yarn_of(scaling: YaRN, **changed: Any) -> YaRN:
    """A YaRN with some settings changed."""
    return YaRN.model_validate({**dict(scaling), **changed})


def gain(factor: float, weight: float) -> float:
    """YaRN's g(s, m)."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def close(one: float, other: float) -> bool:
    return abs(one - other) <= CLOSE * max(abs(one), abs(other))


def ratio(ours: tuple[float, ...], theirs: tuple[float, ...]) -> float:
    """The largest factor, either way, between frequencies of one pair; infinite where only one of them turns, or where
    there are not as many."""
    if len(ours) != len(theirs):
        return float("inf")
    most = 1.0
    for one, other in zip(ours, theirs, strict=True):
        if close(one, other):
            continue
        if not one or not other:
            return float("inf")
        most = max(most, one / other, other / one)
    return most
