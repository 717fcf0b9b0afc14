"""What can go wrong with a step, found on every rank before the weights are touched.

A loss or gradient that is not finite is a fault; a loss far above the last ones is a spike, measured against finite
losses of accepted steps only, so that one bad number cannot blind the measure. Loss and norm are those of the whole
step, the same bits on every rank, so all come to the same verdict. It is for a branch around the update: a gradient
multiplied by zero would still be NaN, and would still move the optimizer's averages.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from pydantic import Field
from torch import nn
from torch.distributed.tensor import DTensor

from ropewalk.distributed.ranks import Ranks
from ropewalk.settings import Settings
from ropewalk.system import tell

Verdict = Literal["good", "spike", "not finite"]
# Below this share of the mean a spread is noise of a loss that has settled, and no measure of a spike.
FLATTEST = 0.005


class FaultConfig(Settings):
    policy: Literal["stop", "skip", "rollback"] = "stop"
    """On a loss or gradient that is not finite: stop; skip the batch; or return to the last checkpoint and skip the
    batch. On a spike, stop only reports it."""
    spike: float | None = Field(default=6.0, gt=0)
    """Standard deviations above the mean of the window; null: never."""
    window: int = Field(default=128, ge=8)
    """Losses a spike is measured against."""
    limit: int = Field(default=10, ge=1)
    """Faults among as many steps as the window has, after which a run stops whatever the policy."""
    hang: float = Field(default=60.0, gt=0)
    """Seconds without a step, after which a run is taken to hang; ten times as many for the first, a measurement, a
    save."""


class Fault(FloatingPointError):
    """A step that went wrong, and a policy that says to stop."""


class Watch:
    def __init__(self, config: FaultConfig, ranks: Ranks) -> None:
        self.config, self.ranks = config, ranks
        self.losses: deque[float] = deque(maxlen=config.window)
        self.faulty: list[int] = []
        self.last: dict[str, Any] = {}
        """What the last fault was: step, what, loss, norm, parameters, samples."""

    def verdict(
        self,
        step: int,
        loss: float,
        norm: float,
        samples: Callable[[], Sequence[int]] = tuple,
        model: nn.Module | None = None,
    ) -> Verdict:
        """loss, norm: the same on all ranks. samples: those of this rank that may have done it, asked for only then.
        Raises Fault where the policy is to stop, or faults come too often."""
        finite = math.isfinite(loss) and math.isfinite(norm)
        verdict: Verdict = "not finite" if not finite else "spike" if self._is_spike(loss) else "good"
        if verdict == "good":
            self.losses.append(loss)
            return verdict
        self.last = self._tell(step, verdict, loss, norm, samples, model)
        said = spoken(self.last)
        if verdict == "spike" and self.config.policy == "stop":
            self._say(f"{said}; kept (faults.policy: stop)")
            self.losses.append(loss)
            return "good"
        self.faulty.append(step)
        often = sum(abs(step - each) < self.config.window for each in self.faulty)
        if self.config.policy == "stop":
            raise Fault(f"{said}. Nothing was updated; write train.faults.policy=skip or rollback to go on past it")
        if often > self.config.limit:
            raise Fault(
                f"{said}. It is fault {often} within {self.config.window} steps, {self.config.limit} are allowed"
            )
        self._say(f"{said}; {self.config.policy}")
        return verdict

    def state(self) -> dict[str, Any]:
        """For a checkpoint: a resumed run judges as this one would have."""
        return {"losses": list(self.losses), "faulty": self.faulty}

    def load(self, state: dict[str, Any]) -> None:
        """Faults are remembered over a rollback, losses go back with it."""
        self.losses = deque(state["losses"], maxlen=self.config.window)
        self.faulty = sorted({*self.faulty, *state["faulty"]})

    def _is_spike(self, loss: float) -> bool:
        if self.config.spike is None or len(self.losses) < self.config.window // 2:
            return False
        mean = math.fsum(self.losses) / len(self.losses)
        spread = math.sqrt(math.fsum((each - mean) ** 2 for each in self.losses) / len(self.losses))
        return loss - mean > self.config.spike * max(spread, FLATTEST * abs(mean))

    def _tell(
        self,
        step: int,
        what: str,
        loss: float,
        norm: float,
        samples: Callable[[], Sequence[int]],
        model: nn.Module | None,
    ) -> dict[str, Any]:
        """All ranks come here together: it is rare, so it may be slow."""
        mine = {
            "samples": list(samples()),
            "parameters": [] if model is None or what == "spike" else bad_gradients(model),
        }
        told = self.ranks.gather(mine)
        return {
            "step": step,
            "what": what,
            "loss": loss,
            "norm": norm,
            "samples": sorted({number for each in told for number in each["samples"]}),
            "parameters": {rank: each["parameters"] for rank, each in enumerate(told) if each["parameters"]},
        }

    def _say(self, text: str) -> None:
        if self.ranks.first:
            tell(text)


def bad_gradients(model: nn.Module) -> list[str]:
    """Parameters whose gradient is not finite in what this rank has of it, in the order of the model."""
    found = []
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            continue
        local = parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad
        if not bool(torch.isfinite(local).all()):
            found.append(name)
    return found


def spoken(fault: dict[str, Any]) -> str:
    """A fault in a sentence."""
    said = f"step {fault['step'] + 1}: {fault['what']}: loss {fault['loss']:.6g}, gradient norm {fault['norm']:.6g}"
    for rank, names in fault["parameters"].items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        said += f"; on rank {rank} the gradient of {names[0]}{more}"
    samples = fault["samples"]
    if samples:
        more = ", ..." if len(samples) > 16 else ""
        said += f"; samples {', '.join(map(str, samples[:16]))}{more}"
    return said
