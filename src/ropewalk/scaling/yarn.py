"""YaRN: frequencies that turn often within the trained length are kept, slow ones divided, a ramp between; and a gain.

    omega'_i = kept_i omega_i + (1 - kept_i) omega_i / s,   r_i = L omega_i / 2 pi                arXiv 2309.00071
    ramp paper  kept_i = clamp((r_i - slow) / (fast - slow), 0, 1)                                linear in rotations
    ramp code   kept_i = 1 - clamp((i - a) / (z - a), 0, 1)                                       linear in the index
                a = max(floor d(fast), 0),  z = min(ceil d(slow), D - 1),  d(r) = D ln(L / 2 pi r) / (2 ln b)
    gain        g(s, m) = 0.1 m ln s + 1  (1 where s <= 1)

The authors published one ramp and shipped the other. Checkpoints follow the code; the paper's frequencies differ by up
to 3.0 times for Llama 2 x16 and 3.7 for gpt-oss. (Equation 17 prints b' in r_i; it is b.) Where the rest differs:
- z is clamped to D - 1, though the last index is D/2 - 1, by the authors, transformers, vLLM, llama.cpp, Megatron-LM,
  torchtitan and here; to D/2 - 1 by OLMo-core and LitGPT. It matters where L > 2 pi b.
- truncate=False (gpt-oss) leaves out floor and ceil. llama.cpp cannot express it, vLLM's deepseek_yarn drops it, and
  transformers ignores it in configs nested by layer type.
- gain on cos and sin, dialect hf: `attention_factor` replaces it; else both mscale keys give g(s, mscale) /
  g(s, mscale_all_dim); else g(s, 1). deepseek: always that ratio, with defaults 1 and 0 (`attention_factor`, which
  DeepSeek's own code lacks, replaces it as in transformers' port). paper: g(s, 1).
- gain on scores: g(s, mscale_all_dim) ** 2 in deepseek, as MLA models apply it; else 1.
- vLLM before vllm#56446 ignored `attention_factor` and both mscale keys, but multiplied by `attn_factor`; llama.cpp
  ignores `attention_factor` and takes mscale for 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ropewalk.scaling.base import Factor, Gain, Length, Scaling, Turns, blend, periods32
from ropewalk.scaling.exact import PI, check_base, check_width, exact, ladder

Weight = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]


class YaRN(Scaling):
    """Divides slow frequencies by `factor`, keeps fast ones, blends those between, and adds a gain on the scores.

    YaRN(factor=4, trained=8192) takes a model trained at 8,192 tokens to 32,768. beta_fast, beta_slow: turns within the
    trained length above which frequencies are kept and below which they are divided.
    """

    kind: Literal["yarn"] = "yarn"
    factor: Factor
    """s, wanted length over trained length."""
    trained: Length
    """L, the length the checkpoint was trained at."""
    beta_fast: Turns = 32.0
    """Frequencies that turn more often than this within the trained length are kept."""
    beta_slow: Turns = 1.0
    """Frequencies that turn less often than this within the trained length are divided in full."""
    ramp: Literal["code", "paper"] = "code"
    """What lies between: linear in the index, as shipped, or linear in rotations, as published."""
    truncate: bool = True
    """Round the ends of the code ramp outwards to whole indices."""
    dialect: Literal["hf", "deepseek", "paper"] = "hf"
    """Whose rule gives the gains."""
    attention_factor: Gain | None = None
    """Replaces the gain on cos and sin."""
    mscale: Weight | None = None
    """m of the gain's numerator."""
    mscale_all_dim: Weight | None = None
    """m of the gain's denominator, and in the deepseek dialect of the gain on scores."""

    hf_type: ClassVar[str | None] = "yarn"
    hf_keys: ClassVar[Mapping[str, str]] = {
        "factor": "factor",
        "trained": "original_max_position_embeddings",
        "beta_fast": "beta_fast",
        "beta_slow": "beta_slow",
        "truncate": "truncate",
        "attention_factor": "attention_factor",
        "mscale": "mscale",
        "mscale_all_dim": "mscale_all_dim",
    }

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        # Equal ones (Kimi K2) still have a ramp in code, between the indices below and above; the paper's has none.
        if self.beta_slow > self.beta_fast or (self.ramp == "paper" and self.beta_slow == self.beta_fast):
            raise ValueError(
                f"beta_slow {self.beta_slow:g} must be below beta_fast {self.beta_fast:g}; swap them, or leave 1 and 32"
            )
        if self.ramp == "paper" and not self.truncate:
            raise ValueError("truncate=False has no meaning on the paper ramp, which has no indices; leave it out")
        if self.dialect == "paper":
            for name in ("attention_factor", "mscale", "mscale_all_dim"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} is not in the paper; leave it out, or use dialect='hf' or 'deepseek'")
        return self

    @property
    def rotary_gain(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        if self.dialect == "deepseek":
            above, below = (1.0 if self.mscale is None else self.mscale), self.mscale_all_dim or 0.0
            return _gain(self.factor, above) / _gain(self.factor, below)
        if self.mscale and self.mscale_all_dim:
            return _gain(self.factor, self.mscale) / _gain(self.factor, self.mscale_all_dim)
        return _gain(self.factor, 1.0)

    @property
    def logit_gain(self) -> float:
        return _gain(self.factor, self.mscale_all_dim or 0.0) ** 2 if self.dialect == "deepseek" else 1.0

    def frequencies(self, base: float, width: int) -> tuple[Decimal, ...]:
        omegas = ladder(base, width)
        with exact():
            kept = self._kept_paper(omegas) if self.ramp == "paper" else self._kept_code(base, width)
            return tuple(blend(omega, Decimal(self.factor), share) for omega, share in zip(omegas, kept, strict=True))

    def _kept_paper(self, omegas: tuple[Decimal, ...]) -> list[Decimal]:
        slow, fast = Decimal(self.beta_slow), Decimal(self.beta_fast)
        return [(self.trained * omega / (2 * PI) - slow) / (fast - slow) for omega in omegas]

    def _kept_code(self, base: float, width: int) -> list[Decimal]:
        def index(rotations: float) -> Decimal:
            return width * (self.trained / (Decimal(rotations) * 2 * PI)).ln() / (2 * Decimal(base).ln())

        start, end = index(self.beta_fast), index(self.beta_slow)
        if self.truncate:
            start, end = start.to_integral_value(ROUND_FLOOR), end.to_integral_value(ROUND_CEILING)
        start, end = max(start, Decimal(0)), min(end, Decimal(width - 1))
        self._check_ramp(start, end, base)
        length = end - start or Decimal("0.001")
        return [1 - (i - start) / length for i in range(width // 2)]

    def frequencies32(self, base: float, width: int) -> tuple[float, ...]:
        import torch

        check_base(base)
        check_width(width)
        if self.ramp == "paper":
            raise ValueError("transformers ships only the code ramp, so the paper ramp has no float32 form; use exact")

        def index(rotations: float) -> float:
            return (width * math.log(self.trained / (rotations * 2 * math.pi))) / (2 * math.log(base))

        start, end = index(self.beta_fast), index(self.beta_slow)
        if self.truncate:
            start, end = math.floor(start), math.ceil(end)
        start, end = max(start, 0), min(end, width - 1)
        self._check_ramp(start, end, base)
        if start == end:
            end += 0.001
        places = torch.arange(width // 2, dtype=torch.float32, device="cpu")
        kept = 1 - torch.clamp((places - start) / (end - start), 0, 1)
        periods = periods32(base, width)
        return tuple((1.0 / (self.factor * periods) * (1 - kept) + 1.0 / periods * kept).tolist())

    def _check_ramp(self, start: float | Decimal, end: float | Decimal, base: float) -> None:
        # Shipped code goes on and leaves every frequency as it is (L too short) or divides every one (L too long).
        if start > end:
            raise ValueError(
                f"yarn's code ramp ends before it starts (index {start:.4g} to {end:.4g}) for trained={self.trained:,} "
                f"and base {base:g}: shipped code then scales nothing, or everything; check both, or use ramp='paper'"
            )

    def to_hf(self, base: float, width: int | None = None) -> dict[str, Any]:
        """Gains that transformers' rule would not give from the same keys are written as `attention_factor`. The gain
        on scores has no key of its own: MLA models take it from `mscale_all_dim`, others do not apply it."""
        if self.ramp == "paper":
            raise ValueError(
                "transformers has no key for the paper ramp; write YaRN with ramp='code', or llama3 instead"
            )
        parameters = super().to_hf(base)
        if self.dialect == "deepseek" and self.mscale_all_dim and self.mscale is None:
            parameters["mscale"] = 1.0
        if type(self).from_hf(parameters).rotary_gain != self.rotary_gain:
            parameters["attention_factor"] = self.rotary_gain
        return parameters

    @classmethod
    def inherit(cls, parameters: Mapping[str, Any], longest: int | None) -> dict[str, Any]:
        trained = parameters.get("original_max_position_embeddings") or longest
        # Only an explicit null asks for the ratio of the lengths; a factor left out is a mistake.
        asked = "factor" in parameters and longest is not None and isinstance(trained, int | float) and trained > 0
        return {"trained": longest, "factor": longest / trained if asked else None}

    def __str__(self) -> str:
        usual = {"beta_fast": 32, "beta_slow": 1, "ramp": "code", "truncate": True, "dialect": "hf"}
        notes = [f", {name} {value}" for name, value in self if name in usual and value != usual[name]]
        return f"yarn x{self.factor:g} from {self.trained:,}{''.join(notes)}"


def _gain(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0
