"""What a check finds: the largest difference, where the bound is first left, and how to see it again."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

LENGTH = 131_072
"""Taken for the length of a target that declares none, where results say how large an error is within it."""

NARROWER = 2.0**-29
"""float64's rounding over float32's."""


class NotApplicable(Exception):
    """Raised by a check that a target cannot take, with the reason. What was compared before it counts all the same."""


@dataclass(kw_only=True)
class Difference:
    """One comparison."""

    name: str
    measured: float
    bound: float | None
    first_position: int | None = None
    at: int | None = None
    """The position of the largest difference."""
    why: str | None = None
    reproduce: str | None = None
    unit: str | None = None
    """Where it is not the requirement's."""
    float32: bool = False
    """Past the bound, and within what float32 products of positions cost."""
    within: float | None = None
    """The largest difference at positions that the target declares, or below 131,072 if it declares none."""

    @property
    def holds(self) -> bool:
        return self.bound is None or self.measured <= self.bound

    @property
    def ratio(self) -> float:
        """How many times the bound; what the worst comparison is chosen by."""
        if self.bound is None:
            return 0.0
        if not math.isfinite(self.measured):
            return math.inf
        return self.measured / self.bound if self.bound > 0 else math.inf if self.measured > 0 else 0.0


@dataclass
class Findings:
    """Handed to a check, which compares through it. `bounds` are the requirement's own, or what the target declared."""

    id: str
    bounds: tuple[float, ...] = ()
    seed: int = 0
    angles: str | None = None
    """The precision that the target claims: float32, float64, exact, or none."""
    length: int = LENGTH
    """Positions below it are the target's own."""
    compared: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def bound(self) -> float:
        return self.bounds[0]

    def generator(self, more: int = 0) -> torch.Generator:
        """Random numbers of this check alone, the same at every run with one seed."""
        return torch.Generator().manual_seed(zlib.crc32(self.id.encode()) + 1000 * self.seed + more)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32, more: int = 0) -> Tensor:
        return torch.randn(*shape, generator=self.generator(more), dtype=torch.float64).to(dtype)

    def compare(
        self,
        name: str,
        got: Tensor,
        want: Tensor,
        bound: float | None,
        positions: Tensor | Sequence[int] | None = None,
        *,
        dim: int = 1,
        scale: float | Tensor = 1.0,
        why: str | None = None,
        reproduce: str | None = None,
        float32: Tensor | float = 0.0,
    ) -> Difference:
        """The largest |got - want| / scale. `positions` belong to dimension `dim`, or are of the tensors' own shape."""
        if got.shape != want.shape:
            raise ValueError(f"{name}: the answer has shape {tuple(got.shape)}, {tuple(want.shape)} was expected")
        apart = (got.detach().double() - want.detach().double()).abs() / scale
        # Two infinities of one sign (a masked score) are equal; anything else that is not a number is not.
        apart = torch.where(got.detach().double() == want.detach().double(), 0.0, apart).nan_to_num(math.inf)
        return self.measure(name, apart, bound, positions, dim=dim, why=why, reproduce=reproduce, float32=float32)

    def measure(
        self,
        name: str,
        errors: Tensor | float,
        bound: float | None,
        positions: Tensor | Sequence[int] | None = None,
        *,
        dim: int = 1,
        why: str | None = None,
        reproduce: str | None = None,
        float32: Tensor | float = 0.0,
    ) -> Difference:
        """The same for errors that the check has worked out itself. `float32`: what float32 products of positions may
        cost here, of the errors' shape or broadcast to it; how it counts depends on what the target claims."""
        errors = torch.as_tensor(errors, dtype=torch.float64)
        found = Difference(name=name, measured=0.0, bound=bound, why=why, reproduce=reproduce)
        if not errors.numel():
            self.compared.append(found)
            return found
        single = torch.as_tensor(float32, dtype=torch.float64).expand_as(errors)
        allowed = torch.full_like(errors, math.inf if bound is None else bound)
        share = {"float32": 1.0, "float64": NARROWER}.get(self.angles or "", 0.0)
        allowed = torch.maximum(allowed, single * share)
        # Without a claim, what float32 explains is told as such, and what it does not explain is told before it.
        judged = torch.maximum(allowed, single) if self.angles is None else allowed
        past, beyond = errors > allowed, errors > judged
        found.float32 = bool(past.any()) and not bool(beyond.any())
        past = past if found.float32 else beyond
        by = errors if bound is None or not bool(single.any()) or found.float32 else errors / judged.clamp(min=1e-300)
        worst = int(by.flatten().argmax())
        found.measured = float(errors.flatten()[worst])
        found.bound = None if bound is None else float(allowed.flatten()[worst])
        if positions is not None:
            where = torch.as_tensor(positions, dtype=torch.int64)
            if where.shape != errors.shape:
                shape = [1] * errors.ndim
                shape[dim % errors.ndim if errors.ndim else 0] = where.numel()
                where = where.flatten().view(shape).expand_as(errors)
            found.at = int(where.flatten()[worst])
            if bool(past.any()) and bound is not None:
                found.first_position = int(where[past].min())
            near = where < self.length
            if bool(near.any()) and not bool(near.all()):
                found.within = float(errors[near].max())
        self.compared.append(found)
        return found

    def require(self, name: str, holds: bool, why: str, reproduce: str | None = None) -> None:
        """Something that is so or is not."""
        self.measure(name, float(not holds), 0.0, why=why, reproduce=reproduce)

    def note(self, text: str) -> None:
        self.notes += [] if text in self.notes else [text]

    @property
    def worst(self) -> Difference | None:
        past = [found for found in self.compared if not found.holds]
        # Of several that fail the first is reported: checks go from the plain to the special.
        failed = [found for found in past if not found.float32] or past
        if failed:
            return failed[0]
        return max(self.compared, key=lambda found: found.ratio, default=None)


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of one requirement."""

    id: str
    title: str
    status: str
    """passed | float32 (past the bound, within float32's own error) | failed | not applicable | expected (failed, as
    the library's list says)"""
    measured: float | None = None
    bound: float | None = None
    unit: str = ""
    first_position: int | None = None
    at: int | None = None
    within: float | None = None
    """The largest difference within the target's own length, where another one is larger."""
    what: str | None = None
    """Which comparison of the check."""
    why: str | None = None
    reproduction: str | None = None
    page: str = ""
    seconds: float = 0.0
    declared: bool = False
    """The bound is the target's own."""
    fixed: bool = False
    """Held, though it is on the library's list of expected failures."""
    issue: str | None = None
    compared: tuple[Difference, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        data = {key: value for key, value in vars(self).items() if key != "compared"}
        data["seconds"] = round(self.seconds, 3)
        for key in ("measured", "bound", "within"):
            if data[key] is not None and not math.isfinite(data[key]):
                data[key] = None if math.isnan(data[key]) else "infinite"
        return data
