"""Finds encodings: the file name is the kind, and a dotted kind is outside the package: a module, or a class in one."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import sys
from collections.abc import Collection
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, TypeGuard

from pydantic import GetJsonSchemaHandler, PlainValidator, SerializeAsAny, ValidationError, ValidationInfo
from pydantic_core import CoreSchema

from ropewalk.encodings.base import Encoding
from ropewalk.outside import import_named
from ropewalk.overrides import expand, problems
from ropewalk.settings import Written

NOT_KINDS = ("absolute", "base", "find", "template")
"""Files beside the encodings that are none."""
ALLOWED = "kinds"
"""In the context of a validation: the kinds of other packages that may be imported. Without it, any may."""


class NotAllowed(ValueError):
    """A kind of another package, named by what may not have it imported."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"the kind {kind!r} is a module of another package, which was not allowed")
        self.kind = kind


def code_of(encoding: type[Encoding]) -> str:
    """Of the file it stands in: outside the package it changes without a version."""
    file = inspect.getsourcefile(encoding)
    return "" if file is None else Path(file).read_text(encoding="utf-8")


def names() -> tuple[str, ...]:
    """The kinds this package has, sorted."""
    found = (module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    return tuple(sorted(name for name in found if name not in NOT_KINDS))


def find(kind: str) -> type[Encoding]:
    """The class of a kind: `alibi` is ropewalk/encodings/alibi.py, `my_pkg.cable` is the module my_pkg.cable, and
    `flat.Flat` is the class Flat in flat.py. Without a dot a kind is ours: whatever lies in the current folder, it is
    not taken for an encoding that a config names without one."""
    if "." in kind and not all(part.isidentifier() for part in kind.split(".")):
        raise ValueError(f"the kind {kind!r} is no module's name; outside the package it reads my_pkg.module")
    if "." not in kind and kind not in names():
        near = get_close_matches(kind, names(), n=1)
        hint = f"Did you mean {near[0]}? " if near else ""
        if kind.isidentifier() and os.path.isfile(f"{kind}.py"):
            hint = f"For the class Name in {kind}.py write {kind}.Name, here and as its Config's kind. "
        outside = "outside: my_pkg.module, module.Class"
        raise ValueError(f"no encoding of kind {kind!r}. {hint}There are {', '.join(names())}; {outside}")
    found = _outside(kind) if "." in kind else _only(importlib.import_module(f"{__package__}.{kind}"))
    declared = found.Config.model_fields["kind"].default
    if declared != kind:
        raise ValueError(f"{found.__name__}.Config.kind is {declared!r}; it must be {kind!r}, by which it is found")
    return found


def _outside(kind: str) -> type[Encoding]:
    try:
        return _only(import_named(kind))
    except ModuleNotFoundError as error:
        if error.name is None or not f"{kind}.".startswith(f"{error.name}."):
            raise  # the module is there; something it imports is not
        above, _, name = kind.rpartition(".")
        # What a module is part of is imported before it: a class is looked for in what has been.
        found = getattr(sys.modules.get(above), name, None) if error.name == kind else None
        if not _is_encoding(found):
            raise ValueError(f"the kind {kind!r} is no importable module, and no encoding in one: {error}") from error
        return found


def _only(module: ModuleType) -> type[Encoding]:
    own = [found for _, found in inspect.getmembers(module, _is_encoding) if found.__module__ == module.__name__]
    if len(own) != 1:
        raise ValueError(
            f"{module.__name__} must define exactly one Encoding, it defines {len(own)}; one of several is "
            f"{module.__name__}.Class"
        )
    return own[0]


def _is_encoding(found: object) -> TypeGuard[type[Encoding]]:
    return inspect.isclass(found) and issubclass(found, Encoding) and not found.__name__.startswith("_")


def parse(value: Any, kinds: Collection[str] | None = None) -> Encoding.Config:
    """A config from what a person writes: `alibi`, `{kind: rope, base: 500000}`, or a config object.

    kinds: those of other packages that may be imported, for what no person wrote; None: any.
    """
    if isinstance(value, Encoding.Config):
        return value
    if value is None:
        value = "none"  # as in config files of other libraries, and as `window: null`
    if isinstance(value, str):
        value = {"kind": value}
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise ValueError(f"an encoding is a kind or a mapping with `kind:`, got {value!r}; kinds: {', '.join(names())}")
    kind = value["kind"]
    if kinds is not None and "." in kind and kind not in kinds:
        raise NotAllowed(kind)
    return find(kind).Config.model_validate(value, context=None if kinds is None else {ALLOWED: kinds})


def validated(value: Any, info: ValidationInfo) -> Encoding.Config:
    """`parse` for a field: only kinds that the validation's context allows, at any depth."""
    return parse(value, (info.context or {}).get(ALLOWED))


def build(
    config: Encoding.Config | str | dict[str, Any],
    *,
    width: int | None = None,
    heads: int | None = None,
    head_width: int | None = None,
) -> Encoding:
    """The encoding a config describes, for a model of these sizes."""
    written = expand(config, Encoding.Config) if isinstance(config, dict) else config
    try:
        parsed = parse(written)
    except ValidationError as error:
        raise problems(error, Encoding.Config, "encoding", written) from None
    return find(parsed.kind)(parsed, width=width, heads=heads, head_width=head_width)


class _Kinds:
    """The JSON Schema of an encoding, for editors: a name, or the settings of a kind. Read off the files when asked, so
    a new one needs no edit here; kinds of other packages are known by their dot."""

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        outside = {"type": "string", "pattern": r"\."}
        shapes = [handler(find(name).Config.__pydantic_core_schema__) for name in names()]
        foreign = {"type": "object", "properties": {"kind": outside}, "required": ["kind"]}
        return {"anyOf": [{"type": "string", "enum": list(names())}, outside, *shapes, foreign]}


AnyEncoding = Annotated[Written[SerializeAsAny[Encoding.Config]], PlainValidator(validated), _Kinds()]
"""The type of a config field that holds any encoding."""
