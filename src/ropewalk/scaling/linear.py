"""Position interpolation: every position is squeezed into the trained range.

    omega'_i = omega_i / s                                                                   arXiv 2306.15595

The paper divides positions, transformers divides frequencies, vLLM divides positions and needs the factor to be a
float: the same up to rounding. llama.cpp takes 1/s as `--rope-freq-scale`.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import ClassVar, Literal

from ropewalk.scaling.base import Factor, Scaling, periods32
from ropewalk.scaling.exact import check_base, check_width, exact, ladder


class Linear(Scaling):
    """Divides every frequency by `factor`, which is to divide positions by it (position interpolation)."""

    kind: Literal["linear"] = "linear"
    factor: Factor
    """s, wanted length over trained length."""

    hf_type: ClassVar[str | None] = "linear"
    hf_keys: ClassVar[Mapping[str, str]] = {"factor": "factor"}

    def frequencies(self, base: float, width: int) -> tuple[Decimal, ...]:
        omegas = ladder(base, width)
        with exact():
            return tuple(omega / Decimal(self.factor) for omega in omegas)

    def frequencies32(self, base: float, width: int) -> tuple[float, ...]:
        check_base(base)
        check_width(width)
        return tuple((1.0 / periods32(base, width) / self.factor).tolist())

    def __str__(self) -> str:
        return f"linear x{self.factor:g}"
