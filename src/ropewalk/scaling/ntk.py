"""NTK-aware scaling: a larger base, so that the fastest frequency stays and the slowest is divided by the factor.

    b' = b * s ** (D / (D - 2)),   omega'_i = omega_i * s ** (-2i / (D - 2))          arXiv 2309.00071, section 3.1

transformers has no rope_type for it: one writes b' as `rope_theta`. vLLM's is `dynamic` with `alpha`; what vLLM calls
"ntk" is another function, omega_i * s ** (-2(i + 1) / D), which moves the fastest frequency too. The paper warns that s
must be larger than the wanted ratio of lengths.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Literal

from ropewalk.scaling.base import Factor, Scaling, periods32
from ropewalk.scaling.exact import LARGEST_BASE, check_base, check_width, exact, powers


class NTK(Scaling):
    """Raises RoPE's base, so that the fastest frequency stays and the slowest is divided by `factor`."""

    kind: Literal["ntk"] = "ntk"
    factor: Factor
    """s, what the slowest frequency is divided by."""

    def scaled_base(self, base: float, width: int) -> Decimal:
        """The base of plain RoPE that has the same frequencies."""
        check_base(base)
        check_width(width, least=4)
        with exact():
            return Decimal(base) * Decimal(self.factor) ** (Decimal(width) / (width - 2))

    def frequencies(self, base: float, width: int) -> tuple[Decimal, ...]:
        return powers(self.scaled_base(base, width), width)

    def frequencies32(self, base: float, width: int) -> tuple[float, ...]:
        """What transformers gets from the `rope_theta` of `to_hf`."""
        return tuple((1.0 / periods32(float(self.scaled_base(base, width)), width)).tolist())

    def to_hf(self, base: float, width: int | None = None) -> dict[str, Any]:
        """Plain RoPE with b' for `rope_theta`, which depends on the width; it reads back as no scaling."""
        if width is None:
            raise ValueError(
                "ntk is written as a larger rope_theta, which depends on the rotary width: to_hf(base, width=128)"
            )
        theta = float(self.scaled_base(base, width))
        if theta > LARGEST_BASE:
            raise ValueError(
                f"ntk x{self.factor:g} on base {base:g} needs rope_theta {theta:g}, past 1e12; lower factor"
            )
        return {"rope_type": "default", "rope_theta": theta}

    def __str__(self) -> str:
        return f"ntk x{self.factor:g}"
