"""Proportional RoPE: only the fastest part of the whole head's frequencies turns; the rest is zero.

    omega'_i = b ** (-2i / D) / s  for i < int(p * D // 2),  else 0                   p-RoPE, arXiv 2410.06205; Gemma 4

D is the whole head, so this is not partial rotary, which takes the first p * D features and a ladder of its own with
p * D in the exponent, though both call p `partial_rotary_factor`. The still pairs are spread over the head by the half
layout. vLLM ignores s; llama.cpp bakes the frequencies into the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ropewalk.scaling.base import Factor, Scaling
from ropewalk.scaling.exact import check_base, check_width, exact, ladder


class Proportional(Scaling):
    """Turns only the fastest `fraction` of the head's frequencies, divided by `factor`; the others stand still."""

    kind: Literal["proportional"] = "proportional"
    fraction: Annotated[float, Field(gt=0, le=1)]
    """p, the share of the head's pairs that turn."""
    factor: Factor = 1.0
    """s, what those frequencies are divided by."""

    hf_type: ClassVar[str | None] = "proportional"
    hf_keys: ClassVar[Mapping[str, str]] = {"fraction": "partial_rotary_factor", "factor": "factor"}

    def frequencies(self, base: float, width: int) -> tuple[Decimal, ...]:
        omegas = ladder(base, width)
        turning = self._turning(width)
        with exact():
            moving = tuple(omega / Decimal(self.factor) for omega in omegas[:turning])
        return moving + (Decimal(0),) * (width // 2 - turning)

    def frequencies32(self, base: float, width: int) -> tuple[float, ...]:
        import torch

        check_base(base)
        check_width(width)
        turning = self._turning(width)
        # The tensor must be as short as transformers' own: a vectorised power may round its last elements differently.
        steps = torch.arange(0, 2 * turning, 2, dtype=torch.int64, device="cpu").to(torch.float32) / width
        return (*(1.0 / base**steps / self.factor).tolist(), *[0.0] * (width // 2 - turning))

    def _turning(self, width: int) -> int:
        turning = int(self.fraction * width // 2)
        if turning == 0:
            raise ValueError(
                f"fraction {self.fraction:g} of a head of {width} turns no pair; raise it to {2 / width:g} or more, "
                "or use the encoding `none`"
            )
        return turning

    def __str__(self) -> str:
        factor = "" if self.factor == 1 else f" x{self.factor:g}"
        return f"proportional {self.fraction:g}{factor}"
