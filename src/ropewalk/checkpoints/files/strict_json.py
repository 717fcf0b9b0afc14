"""JSON of which every reader makes the same thing, within bounds known before it is parsed.

Python's own parser takes NaN, Infinity, 1e999 and the last of two equal keys; two programs then read one config
differently. Here each of these is an error that names the key. How much memory the values can take is bounded by
counting commas and brackets first: an empty list is two bytes in a file and 64 in memory.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Never

from ropewalk.checkpoints.errors import BadInput, plain

MOST_BYTES = 5 << 20
MOST_INDEX_BYTES = 32 << 20
"""For an index of shards; the largest published ones have 140,000 lines in 14 MB."""
MOST_VALUES = 500_000
DEEPEST = 64
MOST_DIGITS = 40


class _NotANumber(str):
    """A number that has no finite value, or a whole one past all use, as it is written; named once all is parsed."""


def read_json(path: str | os.PathLike[str], most: int = MOST_BYTES) -> dict[str, Any]:
    """The object in a file of at most so many bytes."""
    value = parse_json(read_bytes(Path(path), most), os.fspath(path))
    if not isinstance(value, dict):
        raise BadInput(path, "top level", f"is {_kind(value)}, not an object", "a config or an index is {...}")
    return value


def read_bytes(path: Path, most: int) -> bytes:
    """A regular file's content, which is not read at all if it is longer than `most`."""
    try:
        if not path.is_file():
            raise BadInput(path, "path", "is not a file" if path.exists() else "does not exist", "check the path")
        if (size := path.stat().st_size) > most:
            raise BadInput(path, "size", f"is {size:,} bytes, {most:,} is the most", "is this the right file?")
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise BadInput(path, "path", f"cannot be read ({error.strerror})", "check the path and its rights") from None
    if len(data) > most:
        raise BadInput(path, "size", f"grew past {most:,} bytes while it was read", "wait until it is written")
    return data


def parse_json(data: bytes, where: str) -> Any:
    """The value that the bytes spell; `where` is the file's name for messages."""
    values = data.count(b",") + data.count(b"[") + data.count(b"{")
    if values > MOST_VALUES:
        raise BadInput(where, "size", f"holds up to {values:,} values, {MOST_VALUES:,} is the most", "is it a config?")
    if len(data) > MOST_BYTES and not data.isascii():  # one wide character makes all of them four bytes
        raise BadInput(where, "size", f"is over {MOST_BYTES:,} bytes and not plain ASCII", "is this the right file?")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(where, f"byte {error.start}", "is not UTF-8", "save the file as UTF-8") from None
    del data  # frees it, if the caller has not kept it
    odd = False

    def number(text: str) -> float | _NotANumber:
        nonlocal odd
        value = float(text)
        if math.isfinite(value):
            return value
        odd = True
        return _NotANumber(text)

    def whole(text: str) -> int | _NotANumber:
        nonlocal odd
        if len(text) <= MOST_DIGITS:
            return int(text)
        odd = True
        return _NotANumber(text)

    def constant(text: str) -> _NotANumber:
        nonlocal odd
        odd = True
        return _NotANumber(text)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            seen: set[str] = set()
            again = next(key for key, _ in pairs if key in seen or seen.add(key))
            raise BadInput(where, again, "is given twice in one object", "keep the one that is meant")
        return found

    try:
        value = json.loads(text, parse_float=number, parse_int=whole, parse_constant=constant, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise BadInput(where, place, f"is not JSON ({error.msg})", "the file is damaged or of another kind") from None
    except RecursionError:
        _refuse_depth(where)
    refuse_depth_of(value, where)
    if odd:
        for path, found in _places(value):
            if isinstance(found, _NotANumber):
                problem = f"{plain(found, 50)} is not a finite number of at most {MOST_DIGITS} digits"
                raise BadInput(where, path, problem, "write the number that is meant")
    if "\\u" in text:
        for path, found in _places(value):
            if any("\ud800" <= c <= "\udfff" for c in path + (found if isinstance(found, str) else "")):
                raise BadInput(where, path, "holds half of a surrogate pair", "write the character itself")
    return value


def refuse_depth_of(value: Any, where: str) -> None:
    """Level by level, so that nothing recurses."""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [
            child
            for parent in level
            if isinstance(parent, (dict, list))
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    _refuse_depth(where)


def _refuse_depth(where: str) -> Never:
    raise BadInput(where, "nesting", f"is deeper than {DEEPEST} levels", "is this the right file?")


def _places(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that holds no others, and each key's own text, with the way to it."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield from _places(child, f"{path}.{key}" if path else key)
        yield path, None
    elif isinstance(value, list):
        for n, child in enumerate(value):
            yield from _places(child, f"{path}[{n}]")
    else:
        yield path or "top level", value


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return {list: "a list", str: "a string", bool: "true or false"}.get(type(value), "a number")
