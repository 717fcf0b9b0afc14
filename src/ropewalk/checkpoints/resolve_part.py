"""Which part of a config has the positions, and which architecture that part is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from ropewalk.checkpoints.architectures import PARTS, REMOTE, Architecture, find, names, nearest
from ropewalk.checkpoints.architectures_table import ANYWHERE, REPEATS
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.resolve_keys import Keys, shown

POSITIONS = re.compile(
    r"rope|rotary|theta|yarn|ntk|alibi|mscale|layer_types|sliding|window|position|no_rope|relative_attention"
    r"|base_freq|attention_chunk|temperature_tuning|floor_scale|attn_scale|n_ctx|max_seq|seq_len|context_length"
    r"|full_attn|full_attention|local_attention|global_attn|longrope|llama_4_scaling|logn|pos_emb|model_max_length"
)
"""Keys that say something about positions; one that nobody has read is an error."""


class Part(NamedTuple):
    model_type: str
    known: Architecture
    keys: Keys
    refusal: str | None
    outside: Mapping[str, Any]
    """The config around it, where it is a part."""


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
    if model_type not in PARTS:
        return _known(keys, model_type, None, {})
    refusal = f"{model_type} reads images besides text; only its text part was resolved"
    inner = keys.mapping("text_config")
    if inner is None:
        return _known(keys, PARTS[model_type], refusal, {})
    text = keys.inside("text_config", inner)
    named = text.text("model_type") or PARTS[model_type]
    return _known(text, PARTS.get(named, named), refusal, config)


def _known(keys: Keys, model_type: str, refusal: str | None, outside: Mapping[str, Any]) -> Part:
    known = find(model_type)
    if known is None:
        remote = " Its config names Python code (auto_map), which is never run." if "auto_map" in keys.data else ""
        raise keys.bad(
            "model_type",
            f"{model_type!r} is not known{nearest(model_type)}: its layout, its widths and the pattern of its layers "
            f"would be guesses, even where it states rope keys.{remote} Known are {', '.join(names())}",
            "if it is one of these under another name, set model_type to that",
        )
    defaults = {**known.defaults, **(known.implied if outside else {})}
    if known.before is not None and known.theta_key is not None and not outside:
        version = re.match(r"(\d{1,4})\.(\d{1,4})", str(keys.data.get("transformers_version")))
        if version is None or (int(version[1]), int(version[2])) >= known.before:
            defaults.pop(known.theta_key, None)
    keys = Keys(keys.data, keys.where, keys.path, defaults=defaults, owner=model_type)
    return Part(model_type, known, keys, refusal, outside)


def check_leftovers(part: Part, notes: list[str]) -> None:
    """Every key that is about positions and that nothing has read: a note where it says nothing, else an error."""
    keys, known = part.keys, part.known
    for key, value in part.outside.items():
        if value is None or not isinstance(key, str) or not POSITIONS.search(key) or value == keys.data.get(key):
            continue
        if keys.data.get(key) is not None:
            inner = shown(keys.data[key])
            problem = f"is {shown(value)} at the top and {inner} in text_config, the part that has the positions"
            raise BadInput(keys.where, key, problem, "keep it in text_config alone")
        notes.append(f"{key} {shown(value, 40)} stands outside text_config, where nothing reads it")
    read = [key for key in keys.read if POSITIONS.search(key)]
    for key, value in keys.data.items():
        if value is None or not isinstance(key, str) or key in keys.read:
            continue
        about = POSITIONS.search(key) is not None
        close = get_close_matches(key, read, 1, 0.87)
        reason = known.inert.get(key) or ANYWHERE.get(key)
        if key in known.fixed:
            if value != known.fixed[key]:
                problem = (
                    f"is {shown(value)}, and the code of {part.model_type} does {known.fixed[key]!r} without asking"
                )
                raise keys.bad(key, problem, "check which of the two the weights are for")
            continue
        if REPEATS.get(key) in keys.read:
            _check_repeat(part, key, REPEATS[key], notes)
            continue
        if not about and (reason or not close):
            continue
        if reason is not None:
            notes.append(f"{key} {shown(value, 40)} means nothing here: {reason}")
        elif value is False:
            notes.append(f"{key} false says nothing: {part.model_type} reads no such key")
        else:
            hint = f"did you mean {close[0]!r}? else remove it" if close else "remove it, or check model_type"
            raise keys.bad(
                key, f"{shown(value, 40)} is about positions, and {part.model_type} has nothing that reads it", hint
            )


def _check_repeat(part: Part, key: str, other: str, notes: list[str]) -> None:
    keys = part.keys
    stated = keys.data.get(other)
    if other == "layer_types" and isinstance(stated, list):
        every = keys.integer(key, most=10_000) or 1
        if [entry == "full_attention" for entry in stated] != [(i + 1) % every == 0 for i in range(len(stated))]:
            # transformers 5 writes its default here beside any list, and reads the list.
            notes.append(f"{key} {every} is not what {other} lists; transformers reads the list")
        same = True
    else:
        same = stated == keys.data[key]
    if not same:
        raise keys.bad(key, f"is {shown(keys.data[key])}, and {other} says otherwise: {shown(stated)}", "remove it")


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
    if known.pattern == "linear":
        reasons.append("layers of linear attention or convolution")
    if known.pattern == "chunked":
        reasons.append("chunked attention")
    if keys.owner == "falcon" and keys.stated("alibi") is True:
        reasons.append("ALiBi added before the scores are divided by the root of the head width")
    if reasons:
        return f"{part.model_type} has {' and '.join(reasons)}"
    return part.refusal or known.refusal
