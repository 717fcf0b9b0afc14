"""Dynamic NTK: the larger base of NTK-aware scaling, with a factor that grows with the length.

    b' = b * (s * l / L - (s - 1)) ** (D / (D - 2))  where l > L,  else b             arXiv 2309.00071, section 3.3

The paper's rule max(1, l / L) is s = 1. Where the world disagrees:
- L is `max_position_embeddings` in transformers (not `original_...`), `max_trained_positions` in vLLM, which without it
  scales nothing. Tools that raise max_position_embeddings first move the threshold to the extended length.
- l is the longest sequence seen so far in transformers, so a result depends on earlier calls, and cached keys keep the
  base they were rotated under; vLLM fixes l at start. Here l is fixed once, by `for_length`. llama.cpp has no dynamic.
- past L transformers computes b' itself in float32, because there l is a tensor; `frequencies32` does what a model's
  forward pass does, and a call of the init function with an integer l differs in the last bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, ClassVar, Literal, Self

from ropewalk.scaling.base import Factor, Length, Limit, Scaling, periods32
from ropewalk.scaling.exact import check_base, check_width, exact, powers


class Dynamic(Scaling):
    """NTK's larger base with a factor that grows with the length; nothing changes up to `trained`.

    The length is fixed once, by the limit that positions declare or by `for_length(limit)`.
    """

    kind: Literal["dynamic"] = "dynamic"
    factor: Factor
    """s; 1 is the paper's rule."""
    trained: Length
    """L, the length up to which nothing changes."""
    length: Limit | None = None
    """l, one past the largest position that will be used; None until `for_length`."""

    length_dependent: ClassVar[bool] = True
    hf_type: ClassVar[str | None] = "dynamic"
    hf_keys: ClassVar[Mapping[str, str]] = {"factor": "factor"}

    @property
    def longest(self) -> int:
        return self.trained

    def for_length(self, limit: int) -> Self:
        return type(self)(factor=self.factor, trained=self.trained, length=limit)

    def scaled_base(self, base: float, width: int) -> Decimal:
        """The base of plain RoPE that has the same frequencies."""
        check_base(base)
        check_width(width, least=4)
        with exact():
            factor, grown = Decimal(self.factor), Decimal(max(self._length(), self.trained)) / self.trained
            return Decimal(base) * (factor * grown - (factor - 1)) ** (Decimal(width) / (width - 2))

    def frequencies(self, base: float, width: int) -> tuple[Decimal, ...]:
        if self._length() <= self.trained:
            check_base(base)
            check_width(width, least=4)
            return powers(Decimal(base), width)
        return powers(self.scaled_base(base, width), width)

    def frequencies32(self, base: float, width: int) -> tuple[float, ...]:
        import torch

        check_base(base)
        check_width(width, least=4)
        within = self._length() <= self.trained
        length = self.trained if within else torch.tensor(self._length(), dtype=torch.float32, device="cpu")
        growth = self.factor * length / self.trained - (self.factor - 1)
        return tuple((1.0 / periods32(base * growth ** (width / (width - 2)), width)).tolist())

    @classmethod
    def read_hf(
        cls, parameters: Mapping[str, Any], longest: int | None = None, **settings: Any
    ) -> tuple[Self, dict[str, str]]:
        stated = parameters.get("original_max_position_embeddings")
        if stated is not None and stated != longest:
            raise ValueError(
                f"rope_type 'dynamic': transformers ignores original_max_position_embeddings = {stated!r} and scales "
                f"past max_position_embeddings = {longest!r}; make both the trained length, or remove the former"
            )
        rest = {key: value for key, value in parameters.items() if key != "original_max_position_embeddings"}
        return super().read_hf(rest, longest, **settings)

    @classmethod
    def inherit(cls, parameters: Mapping[str, Any], longest: int | None) -> dict[str, Any]:
        return {"trained": longest}

    def _length(self) -> int:
        if self.length is None:
            raise ValueError(f"{self} has no frequencies before the length is known; call for_length(limit) first")
        return self.length

    def __str__(self) -> str:
        at = "" if self.length is None else f", at {self.length:,}"
        return f"dynamic x{self.factor:g} past {self.trained:,}{at}"
