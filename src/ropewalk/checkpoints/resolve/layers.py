"""Which layer is what: full, sliding, chunked or linear attention, and whether it rotates.

Names lie here: `no_rope_layers[i] == 1` means that layer i uses RoPE (transformers#43756), and `sliding_window` beside
`use_sliding_window: false` means nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from ropewalk.checkpoints.architectures.architecture import Architecture
from ropewalk.checkpoints.resolve.keys import LARGEST_LENGTH, Keys

FULL, SLIDING, CHUNKED, LINEAR, CONV, INDEXED = (
    "full_attention",
    "sliding_attention",
    "chunked_attention",
    "linear_attention",
    "conv",
    "indexed_attention",
)
_FIRST_NAMES = {"attention": FULL, "mamba": LINEAR}
"""Of layers of hybrids, before transformers 5."""
_ALLOWED = {
    "chunked": (FULL, CHUNKED),
    "indexed": (FULL, INDEXED),
    "linear": (FULL, LINEAR, CONV, INDEXED, *_FIRST_NAMES),
    "window": (FULL, SLIDING),
    "full": (FULL, SLIDING),
}


class Layers(NamedTuple):
    types: tuple[str, ...]
    rotates: tuple[bool, ...]
    window: int | None
    """Of the layers that are not full, in tokens a query sees, itself among them."""
    sources: dict[str, str]


def read_layers(keys: Keys, known: Architecture, count: int, notes: list[str]) -> Layers:
    sources: dict[str, str] = {}
    window = _window(keys, known, notes)
    if window is None and known.needs_window:
        remedy = f"give {known.window_key} in tokens"
        raise keys.bad(known.window_key, f"is null, and which layers of {keys.owner} rotate goes by windows", remedy)
    marked = _rotates(keys, known, count, notes, sources) if known.rotates == "listed" else None
    drawn = _drawn(keys, known, count, window, marked)
    stated = keys.listed("layer_types", count, _ALLOWED.get(known.pattern, (FULL, SLIDING)))
    if stated is not None:
        sources["window"] = keys.source("layer_types")
        stated = tuple(_FIRST_NAMES.get(kind, kind) for kind in stated)
        _compare(keys, known, stated, drawn)
    types = drawn if stated is None else stated
    if INDEXED in types:
        notes.append(_indexed(keys, known))
        types = tuple(FULL if kind == INDEXED else kind for kind in types)
    if known.last_full and types[-1] != FULL:
        notes.append(f"transformers makes Gemma 4's last layer full_attention, whatever is stated: {types[-1]}")
        types = (*types[:-1], FULL)
    if window is None and (first := next((t for t in types if t in (SLIDING, CHUNKED)), None)):
        raise keys.bad(
            "layer_types", f"has {first}, and {known.window_key} is null", f"give {known.window_key}, or full_attention"
        )
    if window is not None:
        sources["window"] = keys.source(known.window_key)
    if known.rotates == "sliding":
        rotates = tuple(t == SLIDING or (window is None and known.rotates_without_windows) for t in types)
    elif marked is not None:
        rotates = marked
    else:
        rotates = tuple(t not in (LINEAR, CONV) for t in types)
    if known.rotates_if is not None:
        key, value = known.rotates_if
        sources["kind"] = keys.source(key) if keys.data.get(key) is not None else f"no {key}"
        if keys.stated(key) != value:
            notes.append(
                f"no layer rotates: {keys.owner} does where {key} is {value!r}, and it is {keys.data.get(key)!r:.40}"
            )
            rotates = (False,) * count
    return Layers(types, rotates, window, sources)


def _indexed(keys: Keys, known: Architecture) -> str:
    width, head = keys.integer("qk_rope_head_dim"), keys.integer("index_head_dim")
    return (
        f"indexed_attention: an indexer chooses the keys that a query sees; it rotates the first {width} of its {head} "
        f"features in {known.indexer} layout, by the frequencies of the layer"
    )


def _window(keys: Keys, known: Architecture, notes: list[str]) -> int | None:
    if known.pattern in ("full", "indexed", "linear"):
        return None
    asked = known.pattern not in ("late", "odd", "used", "still") or keys.flag("use_sliding_window")
    # Where windows are off, some configs have 0 for their width.
    width = keys.integer(known.window_key, least=1 if asked else 0, most=LARGEST_LENGTH)
    if known.pattern in ("late", "odd", "used", "still"):
        if not asked:
            if keys.data.get(known.window_key) is not None:
                notes.append(f"{known.window_key} {width:,} is ignored here: use_sliding_window is not true")
            keys.read.add("max_window_layers")
            return None
        if known.pattern == "still":
            keys.read.add("max_window_layers")
        if width is None:
            notes.append(
                f"use_sliding_window is true and {known.window_key} is null: every layer attends to all tokens"
            )
    if known.pattern == "first" and width is not None:
        # Half of it on each side, and the token itself.
        return width // 2 + 1
    if width is not None and not is_causal(keys):
        raise keys.bad(
            "is_causal",
            f"is false beside {known.window_key} {width:,}: engines disagree on how far the window reaches ahead",
            f"set {known.window_key} to null, or is_causal to true",
        )
    if width is None or not sees_both_ways(keys, known):
        return width
    if width % 2:
        notes.append(
            f"{known.window_key} {width:,} is odd: transformers 4.56 and 4.57 saved half of the published one, and "
            f"halve it again to {width // 2 + 1:,} here; was it {2 * (width - 1):,}?"
        )
    return width // 2 + 1


def sees_both_ways(keys: Keys, known: Architecture) -> bool:
    """Models made for sentence vectors: half the stated window on each side, and the token itself."""
    return known.both_ways_key is not None and keys.stated(known.both_ways_key) in (True, "all")


def is_causal(keys: Keys) -> bool:
    """transformers 5 makes any decoder see both ways where its config says so: models made for sentence vectors."""
    return keys.flag("is_causal") is not False


def _rotates(
    keys: Keys, known: Architecture, count: int, notes: list[str], sources: dict[str, str]
) -> tuple[bool, ...]:
    stated = keys.stated("no_rope_layers")
    every = keys.integer("no_rope_layer_interval", most=10_000) or known.every
    drawn = tuple((layer + 1) % every != 0 for layer in range(count))
    if stated is None or (stated == [] and known.temperature):
        key = "no_rope_layer_interval"
        sources["kind"] = (
            keys.source(key) if keys.data.get(key) is not None else f"transformers default for {keys.owner}"
        )
        return drawn
    listed = keys.listed("no_rope_layers", count, (0, 1))
    marked = tuple(entry == 1 for entry in listed or ())
    sources["kind"] = f"{keys.source('no_rope_layers')} (1: rotates)"
    if keys.data.get("no_rope_layer_interval") is not None and marked != drawn:
        notes.append(f"no_rope_layer_interval {every} is not what no_rope_layers says; transformers reads the list")
    return marked


def _drawn(
    keys: Keys, known: Architecture, count: int, window: int | None, marked: tuple[bool, ...] | None
) -> tuple[str, ...]:
    """The layers' types where `layer_types` does not list them."""
    number = range(count)
    every = known.every
    if known.every_key is not None:
        if known.lettered and isinstance(letters := keys.data.get(known.every_key), str):
            return _lettered(keys, known.every_key, letters, count, window)
        every = keys.integer(known.every_key, most=10_000) or every
    match known.pattern:
        case "window" | "used" | "each":
            return (FULL if window is None else SLIDING,) * count
        case "every" if window is not None:
            return tuple(SLIDING if (i + 1) % every else FULL for i in number)
        case "late" if window is not None:
            full = keys.integer("max_window_layers", least=0, most=10_000) or 0
            return tuple(SLIDING if i >= full else FULL for i in number)
        case "odd" if window is not None:
            most = keys.integer("max_window_layers", least=0, most=10_000) or 0
            return tuple(SLIDING if i % 2 == 0 and i < most else FULL for i in number)
        case "still" if window is not None and marked is not None:
            return tuple(FULL if rotates else SLIDING for rotates in marked)
        case "first":
            return tuple(SLIDING if i % every else FULL for i in number)
        case "chunked" if marked is not None:
            return tuple(CHUNKED if rotates else FULL for rotates in marked)
        case "indexed":
            return (INDEXED,) * count
        case "linear":
            return _linear(keys, known, count, every)
        case _:
            return (FULL,) * count


def _lettered(keys: Keys, key: str, letters: str, count: int, window: int | None) -> tuple[str, ...]:
    """EXAONE's first spelling: LLLG, local and global, over and over."""
    keys.stated(key)
    if not letters or len(letters) > 100 or set(letters) - set("LG"):
        raise keys.bad(key, f"{letters!r:.40} is not a pattern of L and G", "write for example 'LLLG', or 4")
    return tuple(SLIDING if window is not None and letters[i % len(letters)] == "L" else FULL for i in range(count))


def _linear(keys: Keys, known: Architecture, count: int, every: int) -> tuple[str, ...]:
    if known.every_key is not None:
        return tuple(LINEAR if (i + 1) % every else FULL for i in range(count))
    indices = keys.stated("full_attn_idxs")
    if isinstance(indices, list):
        if any(isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < count for i in indices):
            raise keys.bad(
                "full_attn_idxs",
                "holds something that is not the number of a layer",
                f"list numbers from 0 to {count - 1}",
            )
        return tuple(FULL if i in indices else CONV for i in range(count))
    if keys.data.get("layer_types") is None:
        raise keys.bad("layer_types", "is missing, and nothing else says which layers are full attention", "add it")
    return (FULL,) * count


def _compare(keys: Keys, known: Architecture, stated: tuple[str, ...], drawn: tuple[str, ...]) -> None:
    """A pattern stated twice must be the same pattern; one that the architecture only draws by default may differ."""
    if known.pattern == "full" and SLIDING in stated:
        raise keys.bad(
            "layer_types",
            f"has sliding_attention, and transformers' {keys.owner} has only layers that attend to all tokens",
            "write full_attention, or use an architecture that has windows",
        )
    if stated == drawn or known.every_key is None or keys.data.get(known.every_key) is None:
        if known.pattern == "window" and stated != drawn:
            raise keys.bad(
                "layer_types",
                f"lists {', '.join(sorted(set(stated)))}, while transformers' {keys.owner} ignores the list and makes "
                f"every layer {drawn[0]} ({known.window_key})",
                "remove layer_types, or make it agree",
            )
        return
    place = next(i for i, (one, other) in enumerate(zip(stated, drawn, strict=True)) if one != other)
    raise keys.bad(
        "layer_types",
        f"says layer {place} is {stated[place]}, {known.every_key} makes it {drawn[place]}",
        f"keep the one that is meant: transformers reads layer_types, older engines read {known.every_key}",
    )
