"""Llama 3.1's scaling: slow frequencies are divided, fast ones kept, those between blended by rotations.

    r_i = L omega_i / 2 pi,   kept_i = clamp((r_i - low) / (high - low), 0, 1)
    omega'_i = kept_i omega_i + (1 - kept_i) omega_i / s

It is YaRN's published ramp (arXiv 2309.00071, section 3.2) with alpha = low and beta = high, and without the gain.
Meta's report on Llama 3 (2407.21783) does not give it; Meta's code does. Megatron-LM fixes L = 8192, low = 1, high = 4;
llama.cpp bakes the divisors into the tensor `rope_freqs`; transformers divides by zero where low = high.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from ropewalk.scaling.base import Factor, Length, Scaling, Turns, blend, periods32
from ropewalk.scaling.exact import PI, check_base, check_width, exact, ladder


class Llama3(Scaling):
    """Llama 3.1's: divides slow frequencies by `factor`, keeps fast ones, blends those between, without a gain."""

    kind: Literal["llama3"] = "llama3"
    factor: Factor
    """s, what slow frequencies are divided by."""
    trained: Length
    """L, the length the checkpoint was trained at."""
    low: Turns = 1.0
    """Frequencies that turn less often than this within the trained length are divided in full."""
    high: Turns = 4.0
    """Frequencies that turn more often than this within the trained length are kept."""

    hf_type: ClassVar[str | None] = "llama3"
    # Without its trained length transformers 5 takes the extended one in its place, which scales nothing: refused.
    hf_required: ClassVar[tuple[str, ...]] = (
        "factor",
        "original_max_position_embeddings",
        "low_freq_factor",
        "high_freq_factor",
    )
    hf_keys: ClassVar[Mapping[str, str]] = {
        "factor": "factor",
        "trained": "original_max_position_embeddings",
        "low": "low_freq_factor",
        "high": "high_freq_factor",
    }

    @model_validator(mode="after")
    def _low_below_high(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low {self.low:g} is above high {self.high:g}; swap them. Llama 3.1 has low=1, high=4")
        return self

    def frequencies(self, base: float, width: int) -> tuple[Decimal, ...]:
        omegas = ladder(base, width)
        with exact():
            factor, low, high = Decimal(self.factor), Decimal(self.low), Decimal(self.high)
            rotations = (self.trained * omega / (2 * PI) for omega in omegas)
            # Where both are one number (Llama 4 Scout) there is nothing between: a frequency is kept or divided.
            kept = (Decimal(int(r > low)) if low == high else (r - low) / (high - low) for r in rotations)
            return tuple(blend(o, factor, share) for o, share in zip(omegas, kept, strict=True))

    def frequencies32(self, base: float, width: int) -> tuple[float, ...]:
        import torch

        check_base(base)
        check_width(width)
        omega = 1.0 / periods32(base, width)
        wavelength = 2 * math.pi / omega
        kept = (self.trained / wavelength - self.low) / (self.high - self.low)
        between = (1 - kept) * omega / self.factor + kept * omega
        slow, fast = wavelength > self.trained / self.low, wavelength < self.trained / self.high
        return tuple(torch.where(slow, omega / self.factor, torch.where(fast, omega, between)).tolist())

    def __str__(self) -> str:
        ends = "" if (self.low, self.high) == (1, 4) else f", low {self.low:g}, high {self.high:g}"
        return f"llama3 x{self.factor:g} from {self.trained:,}{ends}"
