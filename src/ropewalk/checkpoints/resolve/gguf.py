"""GGUF metadata to a plan: the same values as in config.json, in llama.cpp's keys and in three small tensors.

    rope_freqs.weight                    divisors of the frequencies: Llama 3.1's ramp, worked out by the converter
    rope_factors_short/long.weight       LongRoPE's two lists

llama.cpp takes 10,000 where rope.freq_base is absent, which its converter leaves out only where the config had none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ropewalk.checkpoints.architectures.architecture import Architecture
from ropewalk.checkpoints.architectures.generated import of_transformers
from ropewalk.checkpoints.architectures.in_engines import InGGUF
from ropewalk.checkpoints.architectures.table import GGUF_TYPES, TABLE
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.resolve.gguf_scaling import read_scaling
from ropewalk.checkpoints.resolve.keys import LARGEST_HEAD, LARGEST_LENGTH, MOST_LAYERS, Keys, shown
from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.plan import Arithmetic, LayerPlan, Plan, rope_layer
from ropewalk.scaling import LongRoPE, Scaling, YaRN

if TYPE_CHECKING:
    from ropewalk.checkpoints.files.gguf import GGUF

ABOUT_POSITIONS = re.compile(
    r"^rope\.|sliding_window|context_length|alibi|relative_|temperature|_swa$|position|causal|interval"
)
LISTS = 1000
"""Longer arrays of the metadata are the tokenizer's."""


class Known(NamedTuple):
    """What is known of a general.architecture."""

    model_type: str
    row: Architecture
    gguf: InGGUF
    windows: Architecture
    """The row of files that have windows, which may be another's."""

    @classmethod
    def of(cls, arch: str) -> Known | None:
        row = TABLE.get(GGUF_TYPES.get(arch, ""))
        if row is None or row.gguf is None:
            return None
        return cls(GGUF_TYPES[arch], row, row.gguf, TABLE[row.gguf.with_windows or GGUF_TYPES[arch]])

    @property
    def every(self) -> int:
        """n, where every n-th layer is full and the rest slides by attention.sliding_window; 0: no windows."""
        return self.windows.every if self.windows.pattern in ("every", "first") else 0


def resolve_gguf(file: GGUF, *, arithmetic: Arithmetic = "exact", strict: bool = True) -> Resolved:
    where = file.path.name
    values = file.small
    arch = values.get("general.architecture")
    if not isinstance(arch, str):
        raise BadInput(where, "general.architecture", "is missing, and it says what the keys mean", "convert it again")
    known = Known.of(arch)
    if known is None:
        raise BadInput(
            where,
            "general.architecture",
            f"{shown(arch)} is not known: layout and windows would be guesses",
            "give the transformers directory it was made from",
        )
    prefix = f"{arch}."
    if any(key.startswith(prefix) for key in file.long):
        values = file.metadata  # a list of thousands of layers; making a vocabulary's for nothing takes its time
    data = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
    keys = Keys(data, where, prefix, owner=arch)
    notes: list[str] = []
    plans = _rope(file, keys, known, notes, arithmetic) if known.row.kind == "rope" else _plain(file, keys, known)
    unclear, unseen = _leftovers(keys, known, notes)
    if strict and unclear:
        raise unclear[0]
    name = values.get("general.name")
    kept = {key: v for key, v in values.items() if not isinstance(v, list) or len(v) <= LISTS}
    return Resolved(
        name=name if isinstance(name, str) and name else where,
        where=where,
        model_type=_model_type(known, plans),
        stack=known.row.stack,
        plans=plans,
        config=kept,
        notes=tuple(dict.fromkeys(notes)),
        not_understood={error.field: error.said for error in unclear},
        not_looked_at=unseen,
        refusal=_refusal(keys, known, arch),
    )


def _model_type(known: Known, plans: Mapping[str, Plan]) -> str:
    windows = any(layer.window for layer in next(iter(plans.values())).layers)
    return known.gguf.with_windows if windows and known.gguf.with_windows is not None else known.model_type


def _rope(file: GGUF, keys: Keys, known: Known, notes: list[str], arithmetic: Arithmetic) -> dict[str, Plan]:
    count = _count(keys)
    length = keys.needed("context_length", least=2, most=LARGEST_LENGTH)
    head, head_from = _head(keys)
    width = keys.integer("rope.dimension_count", least=2, most=65_536) or head
    if width % 2 or width > min(head, LARGEST_HEAD):
        problem = f"{width} of a head of {head} cannot rotate in pairs"
        raise keys.bad("rope.dimension_count", problem, f"make it even, and at most {LARGEST_HEAD:,}")
    base, base_from = _base(keys, "rope.freq_base", 10_000.0, notes)
    scaling, said = read_scaling(file, keys, known.gguf, width, length, notes)
    window, slides = _windows(keys, known, count, notes)
    local, local_from = base, base_from
    usual = known.row.defaults.get(str(known.row.local_theta_key))
    if usual is not None or keys.data.get("rope.freq_base_swa") is not None:
        local, local_from = _base(keys, "rope.freq_base_swa", usual or base, notes)
    sources = {"layout": f"llama.cpp's code for {keys.owner}", "head_width": head_from}
    sources["rotary_width"] = (
        keys.source("rope.dimension_count") if "rope.dimension_count" in keys.data else "the whole head"
    )
    settings: dict[str, Any] = {"sections": None, "arrangement": "blocks"}
    if known.row.sections is not None:
        settings = _sections(keys, known, width)
    if (
        known.row.temperature == "ministral"
        and (heat := keys.number("attention.temperature_scale", 0, 1e6)) is not None
    ):
        trained = getattr(scaling, "trained", None) or length
        settings["temperature"] = {"kind": "temperature", "form": "ministral", "trained": trained, "strength": heat}
    built: dict[tuple[bool, bool], LayerPlan] = {}
    for slide, turns in {(slide, _turns(known, i, slide)) for i, slide in enumerate(slides)}:
        seen = window if slide else None
        by = {"window": keys.source("attention.sliding_window")} if seen is not None else {}
        if not turns:
            built[slide, turns] = LayerPlan(kind="none", window=seen, sources=tuple(by.items()))
            continue
        scaled = scaling if not slide or known.windows.scales_local else None
        by |= {"base": local_from if slide else base_from, **sources, **(said if scaled is not None else {})}
        try:
            built[slide, turns] = rope_layer(
                local if slide else base,
                width,
                scaled,
                arithmetic,
                layout=known.row.gguf_layout,
                head_width=head,
                window=seen,
                settings=json.dumps(settings),
                sources=tuple(by.items()),
            )
            if not built[slide, turns].resolved:
                built[slide, turns].for_length(2)  # what does not fit must not wait for a length to be found
        except ValueError as error:
            raise keys.bad("rope.scaling", str(error)) from None
    layers = tuple(built[slide, _turns(known, i, slide)] for i, slide in enumerate(slides))
    side = "encoder" if known.row.stack == "encoder" else "decoder"
    return {side: Plan(layers=layers, **_lengths(keys, scaling, said, length))}


def _count(keys: Keys) -> int:
    blocks = keys.needed("block_count", most=MOST_LAYERS)
    spare = keys.integer("nextn_predict_layers", least=0, most=MOST_LAYERS) or 0
    if spare >= blocks:
        raise keys.bad("nextn_predict_layers", f"{spare} of {blocks} blocks leave none", "correct it")
    return blocks - spare


def _head(keys: Keys) -> tuple[int, str]:
    heads = keys.needed("attention.head_count", most=65_536)
    # MLA files state the width of the compressed keys first, and that of a head under the second name.
    for key in ("attention.key_length_mla", "attention.key_length"):
        if (stated := keys.integer(key, most=65_536)) is not None:
            return stated, keys.source(key)
    width = keys.needed("embedding_length")
    if width % heads:
        raise keys.bad("attention.head_count", f"{heads} does not divide embedding_length {width}", "correct it")
    return width // heads, f"{keys.source('embedding_length')} / attention.head_count"


def _base(keys: Keys, key: str, default: float, notes: list[str]) -> tuple[float, str]:
    base = keys.number(key, 1, 1e12)
    if base is not None:
        return base, keys.source(key)
    notes.append(f"{key} is absent: {default:,.0f}, as llama.cpp takes it")
    return default, f"llama.cpp default for {keys.owner}"


def _windows(keys: Keys, known: Known, count: int, notes: list[str]) -> tuple[int | None, list[bool]]:
    stated = keys.integer("attention.sliding_window", least=0, most=LARGEST_LENGTH)
    pattern = keys.stated("attention.sliding_window_pattern")
    width = known.gguf.window if stated is None else stated
    if known.gguf.windows_off and width:
        notes.append(
            f"attention.sliding_window {width:,} is the model's; llama.cpp has switched it off for {keys.owner}"
        )
        return width, [True] * count
    if not known.every or not width:
        if stated and not known.every:
            keys.read.discard("attention.sliding_window")  # llama.cpp has no windows for it
        return None, [False] * count
    from_first = known.windows.pattern == "first"
    if from_first:
        width = width // 2 + 1
    if isinstance(pattern, list):
        if len(pattern) < count or any(not isinstance(entry, bool | int) for entry in pattern):
            raise keys.bad(
                "attention.sliding_window_pattern", f"does not say which of {count} layers slide", "correct it"
            )
        return width, [bool(entry) for entry in pattern[:count]]
    every = keys.integer("attention.sliding_window_pattern", least=0, most=10_000)
    every = known.every if every is None else every
    full = 0 if from_first else every - 1
    return width, [every == 0 or i % every != full for i in range(count)]


def _turns(known: Known, layer: int, slides: bool) -> bool:
    if known.row.rotates == "listed":  # the list is not in the file
        return (layer + 1) % known.row.every != 0
    return known.row.rotates == "all" or slides


def _sections(keys: Keys, known: Known, width: int) -> dict[str, Any]:
    sections = keys.stated("rope.dimension_sections")
    if (
        not isinstance(sections, list)
        or any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in sections)
        or sum(sections) != width // 2
        or any(sections[3:])
    ):
        raise keys.bad(
            "rope.dimension_sections", f"{sections!r} does not divide {width // 2} frequencies among the axes", "fix it"
        )
    return {"sections": sections[:3], "arrangement": known.row.sections}


def _lengths(keys: Keys, scaling: Scaling | None, said: dict[str, str], length: int) -> dict[str, Any]:
    at = keys.source("context_length")
    trained = getattr(scaling, "trained", None)
    if trained is None or (isinstance(scaling, LongRoPE) and scaling.length is not None):
        return {"stated": length, "sources": (("stated", at),)}
    extended, extended_at = length, at
    if isinstance(scaling, YaRN) and round(scaling.factor * trained) != length:
        extended, extended_at = round(scaling.factor * trained), f"{said['factor']} x trained"
    sources = (("trained", said.get("trained", at)), ("extended", extended_at))
    return {"trained": trained, "extended": extended, "sources": sources}


def _plain(file: GGUF, keys: Keys, known: Known) -> dict[str, Plan]:
    count = keys.needed("block_count", most=MOST_LAYERS)
    length = keys.integer("context_length", least=1, most=LARGEST_LENGTH)
    source = (("stated", keys.source("context_length")),) if length is not None else ()
    code = f"llama.cpp's code for {keys.owner}"
    if known.row.kind == "alibi":
        steepest = keys.number("attention.max_alibi_bias", 0, 1e6)
        if steepest not in (None, 8.0):
            raise keys.bad("attention.max_alibi_bias", f"{steepest:g} changes the slopes; only 8 is supported", "use 8")
        layer = LayerPlan(kind="alibi", sources=(("kind", code),))
        return {"decoder": Plan(layers=(layer,) * count, stated=length, sources=source)}
    if known.row.kind == "t5":
        buckets = keys.needed("attention.relative_buckets_count", least=4, most=65_536)
        decoder = keys.integer("decoder_block_count", most=MOST_LAYERS) or count
        plans = {}
        for side, layers in (("encoder", count), ("decoder", decoder)):
            settings = {"buckets": buckets, "farthest": 128, "bidirectional": side == "encoder"}
            layer = LayerPlan(kind="t5", settings=json.dumps(settings), sources=(("farthest", code),))
            plans[side] = Plan(layers=(layer,) * layers, stated=length, sources=source)
        return plans
    table = file.tensors.get("position_embd.weight")
    if table is None or len(table.shape) != 2:
        raise keys.bad("position_embd.weight", "the learned table is not in the file", "give the file with the weights")
    rows = table.shape[0]
    layer = LayerPlan(
        kind="learned",
        settings=json.dumps({"longest": rows, "first_row": 0}),
        sources=(("longest", f"{keys.where}:position_embd.weight"),),
    )
    sources = (*source, ("table", f"{keys.where}:position_embd.weight"))
    side = "encoder" if known.row.stack == "encoder" else "decoder"
    return {side: Plan(layers=(layer,) * count, stated=length, table=rows, sources=sources)}


def _leftovers(keys: Keys, known: Known, notes: list[str]) -> tuple[list[BadInput], tuple[str, ...]]:
    """Keys about positions that nothing has read, and keys that are in no list."""
    unclear: list[BadInput] = []
    unseen: list[str] = []
    for key, value in keys.data.items():
        if key in keys.read or key in of_transformers("gguf") or value is None:
            continue
        if key == "attention.causal" and value is (known.row.stack != "encoder"):
            continue
        if not ABOUT_POSITIONS.search(key):
            unseen.append(f"{keys.path}{key}")
            continue
        if key == "rope.scaling.finetuned":
            notes.append("rope.scaling.finetuned is ignored: no engine uses it")
            continue
        problem = f"{shown(value)} looks like a position setting, but nothing reads it for {keys.owner}"
        if key == "attention.sliding_window":
            problem = f"{shown(value)}: llama.cpp has no windows for {keys.owner} and ignores it"
        unclear.append(keys.bad(key, problem, "remove it, or convert again"))
    return unclear, tuple(unseen)


def _refusal(keys: Keys, known: Known, arch: str) -> str | None:
    reasons = []
    if known.row.latent:
        reasons.append("multi-head latent attention (MLA)")
    experts = keys.integer("expert_count", least=0)
    if known.row.experts or experts:
        reasons.append("a mixture of experts")
    if known.row.sections is not None:
        reasons.append("multimodal M-RoPE")
    return f"{arch} has {' and '.join(reasons)}" if reasons else None
