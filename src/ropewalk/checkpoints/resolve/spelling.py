"""From every spelling that transformers has had to one object of rope parameters for each type of layer.

    v4   rope_theta, rope_scaling {"type" or "rope_type", ...}, partial_rotary_factor at the top
    v5   rope_parameters {"rope_theta", "rope_type", ...}, or one such object (or null: no rotation) a layer type

A value stated in two places must be the same value; which of two engines would be right is not for us to pick.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, NamedTuple

from ropewalk.checkpoints.architectures.architecture import Architecture
from ropewalk.checkpoints.resolve.keys import LARGEST_LENGTH, Keys, shown
from ropewalk.checkpoints.resolve.layers import CHUNKED, FULL, SLIDING
from ropewalk.scaling.base import hf_type

_TYPES = (FULL, SLIDING, CHUNKED)
_SPELLINGS = ("type", "rope_type")
_AT_TOP = frozenset({"rope_theta", "partial_rotary_factor"})
_OLD_NAMES = {"su": "longrope", "mrope": "default"}


class Spelled(NamedTuple):
    """One rope_parameters object, with the source of each of its values."""

    values: dict[str, Any]
    sources: dict[str, str]
    field: str


def read_spelled(
    keys: Keys, known: Architecture, types: tuple[str, ...], notes: list[str]
) -> dict[str, Spelled | None]:
    wanted = [kind for kind in _TYPES if kind in types]
    _unused(keys, known, wanted, notes)
    new, old = keys.mapping("rope_parameters"), keys.mapping("rope_scaling")
    if new is None and old is None:
        new = known.defaults.get("rope_parameters")  # null is what its class replaces by these
        if known.filled_in is not None:
            raise keys.bad(
                "rope_parameters", f"is missing, and the config class of {keys.owner} takes {known.filled_in}", "add it"
            )
    if known.fractions_key is not None and new is None:
        return {kind: _by_layer(keys, known, kind, types, old if kind == FULL else None) for kind in wanted}
    if new and known.rope_labels and all(key in known.rope_labels for key in new):
        new = {known.rope_labels[label]: part for label, part in new.items()}
    labels = {kind: label for label, kind in known.rope_labels.items()}
    if old and keys.data.get("rope_parameters") is None:
        new = None  # an architecture's default gives way to what is stated
    local = known.local_theta_key is not None or not known.scales_local
    nested = new is not None and bool(new) and all(key in (*_TYPES, "linear_attention") for key in new)
    if nested and new is not None:
        if not known.rotates_by_type:
            raise keys.bad(
                "rope_parameters",
                f"has an object for each layer type, and the code of {keys.owner} reads one object: transformers takes "
                "the default base for it, or fails",
                "write its values without the layer types",
            )
        if old:
            _same_or_raise(keys, new.get(FULL) or {}, old, left_out=_AT_TOP)
        found: dict[str, Spelled | None] = {}
        for kind in wanted:
            if kind not in new:
                raise keys.bad(
                    "rope_parameters", f"has no {kind}, and the model has such layers", f"add {kind} or null"
                )
            part = new[kind]
            if part is not None and not isinstance(part, Mapping):
                raise keys.bad(f"rope_parameters.{kind}", "is not an object", "write {...}, or null for no rotation")
            field = f"rope_parameters.{labels.get(kind, kind)}"
            if part is None and local:
                raise keys.bad(
                    field, f"is null, and the code of {keys.owner} takes its defaults for that, or fails", "write {...}"
                )
            found[kind] = None if part is None else _complete(keys, known, kind, part, field)
        spare = [labels.get(kind, kind) for kind in new if kind not in wanted]
        notes.extend(f"rope_parameters.{kind} is ignored here: no layer rotates by it" for kind in spare)
        return found
    if new and old:
        places = {"rope_theta": known.theta_key, "partial_rotary_factor": known.fraction_key}
        at_top = {name for name, key in places.items() if key is not None and keys.stated(key) is not None}
        _same_or_raise(keys, new, old, left_out=at_top - set(old))
    if new and local:
        raise keys.bad(
            "rope_parameters",
            f"is one object, and {keys.owner} rotates full and sliding layers differently",
            'write {"full_attention": {...}, "sliding_attention": {...}}',
        )
    flat, field = (new, "rope_parameters") if new else (old or {}, "rope_scaling")
    found = {}
    theta = known.transformers.sliding_theta_in_5
    if theta is not None and keys.stated("rope_theta") not in (None, theta):
        notes.append(
            f"transformers 5 gives sliding layers {theta:,.0f} whatever rope_theta says; 4 gives them rope_theta"
        )
    for kind in wanted:
        plain = kind != FULL and not known.scales_local
        found[kind] = _complete(keys, known, kind, {} if plain else flat, field)
    return found


def _by_layer(
    keys: Keys, known: Architecture, kind: str, types: tuple[str, ...], scaling: Mapping[str, Any] | None
) -> Spelled:
    """The base and the rotated part of a layer type, from lists of one value for each layer."""
    values, sources = dict(scaling or {}), {}
    sources = {key: f"{place_of(keys, 'rope_scaling')}.{key}" for key in values}
    for field, key in (("rope_theta", known.theta_key), ("partial_rotary_factor", known.fractions_key)):
        stated = None if key is None else keys.raw(key)
        if key is None or stated is None:
            continue
        place = types.index(kind)
        if isinstance(stated, list):
            more = keys.data.get("num_nextn_predict_layers")
            if len(stated) not in (len(types), len(types) + (more if type(more) is int else 0)):
                raise keys.bad(key, f"has {len(stated):,} entries for {len(types):,} layers", "give one entry a layer")
            other = next((i for i, one in enumerate(types) if one == kind and stated[i] != stated[place]), None)
            if other is not None:
                problem = f"has {shown(stated[place])} for layer {place} and {shown(stated[other])} for layer {other}"
                raise keys.bad(key, f"{problem}, both {kind}", "transformers takes the first for all of a type")
            stated = stated[place]
            key = f"{key}[{place}]"
        values[field], sources[field] = stated, keys.source(key)
    return Spelled(values, sources, "rope_scaling")


def _unused(keys: Keys, known: Architecture, wanted: list[str], notes: list[str]) -> None:
    """Bases of layers that the model does not have: a Gemma 3 of five layers has no full one."""
    pairs = [(known.theta_key, known.local_theta_key is None or FULL in wanted)]
    pairs.append((known.local_theta_key, any(kind != FULL for kind in wanted)))
    for key, used in pairs:
        if key is not None and keys.stated(key) is not None and not (used and wanted):
            notes.append(f"{key} is ignored here: no layer rotates by it")
    if not wanted and known.fraction_key is not None:
        keys.read.add(known.fraction_key)


def _same_or_raise(keys: Keys, new: Mapping[str, Any], old: Mapping[str, Any], *, left_out: Set[str]) -> None:
    """Both generations of keys in one file are read differently by different versions, unless they agree. left_out:
    keys that stand elsewhere."""
    mine = {**new, "rope_type": rope_type(keys, new)}
    yours = {**old, "rope_type": rope_type(keys, old)}
    for key in sorted({*mine, *yours} - {"type"} - left_out, key=str):
        if mine.get(key) != yours.get(key):
            raise keys.bad(
                "rope_scaling",
                f"{key} is {shown(yours.get(key))} here and {shown(mine.get(key))} in rope_parameters; transformers "
                "reads the former where both are given",
                "remove the one that is not meant",
            )


def rope_type(keys: Keys, parameters: Mapping[str, Any]) -> str:
    # Qwen2-VL has "mrope" beside "default": two names of one thing.
    renamed = {key: _OLD_NAMES.get(parameters[key], parameters[key]) for key in _SPELLINGS if _is_text(parameters, key)}
    try:
        return hf_type({**parameters, **renamed})
    except ValueError as error:
        raise keys.bad("rope_scaling" if keys.data.get("rope_scaling") else "rope_parameters", str(error)) from None


def _is_text(parameters: Mapping[str, Any], key: str) -> bool:
    return isinstance(parameters.get(key), str)


def _complete(keys: Keys, known: Architecture, kind: str, part: Mapping[str, Any], field: str) -> Spelled:
    """The object, with the values beside it at the top of the config."""
    values = dict(part)
    at = place_of(keys, field)
    sources = {key: at if at.startswith("transformers") else f"{at}.{key}" for key in values}
    if known.theta_in is not None and (inner := keys.mapping(known.theta_in)) is not None:
        within = keys.inside(known.theta_in, inner)
        if other := next((key for key in inner if "rope" in str(key) and key != "rope_theta"), None):
            raise within.bad(other, f"{shown(inner[other])} is read by nothing in {keys.owner}", "remove it")
        _top(within, values, sources, "rope_theta", "rope_theta")
    _top(keys, values, sources, "rope_theta", _theta_key(known, kind, part))
    if known.fraction_key is not None:
        _top(keys, values, sources, "partial_rotary_factor", known.fraction_key)
    # transformers 4.45 wrote a value under its common name too, where the architecture has its own; it reads its own.
    for field_, key in (("rope_theta", known.theta_key), ("partial_rotary_factor", known.fraction_key)):
        if key not in (None, field_) and kind == FULL and values.get(field_) and field_ != known.local_theta_key:
            _top(keys, values, sources, field_, field_)
    _trained(keys, known, values, sources, field)
    return Spelled(values, sources, field)


def _trained(keys: Keys, known: Architecture, values: dict[str, Any], sources: dict[str, str], field: str) -> None:
    """The trained length, within the object or at the top of the config."""
    key = "original_max_position_embeddings"
    within, usual = values.get(key), keys.defaults.get(key)
    if within is None and not _scaled(keys, values):
        keys.integer(key, most=LARGEST_LENGTH)
    elif within is None and known.rotates_by_type:
        if keys.stated(key) is not None:
            raise keys.bad(
                key,
                f"stands at the top, and the code of {keys.owner} takes max_position_embeddings unless the parameters "
                "of the layer type have it",
                f"write it in {field}",
            )
    elif key not in keys.data and usual is not None and within not in (None, usual):
        raise keys.bad(
            key,
            f"is {shown(within)} at {sources[key]}, and the config class of {keys.owner} takes {shown(usual)} unless "
            "it stands at the top",
            "write it at the top, too",
        )
    else:
        _top(keys, values, sources, key, key)


def place_of(keys: Keys, field: str) -> str:
    stated = keys.data.get(field.partition(".")[0]) is not None
    return f"{keys.where}:{keys.path}{field}" if stated else f"transformers default for {keys.owner}"


def _theta_key(known: Architecture, kind: str, part: Mapping[str, Any]) -> str | None:
    if kind != FULL and known.local_theta_key is not None:
        return known.local_theta_key
    # A base fixed in code stands among the defaults.
    return "rope_theta" if known.theta_key is None and not part else known.theta_key


def _scaled(keys: Keys, values: Mapping[str, Any]) -> bool:
    return rope_type(keys, values) in ("llama3", "yarn", "longrope")


def _top(keys: Keys, values: dict[str, Any], sources: dict[str, str], field: str, key: str | None) -> None:
    """A field from the top of the config; stated in both places, it must be the same."""
    if key is None:
        return
    outside = keys.stated(key)
    if values.get(field) is None:
        value = keys.raw(key)
        if value is not None:
            values[field], sources[field] = value, keys.source(key)
    elif outside is not None and outside != values[field]:
        raise keys.bad(
            key,
            f"is {shown(outside)} here and {shown(values[field])} at {sources[field]}; "
            "transformers 4 and 5 read different ones",
            "make them equal, or remove the one that is not meant",
        )
