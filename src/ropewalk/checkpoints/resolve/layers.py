"""Which layer is what: full, sliding, chunked or linear attention, and whether it rotates.

Names lie here: `no_rope_layers[i] == 1` means that layer i uses RoPE (transformers#43756), and `sliding_window` beside
`use_sliding_window: false` means nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ropewalk.checkpoints.architectures.architecture import Architecture
from ropewalk.checkpoints.resolve.keys import LARGEST_LENGTH, MOST_LAYERS, Keys, shown

FULL, SLIDING, CHUNKED, LINEAR, CONV, INDEXED, CROSS = (
    "full_attention",
    "sliding_attention",
    "chunked_attention",
    "linear_attention",
    "conv",
    "indexed_attention",
    "cross_attention",
)
FEED_FORWARD = ("mlp", "moe")
"""Layers of hybrids that are a feed-forward network alone."""
WITHOUT_ATTENTION = (LINEAR, CONV, CROSS, *FEED_FORWARD)
"""To other tokens of the text."""
COMPRESSED = ("compressed_sparse_attention", "heavily_compressed_attention")
_OTHER_NAMES = {"attention": FULL, "mamba": LINEAR, "minimax_m3_sparse": INDEXED}
"""Of hybrids before transformers 5, and of an indexed layer."""
_ALLOWED = {
    "chunked": (FULL, CHUNKED),
    "compressed": (SLIDING, *COMPRESSED),
    "indexed": (FULL, INDEXED),
    "sparse": (FULL, INDEXED, "minimax_m3_sparse"),
    "linear": (FULL, LINEAR, CONV, INDEXED, *FEED_FORWARD, "attention", "mamba"),
    "recurrent": (LINEAR,),
    "crossing": (FULL, CROSS),
    "window": (FULL, SLIDING),
    "full": (FULL, SLIDING),
}


class Layers(NamedTuple):
    types: tuple[str, ...]
    rotates: tuple[bool, ...]
    window: int | None
    """Of the layers that are not full, in tokens a query sees, itself among them."""
    bases: tuple[float | None, ...]
    """Of each layer, where a list says."""
    sources: dict[str, str]


def read_layers(keys: Keys, known: Architecture, count: int, notes: list[str]) -> Layers:
    sources: dict[str, str] = {}
    window = _window(keys, known, notes)
    if window is None and known.needs_window:
        remedy = f"give {known.window_key} in tokens"
        raise keys.bad(known.window_key, f"is null, and which layers of {keys.owner} rotate goes by windows", remedy)
    marked = _rotates(keys, known, count, notes, sources) if known.rotates == "listed" else None
    stated = _stated(keys, known, count)
    drawn = _drawn(keys, known, count, window, marked)
    if stated is not None:
        sources["window"] = keys.source(known.types_key)
        _compare(keys, known, stated, drawn)
    types = drawn if stated is None else stated
    if known.indexer is not None:
        keys.read.update({known.index_key, known.index_block_key or known.index_key})
    if INDEXED in types:
        if (said := _indexed(keys, known)) is not None:
            notes.append(said)
        types = _seen(types)
    if any(kind in COMPRESSED for kind in types):
        notes.append(_compressed(keys, known, window))
        types = tuple(FULL if kind in COMPRESSED else kind for kind in types)
    if known.last_full and types[-1] != FULL:
        notes.append(f"transformers makes Gemma 4's last layer full_attention, whatever is stated: {types[-1]}")
        types = (*types[:-1], FULL)
    if window is None and (first := next((t for t in types if t in (SLIDING, CHUNKED)), None)):
        raise keys.bad(
            "layer_types", f"has {first}, and {known.window_key} is null", f"give {known.window_key}, or full_attention"
        )
    if window is not None:
        sources["window"] = keys.source(known.window_key)
    bases = _bases(keys, known, count)
    if bases is not None:
        rotates = tuple(base != 0 for base in bases)
        sources["kind"] = f"{keys.source(known.bases_key or '')} (0: none)"
    elif known.rotates == "none":
        rotates = (False,) * count
        sources["kind"] = f"transformers' code for {keys.owner}"
    elif known.rotates == "sliding":
        rotates = tuple(
            t == SLIDING or forced or (window is None and known.rotates_without_windows)
            for t, forced in zip(types, _forced(keys, known, count), strict=True)
        )
    elif marked is not None:
        rotates = marked
    else:
        rotates = tuple(t not in WITHOUT_ATTENTION for t in types)
    if known.rotates_if is not None:
        key, value = known.rotates_if
        sources["kind"] = keys.source(key) if keys.data.get(key) is not None else f"no {key}"
        if keys.stated(key) != value:
            notes.append(
                f"no layer rotates: {keys.owner} does where {key} is {value!r}, and it is {keys.data.get(key)!r:.40}"
            )
            rotates = (False,) * count
    marks_alone = bases is None or known.bases_mark
    return Layers(types, rotates, window, (None,) * count if marks_alone else bases, sources)


def layer_count(keys: Keys, known: Architecture) -> int:
    """As the config states it, or as many as it names one by one."""
    for key in (known.types_key, known.marks_key):
        entries = None if known.types_key == "layer_types" or key is None else keys.data.get(key)
        if isinstance(entries, Sequence) and entries and keys.data.get(known.layer_key) is None:
            if len(entries) > MOST_LAYERS:
                raise keys.bad(key or "", f"names {len(entries):,} layers, over {MOST_LAYERS:,}", "correct it")
            return len(entries)
    return keys.needed(known.layer_key, most=MOST_LAYERS)


def _stated(keys: Keys, known: Architecture, count: int) -> tuple[str, ...] | None:
    """The layers' types as the config lists them, in one spelling or another; in two, they must agree."""
    allowed = _ALLOWED.get(known.pattern, (FULL, SLIDING))
    listed = _per_layer(keys, known.types_key, count).listed(known.types_key, count, allowed)
    found = None if listed is None else tuple(_OTHER_NAMES.get(kind, kind) for kind in listed)
    for key, other in (
        (known.marks_key, _marked(keys, known, count)),
        (known.numbers_in, _numbered(keys, known, count)),
        (known.blocks_key, _blocked(keys, known, count)),
    ):
        if found is not None and other is not None and found != other:
            place = next(i for i, (one, two) in enumerate(zip(found, other, strict=True)) if one != two)
            problem = f"makes layer {place} {other[place]}, and {known.types_key} says {found[place]}"
            raise keys.bad(key or "", problem, "keep the one that is meant: transformers reads the latter")
        found = found or other
    return found


def _per_layer(keys: Keys, key: str, count: int) -> Keys:
    """The keys, with a list cut that has entries for layers which only predict further tokens."""
    value, more = keys.stated(key), keys.data.get("num_nextn_predict_layers")
    if isinstance(value, list) and isinstance(more, int) and 0 < more == len(value) - count:
        cut = Keys({**keys.data, key: value[:count]}, keys.where, keys.path, defaults=keys.defaults, owner=keys.owner)
        cut.read = keys.read
        return cut
    return keys


def _marked(keys: Keys, known: Architecture, count: int) -> tuple[str, ...] | None:
    if known.marks_key is None:
        return None
    *outer, key = known.marks_key.split(".")
    for step in outer:
        keys = keys.inside(step, keys.mapping(step) or {})
    value = _per_layer(keys, key, count).stated(key)
    if value is None:
        return None
    if not isinstance(value, Sequence) or len(value) != count:
        raise keys.bad(key, f"{shown(value)} is not one mark for each of {count:,} layers", "correct it")
    of = {(type(mark), mark): kind for mark, kind in known.marks.items()}
    for place, mark in enumerate(value):
        if not isinstance(mark, int | str) or (type(mark), mark) not in of:
            said = ", ".join(f"{mark!r} {kind}" for mark, kind in known.marks.items())
            raise keys.bad(f"{key}[{place}]", f"{shown(mark)} is not known", f"there are {said}")
    return tuple(of[type(mark), mark] for mark in value)


def _numbered(keys: Keys, known: Architecture, count: int) -> tuple[str, ...] | None:
    """Kimi's lists of layers, which count from 1."""
    lists = None if known.numbers_in is None else keys.mapping(known.numbers_in)
    if known.numbers_in is None or not lists or "full_attn_layers" not in lists:
        return None
    inner = keys.inside(known.numbers_in, lists)
    full, linear = (_numbers(inner, key, count) for key in ("full_attn_layers", "kda_layers"))
    if sorted([*full, *linear]) != list(range(1, count + 1)):
        raise inner.bad("kda_layers", f"and full_attn_layers do not name each of {count:,} layers once", "correct it")
    return tuple(FULL if i + 1 in full else LINEAR for i in range(count))


def _blocked(keys: Keys, known: Architecture, count: int) -> tuple[str, ...] | None:
    """Nemotron NAS: attention is taken out of some layers, or put down to one linear map."""
    key = known.blocks_key
    if key is None or (blocks := keys.stated(key)) is None:
        return None
    if not isinstance(blocks, list) or len(blocks) != count:
        raise keys.bad(key, f"{shown(blocks)} is not one object for each of {count:,} layers", "correct it")
    types = []
    for place, block in enumerate(blocks):
        attention = block.get("attention") if isinstance(block, Mapping) else None
        if not isinstance(attention, Mapping):
            raise keys.bad(f"{key}[{place}]", "does not say what its attention is", 'add {"attention": {...}}')
        inner = keys.inside(f"{key}[{place}].attention", attention)
        for limit in ("window_length", "num_sink_tokens"):
            if inner.stated(limit) is not None:
                raise inner.bad(limit, f"{shown(attention[limit])} changes what a layer sees", "only null is supported")
        without = inner.flag("no_op") or inner.flag("replace_with_linear")
        types.append(FEED_FORWARD[0] if without else FULL)
    return tuple(types)


def _crossing(keys: Keys, count: int) -> tuple[str, ...]:
    key = "cross_attention_layers"
    numbers = keys.raw(key)
    if not isinstance(numbers, list) or any(type(n) is not int or not 0 <= n < count for n in numbers):
        raise keys.bad(key, f"{shown(numbers)} is not a list of layers from 0 to {count - 1:,}", "correct it")
    return tuple(CROSS if number in numbers else FULL for number in range(count))


def _numbers(keys: Keys, key: str, count: int) -> set[int]:
    listed = keys.stated(key)
    if not isinstance(listed, list) or any(type(n) is not int or not 1 <= n <= count for n in listed):
        raise keys.bad(key, f"{shown(listed)} is not a list of layers from 1 to {count:,}", "correct it")
    return set(listed)


def _bases(keys: Keys, known: Architecture, count: int) -> tuple[float, ...] | None:
    key = known.bases_key
    if key is None or (listed := _per_layer(keys, key, count).stated(key)) is None:
        return None
    if not isinstance(listed, list) or len(listed) != count:
        raise keys.bad(key, f"{shown(listed)} is not one base for each of {count:,} layers", "give one entry a layer")
    for place, base in enumerate(listed):
        number = isinstance(base, int | float) and not isinstance(base, bool)
        if not number or not (base == 0 or 1 < base <= 1e12):
            raise keys.bad(f"{key}[{place}]", f"{shown(base)} is neither 0 nor a base in (1, 1e12]", "correct it")
    return tuple(float(base) for base in listed)


def _forced(keys: Keys, known: Architecture, count: int) -> tuple[bool, ...]:
    """Dense layers that rotate, whatever their type."""
    if known.prefix_key is None or _prefix(keys, known) != 1:
        return (False,) * count
    return _dense(keys, count)


def _dense(keys: Keys, count: int) -> tuple[bool, ...]:
    """Layers without experts."""
    listed = keys.listed("mlp_layer_types", count, ("dense", "sparse"))
    if listed is not None:
        return tuple(kind == "dense" for kind in listed)
    first = keys.integer("first_k_dense_replace", least=0, most=MOST_LAYERS) or 0
    return tuple(i < first for i in range(count))


def _prefix(keys: Keys, known: Architecture) -> int:
    return 1 if known.prefix_key is None else keys.integer(known.prefix_key, most=10_000) or 1


def _seen(types: tuple[str, ...]) -> tuple[str, ...]:
    """An indexed layer may see every key."""
    return tuple(FULL if kind == INDEXED else kind for kind in types)


def _indexed(keys: Keys, known: Architecture) -> str | None:
    head = keys.integer(known.index_key)
    if head is None:
        return None
    turning = "its heads do not rotate"
    if known.indexer is not None:
        place = "last" if known.indexer_last else "first"
        many = f" {keys.integer('qk_rope_head_dim')}" if known.latent else ""
        alike = "" if known.latent else ", as many as the layer,"
        turning = (
            f"it rotates the {place}{many} of its {head} features{alike} in {known.indexer} layout, by the frequencies "
            "of the layer"
        )
    if known.index_block_key is not None and (block := keys.integer(known.index_block_key)) is not None:
        turning += f"; each of its keys is the mean of {block} tokens, rotated at the position of the first"
    return f"indexed_attention: an indexer chooses the keys that a query sees; {turning}"


def _compressed(keys: Keys, known: Architecture, window: int | None) -> str:
    """DeepSeek V4: what its compressed layers see, and what their indexer does."""
    rates = keys.mapping("compress_rates") or {}
    said = " or ".join(f"{rates.get(kind, of)}" for of, kind in known.marks.items() if kind in COMPRESSED)
    return (
        f"compressed layers see the last {window:,} tokens, and one key for each group of {said} tokens, rotated at "
        f"the position of its first; an indexer chooses among groups of {said.partition(' ')[0]}, and rotates the last "
        f"of its {keys.integer(known.index_key)} features in {known.indexer} layout, by the frequencies of the layer"
    )


def _window(keys: Keys, known: Architecture, notes: list[str]) -> int | None:
    if known.pattern in ("full", "indexed", "linear", "sparse", "recurrent", "crossing"):
        return None
    if known.past_window_key is not None and (size := keys.integer(known.past_window_key, most=LARGEST_LENGTH)):
        width = keys.integer(known.window_key, most=LARGEST_LENGTH)
        if keys.data.get(known.window_key) is not None and width not in (size, size + 1):
            problem = f"is {size:,}, the tokens before the query, and {known.window_key} is {width:,}"
            raise keys.bad(known.past_window_key, problem, f"make {known.window_key} {size + 1:,}")
        notes.append(f"{known.past_window_key} {size:,} does not count the query: a window of {size + 1:,}")
        return size + 1
    asked = known.pattern not in ("late", "odd", "used", "still") or keys.flag("use_sliding_window")
    # Where windows are off, some configs have 0 for their width.
    width = keys.integer(known.window_key, least=1 if asked else 0, most=LARGEST_LENGTH)
    if known.pattern in ("late", "odd", "used", "still"):
        if not asked:
            if keys.data.get(known.window_key) is not None:
                notes.append(f"{known.window_key} {width:,} is ignored here: use_sliding_window is not true")
            keys.read.add("max_window_layers")
            return None
        if known.pattern == "still" or width is None:
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
    offset = known.offset
    if known.offset_key is not None and (stated := keys.integer(known.offset_key, least=0, most=10_000)) is not None:
        if stated >= every:
            raise keys.bad(known.offset_key, f"is {stated}, and {known.every_key} is {every}", "make it smaller")
        offset = stated
    match known.pattern:
        case "window" | "used" | "each":
            return (FULL if window is None else SLIDING,) * count
        case "every" if window is not None:
            first = 0 if known.prefix_key is None else (*_dense(keys, count), False).index(False)
            prefix = _full_at(first, _prefix(keys, known), None)
            full = (*prefix, *_full_at(count - first, every, offset))
            return tuple(FULL if full[i] or (known.first_full and i == 0) else SLIDING for i in number)
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
            return _linear(keys, known, count, every, offset)
        case "crossing":
            return _crossing(keys, count)
        case "recurrent":
            return (LINEAR,) * count
        case "compressed":
            # Two heavily compressed layers, then one and one.
            light, heavy = COMPRESSED
            return tuple(light if i >= 2 and i % 2 else heavy for i in number)
        case _:
            return (FULL,) * count


def _lettered(keys: Keys, key: str, letters: str, count: int, window: int | None) -> tuple[str, ...]:
    """EXAONE's first spelling: LLLG, local and global, over and over."""
    keys.stated(key)
    if not letters or len(letters) > 100 or set(letters) - set("LG"):
        raise keys.bad(key, f"{letters!r:.40} is not a pattern of L and G", "write for example 'LLLG', or 4")
    return tuple(SLIDING if window is not None and letters[i % len(letters)] == "L" else FULL for i in range(count))


def _full_at(count: int, every: int, offset: int | None) -> tuple[bool, ...]:
    first = every - 1 if offset is None else offset if offset >= 0 else count + offset
    return tuple(i % every == first % every for i in range(count))


def _linear(keys: Keys, known: Architecture, count: int, every: int, offset: int | None) -> tuple[str, ...]:
    if every:
        return tuple(FULL if full else LINEAR for full in _full_at(count, every, offset))
    indices = keys.stated("full_attn_idxs")
    if isinstance(indices, list):
        if any(isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < count for i in indices):
            raise keys.bad(
                "full_attn_idxs",
                "holds something that is not the number of a layer",
                f"list numbers from 0 to {count - 1}",
            )
        return tuple(FULL if i in indices else CONV for i in range(count))
    if all(
        keys.data.get(key or "") is None
        for key in (known.types_key, known.marks_key, known.numbers_in, known.blocks_key)
    ):
        raise keys.bad(known.types_key, "is missing, and nothing else says which layers are full attention", "add it")
    return (FULL,) * count


def _compare(keys: Keys, known: Architecture, stated: tuple[str, ...], drawn: tuple[str, ...]) -> None:
    """A pattern stated twice must be the same pattern; one that the architecture only draws by default may differ."""
    stated, drawn = _seen(stated), _seen(drawn)
    if known.pattern == "every" and known.marks_key is not None and keys.data.get(known.types_key) is None:
        if stated != drawn:
            problem = f"is not the pattern that transformers' {keys.owner} has where layer_types is absent"
            raise keys.bad(known.marks_key, problem, "add layer_types: transformers reads that alone")
        return
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
