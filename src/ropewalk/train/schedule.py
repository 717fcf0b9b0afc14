"""How the learning rate goes, as a share of its peak. A function of the step alone, so a resumed run needs no state.

    cosine         up in `warmup` steps, down along half a cosine to `floor`                     arXiv:1608.03983
    wsd            up, level, and down to `floor` in the last `decay` of all steps               arXiv:2404.06395
    inverse-sqrt   min(step / warmup, sqrt(warmup / step))                                       arXiv:1706.03762, 5.3
    constant       up, then level

Steps are counted from 1: the first update is not wasted on a rate of 0.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from ropewalk.settings import Settings

Share = Annotated[float, Field(ge=0, le=1)]
Steps = Annotated[int, Field(ge=0)]


class Schedule(Settings):
    warmup: Steps = 0
    """Steps of a straight rise from 0."""

    def rising(self, step: int) -> float:
        return min(1.0, step / self.warmup) if self.warmup else 1.0

    def share(self, step: int, steps: int) -> float:
        raise NotImplementedError


class Cosine(Schedule):
    kind: Literal["cosine"] = "cosine"
    warmup: Steps = 100
    floor: Share = 0.1
    """Share of the peak it ends at."""

    def share(self, step: int, steps: int) -> float:
        if step <= self.warmup:
            return self.rising(step)
        gone = min(1.0, (step - self.warmup) / max(1, steps - self.warmup))
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * gone)) / 2


class WarmupStableDecay(Schedule):
    kind: Literal["wsd"] = "wsd"
    warmup: Steps = 100
    decay: Share = 0.2
    """Share of all steps in which it goes down, at the end."""
    floor: Share = 0.0

    def share(self, step: int, steps: int) -> float:
        down = round(self.decay * steps)
        # One part more than there are steps: the last is not wasted on the floor, which may be a rate of 0.
        left = min(1.0, (steps - step + 1) / (down + 1)) if down else 1.0
        return min(self.rising(step), self.floor + (1 - self.floor) * max(0.0, left))


class InverseSqrt(Schedule):
    kind: Literal["inverse-sqrt"] = "inverse-sqrt"
    warmup: Annotated[int, Field(gt=0)] = 4000

    def share(self, step: int, steps: int) -> float:
        return min(step / self.warmup, math.sqrt(self.warmup / step))


class Constant(Schedule):
    kind: Literal["constant"] = "constant"

    def share(self, step: int, steps: int) -> float:
        return self.rising(step)


AnySchedule = Annotated[Cosine | WarmupStableDecay | InverseSqrt | Constant, Field(discriminator="kind")]
