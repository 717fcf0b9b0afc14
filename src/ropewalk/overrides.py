"""Configs as people write them: a YAML file, `key=value` on the command line, and all mistakes answered at once.

    defaults  <-  file  <-  key=value ...        each laid over the one before it by `merge`

`merge` has one rule of its own: changing `kind` drops the old kind's keys. {kind: alibi} over {kind: rope, base: 5e5}
is {kind: alibi}; the same kind again keeps them. `encoding: alibi` is short for `encoding: {kind: alibi}`, in files and
on the command line. Of two ways to say one thing (train.tokens, train.steps) the later layer's stands. All `key=value`
of one command are one layer, so their order does not matter and none silently undoes another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from ropewalk.yaml_text import DEEPEST, dotted, parse, short

LARGEST_FILE = 256 * 1024
"""Bytes. A recipe is written by hand; the pure Python parser takes seconds for a megabyte."""

Root = TypeVar("Root", bound=BaseModel)

WORDS_ELSEWHERE = {
    **dict.fromkeys(("dim", "d_model", "hidden_size", "n_embd", "model_dim"), "width"),
    **dict.fromkeys(("n_heads", "num_heads", "n_head", "num_attention_heads"), "heads"),
    **dict.fromkeys(("kv_heads", "n_kv_heads", "num_kv_heads", "num_key_value_heads"), "key_heads"),
    **dict.fromkeys(("head_dim", "d_head", "d_k", "head_size"), "head_width"),
    **dict.fromkeys(("v_head_dim", "d_v"), "value_width"),
    **dict.fromkeys(("depth", "n_layers", "num_layers", "n_layer", "num_hidden_layers"), "layers"),
    **dict.fromkeys(("position", "positions", "position_embedding", "pos_emb", "embedding"), "encoding"),
    **dict.fromkeys(("theta", "rope_theta"), "base"),
    **dict.fromkeys(("rope_scaling", "rope_parameters"), "scaling"),
    **dict.fromkeys(("type", "name", "rope_type"), "kind"),
    **dict.fromkeys(("max_position_embeddings", "max_length", "max_len", "n_positions"), "longest"),
    **dict.fromkeys(("original_max_position_embeddings",), "trained"),
    **dict.fromkeys(("sliding_window", "window_size"), "window"),
}
"""What other codebases call our keys: no spelling check would find these."""


class Problem(NamedTuple):
    key: str
    says: str


class BadConfig(ValueError):
    """A config that cannot be used: where it came from, and everything that is wrong with it."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        self.source, self.problems = source, tuple(problems)
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        width = max((len(problem.key) for problem in problems), default=0)
        lines = [f"  {key:{width}}   {says}" if width else f"  {says}" for key, says in problems]
        super().__init__("\n".join([f"{source}, {count}:", *lines]))


def load(
    root: type[Root],
    path: str | Path | None = None,
    assignments: Sequence[str] = (),
    adapt: Callable[[dict[str, Any]], dict[str, Any]] = lambda data: data,
) -> Root:
    """The config of a file, or the defaults where there is none, with `key=value` laid over it. adapt: what is done to
    the whole before it is validated."""
    parts = [str(path)] if path is not None else []
    source = " + ".join([*parts, "command line"] if assignments else parts) or "defaults"
    data = {} if path is None else expand(read(path), root)
    data = adapt(expand(layered(root, data, assigned(assignments)), root))
    try:
        return root.model_validate(data)
    except ValidationError as error:
        raise problems(error, root, source, data) from None


def layered(root: type[BaseModel], under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """One config of a model over another, by the rules of this file."""
    return merge(_without_alternatives(root, under, over), over)


def _without_alternatives(annotation: Any, under: Any, over: Any) -> Any:
    """A config without what the layer over it says in another way. A model lists such keys in `alternatives`: a file's
    train.tokens gives way to train.steps=300, as it would to train.tokens=5M."""
    if not isinstance(under, dict) or not isinstance(over, dict):
        return under
    groups = getattr(_owner(annotation, under), "alternatives", ())
    said = {key for group in groups for key in group if over.keys() & group and key not in over}
    return {
        key: _without_alternatives(_inside(annotation, under, key)[0], value, over.get(key))
        for key, value in under.items()
        if key not in said
    }


def read(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise BadConfig(str(path), [Problem("", _unreadable(path, error))]) from None
    if len(content) > LARGEST_FILE:
        raise BadConfig(str(path), [Problem("", f"larger than {LARGEST_FILE:,} bytes; a config is a small YAML file")])
    try:
        data = parse(content.decode("utf-8-sig"))
    except ValueError as error:
        raise BadConfig(str(path), [Problem("", str(error))]) from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise BadConfig(str(path), [Problem("", f"holds {short(data)}, not `key: value` lines")])
    return data


def _unreadable(path: Path, error: OSError) -> str:
    if not isinstance(error, FileNotFoundError):
        return f"cannot be read: {error.strerror}"
    beside = [p.name for p in path.parent.iterdir() if p.is_file()] if path.parent.is_dir() else []
    near = get_close_matches(path.name, beside, n=1)
    return f"no such file. Did you mean {path.parent / near[0]}?" if near else "no such file"


def assigned(assignments: Sequence[str]) -> dict[str, Any]:
    """`model.encoding=rope model.encoding.base=5e5` as one mapping. A number in a key is a place in a list."""
    layer: dict[str, Any] = {}
    wrong = []
    for text in assignments:
        key, equals, value = text.partition("=")
        steps = key.strip().split(".")
        if not equals or not all(steps) or len(steps) > DEEPEST:
            wrong.append(Problem(dotted((text,)), "is no key=value; write for example model.encoding=alibi"))
            continue
        try:
            nested = parse(value)
        except ValueError as error:
            wrong.append(Problem(key, f"{short(value)} cannot be read: {error}"))
            continue
        for step in reversed(steps):
            nested = {step: nested}
        layer = _lay(layer, nested, drop=False)
    if wrong:
        raise BadConfig("command line", wrong)
    return layer


def merge(under: Any, over: Any) -> Any:
    """One config over another. Changing `kind` drops the old kind's keys; nothing given is changed in place."""
    return _lay(under, over, drop=True)


def _lay(under: Any, over: Any, drop: bool) -> Any:
    if isinstance(over, str) and isinstance(under, dict) and ("kind" in under or not drop):
        over = {"kind": over}
    if isinstance(under, str) and isinstance(over, dict):
        under = {"kind": under}
    if isinstance(under, list) and isinstance(over, dict) and _are_places(over, len(under)):
        return [_lay(value, over[str(i)], drop) if str(i) in over else value for i, value in enumerate(under)]
    if not isinstance(under, dict) or not isinstance(over, dict):
        return over
    if drop and "kind" in under and "kind" in over and under["kind"] != over["kind"]:
        return over
    return {**under, **{key: _lay(under[key], value, drop) if key in under else value for key, value in over.items()}}


def _are_places(over: dict[str, Any], length: int) -> bool:
    return bool(over) and all(re.fullmatch("[0-9]{1,6}", key) and int(key) < length for key in over)


def expand(data: Any, annotation: Any, default: Any = None) -> Any:
    """Shorthands written out, so that overrides can reach inside: a kind's name becomes {kind: name}, and a mapping
    without `kind` gets that of the field's default. A model with another one has it as `shorthand`."""
    classes = list(_classes(annotation))
    if isinstance(data, str):
        written = (getattr(found, "shorthand", None) for found in classes)
        data = next((each(data) for each in written if each), data)
    if any("kind" in found.model_fields for found in classes) and str not in _options(annotation):
        if isinstance(data, str):
            data = {"kind": data}
        elif isinstance(data, dict) and "kind" not in data and isinstance(default, BaseModel):
            data = {"kind": getattr(default, "kind", None), **data}
    if isinstance(data, dict):
        return {key: expand(value, *_inside(annotation, data, key)) for key, value in data.items()}
    if isinstance(data, list):
        return [expand(value, *_inside(annotation, data, i)) for i, value in enumerate(data)]
    return data


def problems(error: ValidationError, root: type[BaseModel], source: str, data: Any = None) -> BadConfig:
    """Everything pydantic found, in our words. `data` is what was validated, with shorthands expanded."""
    found: dict[Problem, None] = {}
    for detail in error.errors(include_url=False):
        # A default that needs other fields has nothing to say when those are wrong.
        if detail["type"] != "default_factory_not_called":
            path = detail["loc"] if data is None else _path(detail["loc"], root, data)
            found[Problem(dotted(path), _say(dict(detail), path, root, data))] = None
    return BadConfig(source, list(found))


def refusal(*faults: tuple[str, Any, str]) -> ValidationError:
    """To be raised by a validator of a whole model: (key, value, what is wrong) for each key of it that is at fault."""
    errors: list[Any] = [
        {"type": "value_error", "loc": (key,), "input": value, "ctx": {"error": ValueError(says)}}
        for key, value, says in faults
    ]
    return ValidationError.from_exception_data("config", errors)


def _path(loc: Sequence[str | int], root: Any, data: Any) -> tuple[str | int, ...]:
    """Where in the data an error is: pydantic's location also names the variants it tried, which nobody wrote."""
    path: list[str | int] = []
    for number, step in enumerate(loc):
        owner = _owner(root, data)
        given = (isinstance(data, dict) and step in data) or (isinstance(data, list) and isinstance(step, int))
        if given or (number == len(loc) - 1 and owner and step in owner.model_fields):
            path.append(step)
            root, data = _inside(root, data, step)[0], _item(data, step)
    return tuple(path)


def _say(detail: dict[str, Any], path: tuple[str | int, ...], root: Any, data: Any) -> str:
    fault, given, context = detail["type"], detail["input"], detail.get("ctx", {})
    parent, value = root, data
    for step in path[:-1]:
        parent, _ = _inside(parent, value, step)
        value = _item(value, step)
    owner = _owner(parent, value)
    if fault == "extra_forbidden":
        return _no_such_key(path, owner, value, root, data)
    if fault == "missing":
        field = owner.model_fields.get(str(path[-1])) if owner else None
        what = f" ({field.description.rstrip('.')})" if field and field.description else ""
        return f"missing{what}; write {dotted(path)}=..."
    if fault in ("literal_error", "enum"):
        return _one_of(given, re.findall("'([^']*)'", str(context.get("expected"))) or [str(context.get("expected"))])
    if fault == "union_tag_invalid":
        return _one_of(context.get("tag"), re.findall("'([^']*)'", str(context.get("expected_tags"))), "kind ")
    if fault == "union_tag_not_found":
        kinds = [found.model_fields["kind"].default for found in _classes(_inside(parent, value, path[-1])[0])]
        return f"needs a kind: {', '.join(kinds)}"
    if fault == "value_error":
        return str(context.get("error", detail["msg"])).removeprefix("Value error, ")
    if fault in ("model_type", "dict_type", "model_attributes_type"):
        return f"should be `key: value` lines, got {short(given)}"
    if fault in ("tuple_type", "list_type"):
        example = f", such as {path[-1]}=[{given}]" if isinstance(given, str | int | float) else ""
        return f"should be a list{example}; got {short(given)}"
    if fault in ("too_short", "too_long"):
        word, bound = ("least", context["min_length"]) if fault == "too_short" else ("most", context["max_length"])
        return f"needs at {word} {bound} {'entry' if bound == 1 else 'entries'}, has {context['actual_length']}"
    says = detail["msg"].removeprefix("Input ")
    says = re.sub(", unable to parse string as an? .*|, got a number with a fractional part", "", says)
    return f"{says[:1].lower()}{says[1:]}, got {short(given)}"


def _no_such_key(path: tuple[str | int, ...], owner: type[BaseModel] | None, value: Any, root: Any, data: Any) -> str:
    above, wrong = path[:-1], str(path[-1])
    names = list(owner.model_fields) if owner else []
    below, anywhere = list(_keys(owner, value, above)), list(_keys(root, data, ()))
    ours, kind = WORDS_ELSEWHERE.get(wrong), _kind_of(owner)
    # Another kind's key is not meant where this kind has none; a key of what the kind is part of may be.
    around = anywhere if kind is None else [found for found in anywhere if found[:-1] == above[: len(found) - 1]]
    # A word of another codebase, the right word in the wrong place, a slip of the fingers; what lies nearest first.
    near = [found for found in (*below, *anywhere) if found[-1] == ours]
    near += [found for found in (*below, *around) if found[-1] == wrong]
    near += [(*above, name) for name in get_close_matches(wrong, names, n=1)]
    if near:
        return f"no such key. Did you mean {dotted(near[0])}?"
    if kind is None:
        return f"no such key; there are {', '.join(names)}"
    return f"no such key; {kind} has {', '.join(name for name in names if name != 'kind') or 'no settings'}"


def _one_of(given: Any, allowed: list[str], what: str = "") -> str:
    near = get_close_matches(str(given), allowed, n=1)
    hint = f". Did you mean {near[0]}?" if near else ""
    return f"{what}should be {either(allowed)}, got {short(given)}{hint}"


def either(words: Sequence[str]) -> str:
    """a, b or c"""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _keys(annotation: Any, data: Any, above: tuple[str | int, ...], depth: int = 4) -> Iterator[tuple[str | int, ...]]:
    """Every key that could be written below, nearest first."""
    owner = _owner(annotation, data)
    fields = owner.model_fields if owner and depth else {}
    yield from ((*above, name) for name in fields)
    for name, field in fields.items():
        # Below a key that is not given lies what its default has.
        given = _item(data, name)
        kind = getattr(field.default, "kind", None)
        below = {"kind": kind} if given is None and kind else given
        yield from _keys(field.annotation, below, (*above, name), depth - 1)


def _inside(annotation: Any, data: Any, step: str | int) -> tuple[Any, Any]:
    """The type of what lies at one key or place, and its default."""
    owner = _owner(annotation, data)
    if owner is not None:
        field = owner.model_fields.get(str(step))
        return (field.annotation, field.default) if field else (None, None)
    for option in _options(annotation):
        origin, arguments = get_origin(option), get_args(option)
        if origin in ((dict, Mapping) if isinstance(data, dict) else (list, tuple, Sequence)):
            return arguments[isinstance(data, dict)], None
    return None, None


def _owner(annotation: Any, data: Any) -> type[BaseModel] | None:
    """Which model describes this mapping: the one of its `kind`, or else the one that knows most of its keys."""
    if not isinstance(data, (dict, NoneType)):
        return None
    keys, classes = data or {}, list(_classes(annotation))
    variants = [
        each for found in classes for each in _descendants(found) if "kind" in keys and _kind_of(each) == keys["kind"]
    ]
    # A module imported again defines its kind again: the last one counts.
    return (
        variants[-1] if variants else max(classes, key=lambda c: len(keys.keys() & c.model_fields.keys()), default=None)
    )


def _kind_of(model: type[BaseModel] | None) -> str | None:
    field = model.model_fields.get("kind") if model else None
    return field.default if field and isinstance(field.default, str) else None


def _descendants(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for below in model.__subclasses__():
        yield from _descendants(below)


def _classes(annotation: Any) -> Iterator[type[BaseModel]]:
    for option in _options(annotation):
        if isinstance(option, type) and issubclass(option, BaseModel):
            yield option


def _options(annotation: Any) -> list[Any]:
    """A type without its annotations, a union as its members."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _options(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return [option for argument in get_args(annotation) for option in _options(argument)]
    return [annotation]


def _item(data: Any, step: str | int) -> Any:
    if isinstance(data, dict):
        return data.get(step)
    return data[step] if isinstance(data, list) and isinstance(step, int) and step < len(data) else None
