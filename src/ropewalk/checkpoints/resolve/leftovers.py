"""The keys of a config that nothing has read: harmless ones by a list, and every other one named in the answer.

config_keys.json lists, for each architecture, the keys that are not about positions (scripts/config_keys.py made it
from transformers' own classes). A key outside the list is one that nobody looked at. Where its name sounds like
positions it is not understood: an engine may compute with it, so no model is built from such a config.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from ropewalk.checkpoints.architectures.architecture import Stack
from ropewalk.checkpoints.architectures.generated import of_transformers
from ropewalk.checkpoints.architectures.table import ANYWHERE, REPEATS
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.resolve.keys import shown
from ropewalk.checkpoints.resolve.part import Part
from ropewalk.plan import Plan

SOUNDS_LIKE_POSITIONS = re.compile(
    r"rope|rotary|theta|yarn|ntk|alibi|mscale|layer_types|sliding|window|position|relative_attention|base_freq|chunk"
    r"|temperature_tuning|floor_scale|attn_scale|n_ctx|max_seq|seq_len|context_length|full_attn|full_attention"
    r"|local_att|global_att|longrope|llama_4_scaling|logn|pos_emb|model_max_length|nope|interpolat|attn_type"
    r"|attention_type|attn_layer|attention_layer|sparse_att|block_sparse|dilat|causal|bidirectional|sinus"
)
"""What the name of a key about positions has in it. Only keys that are in no list are asked."""

MEANT = {
    "dual_chunk_attention_config": (
        "is dual chunk attention: engines that read it map distances past its chunk_size back within it, so positions "
        "there differ from this plan; transformers 5 does not read it"
    ),
    "is_decoder": "lets an encoder attend to earlier tokens alone, which is not in this plan",
    "mla_use_nope": "is Kimi's switch for latent attention without rotation, which is not in this plan",
    "attn_type_list": "is MiniMax's list of layers with linear attention (0) and full attention (1)",
    "per_layer_config": "changes values for single layers, which is read on Gemma 4 alone",
    "interpolate_factor": "divides positions in the training code of some Phi models; transformers does not read it",
}
"""What keys mean that are known and not understood here."""


class Leftovers(NamedTuple):
    not_understood: dict[str, BadInput]
    """About positions by their names, with what an error says of each."""
    not_looked_at: tuple[str, ...]


def check_leftovers(part: Part, plan: Plan, stack: Stack, notes: list[str]) -> Leftovers:
    """What nothing has read: noted where it is known to mean nothing, not understood, or not looked at."""
    _check_outside(part, notes)
    keys, known = part.keys, part.known
    read = [key for key in keys.read if SOUNDS_LIKE_POSITIONS.search(key)]
    listed = of_transformers("keys")
    harmless = {*listed["everywhere"], *listed.get(part.model_type, ()), *known.harmless}
    unclear: dict[str, BadInput] = {}
    unseen: list[str] = []
    for key, value in keys.data.items():
        if value is None or not isinstance(key, str) or key in keys.read:
            continue
        if REPEATS.get(key) in keys.read:
            _check_repeat(part, key, REPEATS[key], notes)
        elif key in known.fixed:
            if value != known.fixed[key]:
                problem = f"is {shown(value)}, and the code of {part.model_type} always uses {known.fixed[key]!r}"
                unclear[key] = keys.bad(key, problem, "check which of the two the weights are for")
        elif key in harmless or _agrees(key, value, plan, stack):
            continue
        elif (reason := known.inert.get(key) or ANYWHERE.get(key)) is not None:
            notes.append(f"{key} {shown(value, 40)} is ignored here: {reason}")
        elif key in MEANT:
            unclear[key] = keys.bad(key, f"{shown(value, 40)} {MEANT[key]}", "check what the weights are for")
        elif (
            (close := get_close_matches(key, read, 1, 0.87)) or key in _CONSISTENT or SOUNDS_LIKE_POSITIONS.search(key)
        ):
            if value is False and not close and key not in (*_ROTATES, "is_causal"):
                notes.append(f"{key} false is ignored: {part.model_type} reads no such key")
                continue
            hint = f"did you mean {close[0]!r}? else remove it" if close else "remove it, or check model_type"
            unclear[key] = keys.bad(
                key,
                f"{shown(value, 40)} looks like a position setting, but nothing in {part.model_type} reads it",
                hint,
            )
        else:
            unseen.append(key)
    return Leftovers(unclear, tuple(unseen))


def _heads_alone(entry: Any) -> bool:
    return isinstance(entry, Mapping) and {*entry} <= {"num_attention_heads", "num_key_value_heads"}


def _rotate(plan: Plan) -> set[bool]:
    return {layer.base is not None for layer in plan.layers}


def _all_or_none(value: Any, plan: Plan, _: Stack) -> bool:
    return all(rotates is value for rotates in _rotate(plan))


_ROTATES = (
    *("use_rope", "rope", "rotary", "use_rotary", "use_rotary_embeddings", "use_rotary_position_embeddings"),
    "use_rotary_pos_emb",
)
_CONSISTENT: Mapping[str, Callable[[Any, Plan, Stack], bool]] = {
    "head_dim": lambda value, plan, _: all(layer.head_width in (None, value) for layer in plan.layers),
    "is_decoder": lambda value, _, stack: value is False or stack != "encoder",
    "is_causal": lambda value, _, stack: value is (stack != "encoder"),  # transformers 5 reads it on any decoder
    "position_embedding_type": lambda value, plan, _: value in ("rope", "rotary") and _rotate(plan) == {True},
    # A window that no text of the stated length reaches.
    "sliding_window": lambda value, plan, _: type(value) is int and plan.stated is not None and value >= plan.stated,
    "attn_type_list": lambda value, plan, _: value == [1] * len(plan.layers) and _rotate(plan) == {True},
    "interpolate_factor": lambda value, *_: value == 1,
    # Numbers of heads change no position.
    "per_layer_config": lambda value, *_: isinstance(value, Mapping) and all(map(_heads_alone, value.values())),
    **dict.fromkeys(_ROTATES, _all_or_none),
}
"""Keys that an architecture does not read, and when they say what the plan is anyway."""


def _agrees(key: str, value: Any, plan: Plan, stack: Stack) -> bool:
    return key in _CONSISTENT and _CONSISTENT[key](value, plan, stack)


def _check_outside(part: Part, notes: list[str]) -> None:
    """Keys around a text part: the same as within, or an error."""
    keys, within = part.keys, ".".join(part.path)
    for key, value in part.outside.items():
        if (
            value is None
            or not isinstance(key, str)
            or not SOUNDS_LIKE_POSITIONS.search(key)
            or value == keys.data.get(key)
        ):
            continue
        if keys.data.get(key) is not None:
            inner = shown(keys.data[key])
            problem = f"is {shown(value)} at the top and {inner} in {within}, the part that has the positions"
            raise BadInput(keys.where, key, problem, f"keep it in {within} alone")
        notes.append(f"{key} {shown(value, 40)} is outside {within}, where nothing reads it")


def _check_repeat(part: Part, key: str, other: str, notes: list[str]) -> None:
    keys = part.keys
    stated = keys.data.get(other)
    if other == "layer_types" and isinstance(stated, Sequence):
        every = keys.integer(key, most=10_000) or 1
        if [entry == "full_attention" for entry in stated] != [(i + 1) % every == 0 for i in range(len(stated))]:
            # transformers 5 writes its default here beside any list, and reads the list.
            notes.append(f"{key} {every} is not what {other} lists; transformers reads the list")
    elif stated != keys.data[key]:
        raise keys.bad(key, f"is {shown(keys.data[key])}, and {other} says otherwise: {shown(stated)}", "remove it")
