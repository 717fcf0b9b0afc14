"""Which part of a config has the positions, and which architecture that part is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ropewalk.checkpoints.architectures.architecture import Architecture
from ropewalk.checkpoints.architectures.generated import of_transformers
from ropewalk.checkpoints.architectures.table import PARTS, REMOTE, SEVERAL_PARTS, TEXTS, UNREADABLE, find, nearest
from ropewalk.checkpoints.resolve.keys import Keys, shown


class Part(NamedTuple):
    model_type: str
    known: Architecture
    keys: Keys
    refusal: str | None
    outside: Mapping[str, Any]
    """The config around it, where it is a part."""
    path: tuple[str, ...] = ()
    """Where in that config it is."""


def find_part(config: Mapping[str, Any], where: str) -> Part:
    """The text part of a config, and what is known of it."""
    keys = Keys(config, where)
    model_type = keys.text("model_type")
    if model_type is None:
        raise keys.bad("model_type", "is missing, and it says which code the weights are for", "add it, e.g. 'llama'")
    if model_type in REMOTE:
        raise keys.bad(
            "model_type",
            f"{model_type!r} is read by Python code shipped with the checkpoint, and that is never run: "
            f"{REMOTE[model_type]}",
            "convert it to an architecture that states its positions",
        )
    if model_type in UNREADABLE:
        raise keys.bad("model_type", f"{model_type!r} is known, and no plan can say it: {UNREADABLE[model_type]}")
    if model_type not in PARTS:
        return (None if find(model_type) else _text_part(keys, model_type)) or _known(keys, model_type, None, {})
    refusal = f"{model_type} reads more than text; only its text part was resolved"
    inner = keys.mapping("text_config")
    if inner is None:
        return _text_part(keys, model_type) or _known(keys, PARTS[model_type], refusal, {})
    text = keys.inside("text_config", inner)
    named = text.text("model_type") or PARTS[model_type]
    if named in SEVERAL_PARTS[model_type].renamed:
        named = PARTS[model_type]
    return _known(text, PARTS.get(named, named), refusal, config, ("text_config",))


def _text_part(keys: Keys, model_type: str) -> Part | None:
    """The text part of a model that is not known by its own name; None where none is found that is."""
    for path in TEXTS:
        text = keys
        for step in path:
            inner = text.data.get(step)
            text = text.inside(step, inner if isinstance(inner, Mapping) else {})
        named = text.data.get("model_type")
        if isinstance(named, str) and find(PARTS.get(named, named)):
            refusal = (
                f"{model_type} is more than its text part ({'.'.join(path)}, {named}), and only that was resolved: "
                "offsets of positions and masks that the rest adds are not in the plan"
            )
            return _known(text, PARTS.get(named, named), refusal, keys.data, path)
    return None


def _known(
    keys: Keys, model_type: str, refusal: str | None, outside: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Part:
    known = find(model_type)
    if known is None:
        hint = "" if "auto_map" in keys.data else nearest(model_type)
        remote = " Its config names Python code (auto_map), which is never run." if "auto_map" in keys.data else ""
        raise keys.bad(
            "model_type",
            f"{shown(model_type)} is not known{hint}: its layout, its widths and the pattern of its layers "
            f"would be guesses, even where it states rope keys.{remote}",
            "`ropewalk list architectures` names those that can be read",
        )
    if known.first_spelling is not None and keys.data.get(known.first_spelling.layer_key) is not None:
        known = known.first_spelling
    defaults = {**known.defaults, **(_implied(model_type, known) if outside else {})}
    if known.before is not None and known.theta_key is not None and not outside:
        version = re.match(r"(\d{1,4})\.(\d{1,4})", str(keys.data.get("transformers_version")))
        if version is None or (int(version[1]), int(version[2])) >= known.before:
            defaults.pop(known.theta_key, None)
    keys = Keys(keys.data, keys.where, keys.path, defaults=defaults, owner=model_type)
    return Part(model_type, known, keys, refusal, outside, path)


def _implied(model_type: str, known: Architecture) -> Mapping[str, Any]:
    """What a text part leaves out: transformers writes no defaults there."""
    made = {
        key: value
        for key, value in of_transformers("defaults").get(model_type, {}).items()
        if key not in known.defaults
    }
    return {**made, **known.implied}


def refusal_of(part: Part) -> str | None:
    """Why such a model is inspected and not loaded."""
    known, keys = part.known, part.keys
    reasons = []
    if known.latent:
        reasons.append("multi-head latent attention (MLA)")
    if known.experts is True or (isinstance(known.experts, str) and keys.stated(known.experts) is True):
        reasons.append("a mixture of experts")
    if known.sections is not None:
        reasons.append("multimodal M-RoPE")
    if known.blocks_key is not None:
        reasons.append("layers without attention")
    elif known.pattern == "linear":
        reasons.append("layers of linear attention or convolution")
    if known.pattern == "crossing":
        reasons.append("layers of cross-attention")
    if known.pattern == "recurrent":
        reasons.append("no attention")
    if known.pattern == "compressed":
        reasons.append("compressed attention")
    if known.pattern == "chunked":
        reasons.append("chunked attention")
    if known.kind == "rope" and known.stack == "decoder" and keys.stated("is_causal") is False:
        reasons.append("attention to later tokens too (is_causal false)")
    if known.alibi_key is not None and keys.stated(known.alibi_key) is True:
        reasons.append("ALiBi added before the scores are divided by the root of the head width")
    if reasons:
        return f"{part.model_type} has {' and '.join(reasons)}"
    return part.refusal or known.refusal
