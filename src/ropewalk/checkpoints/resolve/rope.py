"""The rotation of each type of layer: base, scaling, rotated width, and what else its rope parameters hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ropewalk.checkpoints.architectures.architecture import Architecture
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.resolve.keys import LARGEST_HEAD, Keys, shown
from ropewalk.checkpoints.resolve.layers import FULL
from ropewalk.checkpoints.resolve.spelling import Spelled, place_of, read_spelled, rope_type
from ropewalk.scaling import NTK, HFRope, from_hf

_NO_MEANING = {"finetuned": "the YaRN authors' note that the weights were fine-tuned; no engine uses it"}


class Rotation(NamedTuple):
    rope: HFRope
    width: int
    sources: dict[str, str]
    extra: dict[str, Any]
    """What was read beside the scaling: sections of M-RoPE, a query temperature."""


def read_rotations(
    keys: Keys,
    known: Architecture,
    types: tuple[str, ...],
    heads: dict[str, int],
    longest: int | None,
    notes: list[str],
) -> dict[str, Rotation | None]:
    """One rotation for each type of layer that attends; None where it is stated to have none."""
    spelled = read_spelled(keys, known, types, notes)
    found: dict[str, Rotation | None] = {}
    for kind, one in spelled.items():
        found[kind] = None if one is None else _rotation(keys, known, kind, one, heads[kind], longest, notes)
    return found


def _rotation(
    keys: Keys, known: Architecture, kind: str, one: Spelled, head: int, longest: int | None, notes: list[str]
) -> Rotation:
    values, sources = dict(one.values), dict(one.sources)
    field = one.field
    name = _first_spelling(keys, known, values, notes)
    values.pop("type", None)
    values["rope_type"] = name
    for key, why in _NO_MEANING.items():
        if key in values:
            values.pop(key)
            notes.append(f"{field}.{key} is ignored: {why}")
    _need_theta(keys, known, kind, values)
    if not _is_base(values["rope_theta"]):
        place = sources["rope_theta"].partition(":")[2].removeprefix(keys.path)
        raise keys.bad(place, f"the base {shown(values['rope_theta'])} is not a number in (1, 1e12]", "correct it")
    if "attn_factor" in values:
        raise keys.bad(
            f"{field}.attn_factor",
            f"is {shown(values['attn_factor'])}: older vLLM multiply the gain by it, transformers ignores it and reads "
            f"attention_factor ({shown(values.get('attention_factor', 'absent'))})",
            "write attention_factor, the gain itself, and remove attn_factor",
        )
    if name == "longrope":
        (_stated_gains if known.states_gains else _repeated_gains)(keys, values, sources, field, notes)
    if known.yarn_gain is not None and name == "yarn" and values.get("attention_factor") is None:
        values["attention_factor"] = known.yarn_gain
        sources["attention_factor"] = f"transformers' code for {keys.owner}"
    extra = _extra(keys, known, values, field, notes)
    alpha = _alpha(keys, known, values, field)
    try:
        rope = from_hf(values, longest, dialect="deepseek" if known.gain_on_scores else "hf")
        if alpha is not None:
            rope = replace(rope, scaling=NTK(factor=alpha), sources=(*rope.sources, ("factor", "alpha")))
        width = _width(keys, known, rope, head, sources)
    except BadInput:
        raise
    except ValueError as error:
        raise keys.bad(field, str(error)) from None
    said = {"base": sources["rope_theta"], "rotary_width": sources.pop("rotary_width")}
    for name_, key in rope.sources:
        if name_ not in ("base", "fraction"):
            said[name_] = sources.get(key) or keys.source(key)
    if rope.scaling is not None:
        said["scaling"] = place_of(keys, field)
    return Rotation(rope, width, said, extra)


def _alpha(keys: Keys, known: Architecture, values: dict[str, Any], field: str) -> float | None:
    """Hunyuan's factor of NTK. What else stands beside it is not read: the base is fixed, whatever the length."""
    if not known.alpha_is_ntk or values["rope_type"] != "dynamic" or not values.get("alpha"):
        return None
    alpha = values["alpha"]
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 1 <= alpha <= 1e9:
        raise keys.bad(f"{field}.alpha", f"{shown(alpha)} is not a factor of at least 1", "correct it")
    for key in [key for key in values if key not in ("rope_theta", "partial_rotary_factor")]:
        values.pop(key)
    values["rope_type"] = "default"
    return float(alpha)


def _first_spelling(keys: Keys, known: Architecture, values: Mapping[str, Any], notes: list[str]) -> str:
    """transformers reads Phi-3's first spellings, su and yarn, as longrope."""
    name = rope_type(keys, values)
    if values.get("type") == "su" or values.get("rope_type") == "su":
        notes.append("rope type su is the first name of longrope")
    if known.yarn_is_longrope and name == "yarn" and "short_factor" in values:
        notes.append(f"rope type yarn is longrope on {keys.owner}, as transformers reads it")
        return "longrope"
    return name


def _stated_gains(keys: Keys, values: dict[str, Any], sources: dict[str, str], field: str, notes: list[str]) -> None:
    """PhiMoE gives the gain of short and of long texts itself; transformers reads nothing else for it."""
    gains = {key: values.pop(key, None) for key in ("short_mscale", "long_mscale")}
    for key, gain in gains.items():
        if isinstance(gain, bool) or not isinstance(gain, int | float) or not 0 < gain <= 1e6:
            raise keys.bad(
                f"{field}.{key}", f"{shown(gain)} is not a gain, and {keys.owner} needs it", "add it, e.g. 1.24"
            )
    if gains["short_mscale"] != gains["long_mscale"]:
        raise keys.bad(
            f"{field}.long_mscale",
            f"is {shown(gains['long_mscale'])}, and short_mscale {shown(gains['short_mscale'])}: one gain for short "
            "and another for long texts is not supported",
            "make them equal, or inspect with another tool",
        )
    if values.get("attention_factor") not in (None, gains["short_mscale"]):
        notes.append(f"{field}.attention_factor is ignored here: {keys.owner} reads short_mscale and long_mscale")
    values["attention_factor"] = gains["short_mscale"]
    sources["attention_factor"] = f"{place_of(keys, field)}.short_mscale"


def _repeated_gains(keys: Keys, values: dict[str, Any], sources: dict[str, str], field: str, notes: list[str]) -> None:
    """vLLM and SGLang read the gain in these keys, and transformers does not."""
    for key in ("short_mscale", "long_mscale"):
        gain = values.pop(key, None)
        if gain is not None and gain != values.get("attention_factor"):
            notes.append(f"{field}.{key} is {shown(gain)}: vLLM and SGLang multiply by it, transformers ignores it")


def _is_base(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 1 < value <= 1e12


def _need_theta(keys: Keys, known: Architecture, kind: str, values: Mapping[str, Any]) -> None:
    if values.get("rope_theta") is not None:
        return
    top = known.local_theta_key if kind != FULL and known.local_theta_key else known.theta_key or "rope_theta"
    looked = ["rope_parameters.rope_theta", f"rope_parameters.{kind}.rope_theta", "rope_scaling.rope_theta", top]
    raise keys.bad(
        top,
        f"the base is missing; looked at {', '.join(keys.path + place for place in looked)}. Published {keys.owner} "
        "checkpoints state it, so this config has lost it, and engines would silently take 10,000",
        "copy it from the checkpoint this one was made from",
    )


def _extra(keys: Keys, known: Architecture, values: dict[str, Any], field: str, notes: list[str]) -> dict[str, Any]:
    extra = {key: values.pop(key) for key in known.elsewhere if key in values}
    if "max_position_embeddings" in extra:
        notes.append(f"{field}.max_position_embeddings repeats what the config says; nothing reads it there")
    if (sections := extra.get("mrope_section")) is not None and (
        not isinstance(sections, list)
        or len(sections) != 3
        or any(isinstance(n, bool) or not isinstance(n, int) or not 0 <= n <= 65_536 for n in sections)
    ):
        raise keys.bad(f"{field}.mrope_section", "is not three counts of frequencies", "write for example [16, 24, 24]")
    return extra


def _width(keys: Keys, known: Architecture, rope: HFRope, head: int, sources: dict[str, str]) -> int:
    """Features of a head that rotate."""
    if known.latent:
        sources["rotary_width"] = keys.source("qk_rope_head_dim")
        width = keys.needed("qk_rope_head_dim")
        if rope.fraction is not None and int(head * rope.fraction) != width:
            raise keys.bad(
                "qk_rope_head_dim",
                f"is {width}, and partial_rotary_factor {rope.fraction:g} of {head} is {int(head * rope.fraction)}",
                "fix one",
            )
        return _even(keys, "qk_rope_head_dim", width)
    stated = None if known.rotary_key is None else keys.integer(known.rotary_key, least=2, most=65_536)
    by_fraction = None if rope.fraction is None else int(head * rope.fraction)
    if stated is not None and known.rotary_key is not None:
        if by_fraction is not None and by_fraction != stated:
            raise keys.bad(
                known.rotary_key,
                f"is {stated}, and partial_rotary_factor {rope.fraction:g} of a head of {head} is {by_fraction}",
                "make them agree",
            )
        sources["rotary_width"] = keys.source(known.rotary_key)
        if stated > head:
            raise keys.bad(known.rotary_key, f"is {stated}, and a head has {head} features", "correct one of them")
        return _even(keys, known.rotary_key, stated)
    if by_fraction is not None:
        sources["rotary_width"] = sources["partial_rotary_factor"]
        return _even(keys, known.fraction_key or "partial_rotary_factor", by_fraction)
    sources["rotary_width"] = "the whole head"
    return _even(keys, known.head_key or known.width_key, head)


def _even(keys: Keys, key: str, width: int) -> int:
    if width % 2 or not 2 <= width <= LARGEST_HEAD:
        remedy = f"make it even, from 2 to {LARGEST_HEAD:,}"
        raise keys.bad(key, f"makes {width} features rotate, and they turn in pairs", remedy)
    return width
