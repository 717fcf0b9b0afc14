"""What a check finds: the largest difference, where the bound is first left, and how to see it again."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


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
    ) -> Difference:
        """The largest |got - want| / scale. `positions` belong to dimension `dim`, or are of the tensors' own shape."""
        if got.shape != want.shape:
            raise ValueError(f"{name}: the answer has shape {tuple(got.shape)}, {tuple(want.shape)} was expected")
        apart = (got.detach().double() - want.detach().double()).abs() / scale
        # Two infinities of one sign (a masked score) are equal; anything else that is not a number is not.
        apart = torch.where(got.detach().double() == want.detach().double(), 0.0, apart).nan_to_num(math.inf)
        return self.measure(name, apart, bound, positions, dim=dim, why=why, reproduce=reproduce)

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
    ) -> Difference:
        """The same for errors that the check has worked out itself."""
        errors = torch.as_tensor(errors, dtype=torch.float64)
        found = Difference(name=name, measured=0.0, bound=bound, why=why, reproduce=reproduce)
        if errors.numel():
            found.measured = float(errors.max())
        if positions is not None and errors.numel():
            where = torch.as_tensor(positions, dtype=torch.int64)
            if where.shape != errors.shape:
                where = where.flatten()
                errors = errors.movedim(dim, 0).reshape(len(where), -1).amax(-1)
            found.at = int(where.flatten()[errors.flatten().argmax()])
            if bound is not None and not found.holds:
                found.first_position = int(where[errors > bound].min())
        self.compared.append(found)
        return found

    def require(self, name: str, holds: bool, why: str, reproduce: str | None = None) -> None:
        """Something that is so or is not."""
        self.measure(name, float(not holds), 0.0, why=why, reproduce=reproduce)

    def note(self, text: str) -> None:
        self.notes += [] if text in self.notes else [text]

    @property
    def worst(self) -> Difference | None:
        failed = [found for found in self.compared if not found.holds]
        # Of several that fail the first is reported: checks go from the plain to the special.
        if failed:
            return failed[0]
        return max(self.compared, key=lambda found: found.ratio, default=None)


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of one requirement."""

    id: str
    title: str
    status: str
    """passed | failed | not applicable | expected (failed, as the library's list says)"""
    measured: float | None = None
    bound: float | None = None
    unit: str = ""
    first_position: int | None = None
    at: int | None = None
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
        for key in ("measured", "bound"):
            if data[key] is not None and not math.isfinite(data[key]):
                data[key] = None if math.isnan(data[key]) else "infinite"
        return data
