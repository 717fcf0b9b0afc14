"""Scalings of RoPE's frequencies: one paper, one file, and the file's name is the kind. `None` means plain RoPE.

YaRN(factor=4, trained=8192).frequencies(base=500_000, width=128)
from_hf({"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}).scaling
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal

from pydantic import Field

from ropewalk.scaling.base import SHARED_KEYS, Scaling, hf_type, ladder32, refuse_unknown
from ropewalk.scaling.dynamic import Dynamic
from ropewalk.scaling.exact import check_base, ladder, turns
from ropewalk.scaling.linear import Linear
from ropewalk.scaling.llama3 import Llama3
from ropewalk.scaling.longrope import LongRoPE
from ropewalk.scaling.ntk import NTK
from ropewalk.scaling.proportional import Proportional
from ropewalk.scaling.yarn import YaRN

__all__ = [
    "NTK",
    "AnyScaling",
    "Dynamic",
    "HFRope",
    "Linear",
    "Llama3",
    "LongRoPE",
    "Proportional",
    "Scaling",
    "YaRN",
    "find",
    "from_hf",
    "ladder",
    "ladder32",
    "names",
    "to_hf",
    "to_hf_v4",
    "turns",
]

AnyScaling = Annotated[
    Linear | NTK | Dynamic | YaRN | Llama3 | LongRoPE | Proportional,
    Field(discriminator="kind"),
]
"""For a field of a config: the `kind` tag picks the class."""

_KINDS: dict[str, type[Scaling]] = {
    "linear": Linear,
    "ntk": NTK,
    "dynamic": Dynamic,
    "yarn": YaRN,
    "llama3": Llama3,
    "longrope": LongRoPE,
    "proportional": Proportional,
}


@dataclass(frozen=True, kw_only=True)
class HFRope:
    """What transformers' `rope_parameters` say, nothing left out."""

    base: float
    scaling: Scaling | None
    fraction: float | None
    """`partial_rotary_factor`, the part of the head that rotates; None where it is not stated here. Proportional
    scaling keeps it for itself, because there the whole head rotates."""
    sources: tuple[tuple[str, str], ...]
    """Field to the key it was read from; `max_position_embeddings` where transformers falls back on that."""


def names() -> tuple[str, ...]:
    """The kinds there are."""
    return tuple(_KINDS)


def find(kind: str) -> type[Scaling]:
    """The class of a kind."""
    if kind not in _KINDS:
        raise ValueError(f"no scaling {kind!r}{_nearest(kind, _KINDS)}; there are {', '.join(_KINDS)}")
    return _KINDS[kind]


def from_hf(
    parameters: Mapping[str, Any],
    longest: int | None = None,
    *,
    elsewhere: Collection[str] = (),
    dialect: Literal["hf", "deepseek"] = "hf",
) -> HFRope:
    """Read transformers' `rope_parameters` of one layer type: every key is used or is an error.

    `longest` is the config's `max_position_embeddings`; `elsewhere` names keys that the caller reads (`mrope_section`).
    Older configs have `rope_scaling` and `rope_theta` apart: pass `{**(rope_scaling or {}), "rope_theta": rope_theta}`.
    `dialect` is deepseek for architectures that apply YaRN's second gain on the scores.
    """
    if not isinstance(parameters, Mapping):
        raise ValueError(f"rope_parameters is {parameters!r}, not a dict; plain RoPE is {{'rope_theta': 10000.0}}")
    rope_type = hf_type(parameters)
    scaling_class = _by_hf_type(rope_type)
    own = {*SHARED_KEYS, "partial_rotary_factor", *(scaling_class.hf_keys.values() if scaling_class else ())}
    if taken := sorted(own & set(elsewhere)):
        raise ValueError(
            f"elsewhere names {', '.join(taken)}, which rope_type {rope_type!r} reads here; leave them out"
        )
    rest = {key: value for key, value in parameters.items() if key not in elsewhere}

    base = rest.get("rope_theta")
    if base is None:
        raise ValueError(
            f"no rope_theta in rope_parameters ({', '.join(map(str, parameters)) or 'empty'}), and no default is safe; "
            'look at the top level of config.json, and pass {**parameters, "rope_theta": ...}'
        )
    check_base(base)
    sources = {"base": "rope_theta"}

    fraction = None
    if "partial_rotary_factor" in rest and scaling_class is not Proportional:
        fraction = _checked_fraction(rest.pop("partial_rotary_factor"))
        if fraction is not None:
            sources["fraction"] = "partial_rotary_factor"

    scaling = None
    if scaling_class is None:
        # A null says nothing, so a scaling's key left at null does not make plain RoPE scaled.
        stated = {key: value for key, value in rest.items() if value is not None or key not in _hf_keys()}
        refuse_unknown(stated, (*SHARED_KEYS, "partial_rotary_factor"), "rope_type 'default' (or none), plain RoPE")
    else:
        settings = {"dialect": dialect} if scaling_class is YaRN else {}
        scaling, fields = scaling_class.read_hf(rest, longest, **settings)
        sources.update(fields)
    return HFRope(base=float(base), scaling=scaling, fraction=fraction, sources=tuple(sources.items()))


def to_hf(scaling: Scaling | None, base: float, width: int | None = None) -> dict[str, Any]:
    """transformers v5 `rope_parameters`; `width` is the rotary width, which ntk needs. A part of the head that rotates
    (`partial_rotary_factor`) is the caller's to add, and so is `max_position_embeddings` (see `Scaling.longest`)."""
    if scaling is not None:
        return scaling.to_hf(base, width)
    check_base(base)
    return {"rope_type": "default", "rope_theta": float(base)}


def to_hf_v4(scaling: Scaling | None, base: float, width: int | None = None) -> tuple[dict[str, Any] | None, float]:
    """The `rope_scaling` and the `rope_theta` of transformers 4.43 and later 4.x."""
    if isinstance(scaling, Proportional):
        raise ValueError("transformers 4 has no proportional rope type; export for version 5, or use partial rotary")
    parameters = to_hf(scaling, base, width)
    theta = parameters.pop("rope_theta")
    return (None if parameters["rope_type"] == "default" else parameters), theta


def _by_hf_type(rope_type: str) -> type[Scaling] | None:
    known = {found.hf_type: found for found in _KINDS.values() if found.hf_type}
    if rope_type == "default":
        return None
    if rope_type not in known:
        raise ValueError(
            f"no rope_type {rope_type!r} in transformers{_nearest(rope_type, known)}; there are default, "
            f"{', '.join(map(str, known))}"
        )
    return known[rope_type]


def _hf_keys() -> set[str]:
    return {key for found in _KINDS.values() for key in found.hf_keys.values()}


def _checked_fraction(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ValueError(f"partial_rotary_factor {value!r} is outside (0, 1]; 1 rotates the whole head")
    return float(value)


def _nearest(name: str, among: Collection[str]) -> str:
    close = get_close_matches(name, among, 1)
    return f" (did you mean {close[0]!r}?)" if close else ""
