"""LongRoPE: one searched divisor for each frequency, in two lists, for short texts and for long ones.

    omega'_i = omega_i / f_i,   f = long where l > L, else short,   gain sqrt(1 + ln s / ln L)       arXiv 2402.13753

The gain is the same for both lists. Where the world disagrees:
- the switch: transformers decides in every forward pass by the largest position, so keys cached before it do not fit
  those after it; vLLM decides at start by `max_model_len`, llama.cpp by the context size. Here: once, by `for_length`.
- s: `factor`, else max_position_embeddings / L in transformers; always the latter in vLLM, which ignores
  `attention_factor` and reads `short_mscale` and `long_mscale` instead.
- L: transformers prefers an `original_max_position_embeddings` at the top of the config to the one beside the lists.
- the paper also leaves the first few tokens unscaled; no engine does, nor does this.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ropewalk.scaling.base import Factor, Gain, Length, Limit, Positive, Scaling, periods32
from ropewalk.scaling.exact import check_base, check_width, exact, ladder

Divisors = Annotated[tuple[Positive, ...], Field(min_length=1)]


def longrope_gain(ratio: float, trained: int) -> float:
    """On cos and sin, of a length `ratio` times the trained one."""
    return 1.0 if ratio <= 1 else math.sqrt(1 + math.log(ratio) / math.log(trained))


class LongRoPE(Scaling):
    """Divides each frequency by a number of its own, of the list `short` up to `trained` tokens, of `long` past that.

    The list is chosen once, by the limit that positions declare or by `for_length(limit)`.
    """

    kind: Literal["longrope"] = "longrope"
    short: Divisors
    """What each frequency is divided by up to the trained length; half the rotary width of them."""
    long: Divisors
    """The same past the trained length."""
    trained: Length
    """L, the length the checkpoint was trained at, where the lists switch."""
    factor: Factor | None = None
    """s, extended length over trained length; it changes the gain alone."""
    extended: Length | None = None
    """The extended length, to give s as a ratio; give it or `factor`."""
    attention_factor: Gain | None = None
    """Replaces the gain."""
    length: Limit | None = None
    """l, one past the largest position that will be used; None until `for_length`."""

    length_dependent: ClassVar[bool] = True
    hf_type: ClassVar[str | None] = "longrope"
    hf_keys: ClassVar[Mapping[str, str]] = {
        "short": "short_factor",
        "long": "long_factor",
        "trained": "original_max_position_embeddings",
        "factor": "factor",
        "attention_factor": "attention_factor",
    }

    @property
    def switches(self) -> bool:
        """Whether the two lists differ: with equal ones it does not matter when an engine chooses."""
        return self.short != self.long

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.short) != len(self.long):
            raise ValueError(
                f"short has {len(self.short)} divisors and long has {len(self.long)}; they must be as many"
            )
        if self.factor is not None and self.extended is not None:
            raise ValueError(
                f"factor {self.factor:g} and extended {self.extended:,} say the same thing; give one of them"
            )
        if self.extended is not None and not 1 <= self.extended / self.trained <= 4096:
            raise ValueError(f"extended {self.extended:,} is not 1 to 4096 times trained {self.trained:,}; check both")
        if self.factor is None and self.extended is None and self.attention_factor is None:
            raise ValueError("the gain needs factor, extended (max_position_embeddings) or attention_factor; give one")
        return self

    @property
    def ratio(self) -> float | None:
        """s, given or from the lengths."""
        if self.factor is not None or self.extended is None:
            return self.factor
        return self.extended / self.trained

    @property
    def rotary_gain(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        return longrope_gain(self.ratio or 1.0, self.trained)

    def for_length(self, limit: int) -> Self:
        return type(self).model_validate({**dict(self), "length": limit})

    def frequencies(self, base: float, width: int) -> tuple[Decimal, ...]:
        divisors = self._divisors(width)
        omegas = ladder(base, width)
        with exact():
            return tuple(omega / Decimal(divisor) for omega, divisor in zip(omegas, divisors, strict=True))

    def frequencies32(self, base: float, width: int) -> tuple[float, ...]:
        import torch

        check_base(base)
        divisors = torch.tensor(self._divisors(width), dtype=torch.float32, device="cpu")
        return tuple((1.0 / (divisors * periods32(base, width))).tolist())

    def to_hf(self, base: float, width: int | None = None) -> dict[str, Any]:
        parameters = super().to_hf(base)
        return parameters if self.ratio is None else {**parameters, "factor": self.ratio}

    @classmethod
    def inherit(cls, parameters: Mapping[str, Any], longest: int | None) -> dict[str, Any]:
        gain_given = any(parameters.get(key) is not None for key in ("factor", "attention_factor"))
        return {"trained": longest, "extended": None if gain_given else longest}

    def _divisors(self, width: int) -> tuple[float, ...]:
        check_width(width)
        if self.length is None:
            raise ValueError(f"{self} has no frequencies before the length is known; call for_length(limit) first")
        if len(self.short) != width // 2:
            raise ValueError(
                f"longrope has {len(self.short)} divisors, a rotary width of {width} needs {width // 2}; "
                f"give lists of {width // 2} or rotate {2 * len(self.short)} features"
            )
        return self.long if self.length > self.trained else self.short

    def __str__(self) -> str:
        ratio = "" if self.ratio is None else f" x{self.ratio:g}"
        name = "" if self.length is None else ", long list" if self.length > self.trained else ", short list"
        return f"longrope{ratio} from {self.trained:,}{name}"
