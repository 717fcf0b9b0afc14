"""What a scaling is: a map from a RoPE base and width to frequencies, a gain on cos and sin, and a gain on scores.

`frequencies` are the real numbers to 60 digits. `frequencies32` are the float32 numbers that transformers 5.22.2 gets,
bit for bit, for checkpoints trained on those; torch is imported only there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from decimal import Decimal
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import Field, ValidationError

from ropewalk.scaling.exact import check_base, check_width
from ropewalk.settings import Settings

if TYPE_CHECKING:
    from torch import Tensor

Factor = Annotated[float, Field(ge=1, le=4096, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Turns = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
Gain = Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]
Length = Annotated[int, Field(ge=2, le=2**40)]
Limit = Annotated[int, Field(ge=1, le=2**40)]

SHARED_KEYS = ("rope_type", "type", "rope_theta")
"""Keys of `rope_parameters` that every rope type has; `type` is the older spelling of `rope_type`."""


class Scaling(Settings):
    """Changes the frequencies of RoPE, so that a model reads texts longer than those it was trained on."""

    kind: str
    """Which scaling; the name of its file."""

    length_dependent: ClassVar[bool] = False
    hf_type: ClassVar[str | None] = None
    """transformers' `rope_type`; None where it has none."""
    hf_required: ClassVar[tuple[str, ...]] = ()
    """Keys of `rope_parameters` that stand for no default of ours."""
    hf_keys: ClassVar[Mapping[str, str]] = {}
    """Field to key of transformers' `rope_parameters`."""

    def frequencies(self, base: float, width: int) -> tuple[Decimal, ...]:
        """The exact frequencies to 60 digits, fastest first; `float` of one is the correctly rounded float64."""
        raise NotImplementedError

    def frequencies32(self, base: float, width: int) -> tuple[float, ...]:
        """transformers' float32 frequencies, bit for bit, as Python floats."""
        raise NotImplementedError

    @property
    def rotary_gain(self) -> float:
        """Multiplies cos and sin, so a score of rotated features gets its square."""
        return 1.0

    @property
    def logit_gain(self) -> float:
        """Multiplies every score."""
        return 1.0

    @property
    def longest(self) -> int | None:
        """The `max_position_embeddings` that transformers must find beside the parameters, where it is part of the
        scaling; None where it is free."""
        return None

    def for_length(self, limit: int) -> Self:
        """The scaling to use where no position reaches `limit`; itself unless the scaling depends on the length."""
        return self

    def to_hf(self, base: float, width: int | None = None) -> dict[str, Any]:
        """transformers v5 `rope_parameters`, complete. `width` is read only by scalings that need it (ntk)."""
        check_base(base)
        parameters: dict[str, Any] = {"rope_type": self.hf_type, "rope_theta": float(base)}
        for field, key in self.hf_keys.items():
            value = getattr(self, field)
            if value is not None:
                parameters[key] = list(value) if isinstance(value, tuple) else value
        return parameters

    @classmethod
    def from_hf(cls, parameters: Mapping[str, Any], longest: int | None = None, **settings: Any) -> Self:
        """From `rope_parameters` of this rope type; every key is used or is an error. `longest` is the config's
        `max_position_embeddings`; `settings` are fields that such a dict cannot hold (`dialect`)."""
        return cls.read_hf(parameters, longest, **settings)[0]

    @classmethod
    def read_hf(
        cls, parameters: Mapping[str, Any], longest: int | None = None, **settings: Any
    ) -> tuple[Self, dict[str, str]]:
        """`from_hf`, and the key that each field was read from."""
        if cls.hf_type is None:
            raise ValueError(
                f"transformers has no rope_type for {cls.__name__}; construct it, e.g. {cls.__name__}(...)"
            )
        if hf_type(parameters) != cls.hf_type:
            raise ValueError(
                f"rope_type {hf_type(parameters)!r} is not {cls.hf_type!r}; read it with ropewalk.scaling.from_hf"
            )
        refuse_unknown(parameters, (*SHARED_KEYS, *cls.hf_keys.values()), f"rope_type {cls.hf_type!r}")
        given = {field: key for field, key in cls.hf_keys.items() if parameters.get(key) is not None}
        if missing := [key for key in cls.hf_required if parameters.get(key) is None]:
            raise ValueError(f"rope_type {cls.hf_type!r}: {', '.join(missing)} is missing, and no default is safe")
        values = {field: _plain(parameters[key]) for field, key in given.items()}
        values.update(settings)
        for field, value in cls.inherit(parameters, longest).items():
            if value is not None and field not in given:
                values[field], given[field] = value, "max_position_embeddings"
        try:
            return cls.model_validate(values, strict=True), given
        except ValidationError as error:
            raise ValueError(_in_hf_words(error, cls)) from None

    @classmethod
    def inherit(cls, parameters: Mapping[str, Any], longest: int | None) -> dict[str, Any]:
        """Fields that transformers takes from `max_position_embeddings` when the parameters do not give them."""
        return {}


def ladder32(base: float, width: int) -> tuple[float, ...]:
    """transformers' float32 frequencies of plain RoPE, bit for bit, as Python floats."""
    check_base(base)
    check_width(width)
    return tuple((1.0 / periods32(base, width)).tolist())


def periods32(base: float | Tensor, width: int) -> Tensor:
    """base ** (2i / width) in float32 on the CPU, whatever torch's default dtype and device are."""
    import torch

    steps = torch.arange(0, width, 2, dtype=torch.int64, device="cpu").to(torch.float32) / width
    return base**steps


def blend(omega: Decimal, factor: Decimal, kept: Decimal) -> Decimal:
    """The share `kept` of a frequency as it is, the rest divided by the factor; exact at both ends and at factor 1."""
    if kept >= 1:
        return omega
    divided = omega / factor
    return divided if kept <= 0 else omega - (omega - divided) * (1 - kept)


def hf_type(parameters: Mapping[str, Any]) -> str:
    """The rope type of `rope_parameters` or of the older `rope_scaling`."""
    new, old = parameters.get("rope_type"), parameters.get("type")
    if new is not None and old is not None and new != old:
        raise ValueError(f"rope_type {new!r} and type {old!r} contradict each other; keep the one that is meant")
    found = new if new is not None else old if old is not None else "default"
    if not isinstance(found, str):
        raise ValueError(f"rope_type {found!r} is not a name; write for example 'yarn'")
    return found


def refuse_unknown(parameters: Mapping[str, Any], known: Collection[str], where: str) -> None:
    """An error naming all keys that would otherwise be silently ignored."""
    unknown = [key for key in parameters if key not in known]
    if unknown:
        said = "; ".join(_unknown(key, parameters[key], known) for key in unknown)
        raise ValueError(f"{where}: {said}; known are {', '.join(known)}")


def _unknown(key: str, value: Any, known: Collection[str]) -> str:
    if isinstance(value, Mapping):
        return f"key {key!r} holds parameters of one layer type: read each such dict by itself"
    close = get_close_matches(key, known, 1)
    return f"no key {key!r}" + (f" (did you mean {close[0]!r}?)" if close else ": correct or remove it")


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    # JSON written by some tools has 8192.0 for a length; strict validation would refuse it.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _in_hf_words(error: ValidationError, cls: type[Scaling]) -> str:
    said = []
    for problem in error.errors():
        place = problem["loc"]
        # A field without a key of its own (dynamic's trained length) can only come from outside the parameters.
        key = cls.hf_keys.get(str(place[0]), "max_position_embeddings") if place else ""
        if problem["type"] == "missing":
            said.append(f"{key} is missing")
        elif place:
            where = key + "".join(f"[{step}]" for step in place[1:])
            said.append(f"{where} = {problem['input']!r}: {problem['msg'].removeprefix('Value error, ')}")
        else:
            said.append(problem["msg"].removeprefix("Value error, "))
    return f"rope_type {cls.hf_type!r}: {'; '.join(said)}"
