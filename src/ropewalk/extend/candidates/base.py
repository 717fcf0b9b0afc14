"""What a candidate is: a name, what it does to RoPE's frequencies or to the text, and how strongly.

A method that engines have keys for is that scaling. Every other one is a divisor for each pair and one gain, served as
LongRoPE with equal lists: equal, because a list that changes at the trained length does not fit keys that are cached.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from ropewalk.scaling import LongRoPE, Scaling, ladder

Text = Literal["whole", "cropped", "sinks"]

SINKS = 4
"""First tokens that a window with sinks keeps (arXiv 2309.17453)."""
SEARCHED = "searched"
"""The name of what a search found: of two that are as good, a formula is the simpler one."""
ON_SCORES = "its own scaling has a gain on attention scores, which a list of divisors cannot keep"
STILL = 1e9
"""A divisor that stops a pair: within a million positions it turns by less than float32 tells from 0."""


@dataclass(frozen=True)
class Rope:
    """What candidates are made from: the rotation of a checkpoint, its trained length and the wanted one."""

    base: float
    width: int
    trained: int
    to: int
    scaling: Scaling | None = None
    """The checkpoint's own."""
    extended: int | None = None
    """The length that its config states, by its own scaling or without one."""

    @property
    def reads(self) -> int:
        """Tokens that the checkpoint is for as it is, and so those that a crop may leave, whatever length it is taken
        to be trained for."""
        return max(self.trained, self.extended or 0)

    @property
    def own(self) -> bool:
        """Whether the wanted length is one that the checkpoint is for as it is."""
        return self.to <= self.reads

    @property
    def ratio(self) -> float:
        return max(1.0, self.to / self.trained)

    @cached_property
    def plain(self) -> tuple[float, ...]:
        """Frequencies without any scaling, fastest first."""
        return tuple(map(float, ladder(self.base, self.width)))

    def divisors(self, scaling: Scaling | None) -> tuple[float, ...]:
        """What a scaling divides each frequency by; None: the checkpoint's own."""
        under = self.scaling if scaling is None else scaling
        if under is None:
            return (1.0,) * len(self.plain)
        new = under.for_length(self.to).frequencies(self.base, self.width)
        return tuple(before / float(after) for before, after in zip(self.plain, new, strict=True))

    def turns(self, trained: int | None = None) -> tuple[float, ...]:
        """How often each pair turns within the trained length."""
        return tuple((trained or self.trained) * omega / (2 * math.pi) for omega in self.plain)

    def ends(self, trained: int | None = None, fast: float = 32.0, slow: float = 1.0) -> tuple[int, int]:
        """The first and the last pair of YaRN's ramp: those of `fast` and `slow` turns, rounded outwards."""

        def index(turns: float) -> float:
            return self.width * math.log((trained or self.trained) / (turns * 2 * math.pi)) / (2 * math.log(self.base))

        first, last = max(math.floor(index(fast)), 0), min(math.ceil(index(slow)), self.width - 1)
        return first, max(first, last)


@dataclass(frozen=True)
class Candidate:
    name: str
    about: str
    """One line: what it does, and where it is from."""
    scaling: Scaling | None = None
    """None: the checkpoint's own."""
    text: Text = "whole"
    factor: float = 1.0
    """The largest number that a frequency is divided by: of two that are as good, the smaller one is taken."""
    gain: float = 1.0
    """On cos and sin."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "about": self.about,
            "text": self.text,
            "factor": self.factor,
            "gain": self.gain,
            "scaling": None if self.scaling is None else self.scaling.model_dump(mode="json"),
        }


@dataclass(frozen=True)
class Missing:
    """A candidate that this rotation does not have."""

    name: str
    why: str


def scaled(name: str, about: str, scaling: Scaling, rope: Rope) -> Candidate:
    return Candidate(name, about, scaling, factor=max(rope.divisors(scaling)), gain=scaling.rotary_gain)


def listed(name: str, about: str, divisors: Sequence[float], gain: float, rope: Rope) -> Candidate:
    """A divisor for each pair."""
    each = tuple(float(divisor) for divisor in divisors)
    scaling = LongRoPE(short=each, long=each, trained=rope.trained, factor=rope.ratio, attention_factor=gain)
    return Candidate(name, about, scaling, factor=max(each), gain=gain)


def no_ramp(trained: int, base: float) -> str:
    return f"YaRN as shipped has no ramp for {trained:,} trained tokens and a base of {base:.3g}"


def by_reason(not_tried: Mapping[str, str]) -> dict[str, list[str]]:
    """The names of candidates that are not tried, under what they have in common."""
    found: dict[str, list[str]] = {}
    for name, why in not_tried.items():
        found.setdefault(why, []).append(name)
    return found


def usual_gain(factor: float) -> float:
    """YaRN's, which was fitted on Llama (arXiv 2309.00071, equation 22)."""
    return 0.1 * math.log(max(factor, 1.0)) + 1.0
