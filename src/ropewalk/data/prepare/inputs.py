"""Documents and pairs out of files, one at a time, from any place that was reached before.

.txt       text     a document is the file, a line, or what stands between blank lines
.jsonl     both     {"text": ...}, or {"source": ..., "target": ...}
.tsv       pairs    source, tab, target
.parquet   both     columns of the same names
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from ropewalk.data.layout import BadData
from ropewalk.data.urls import Located, Remote

Document = Literal["file", "line", "blank"]
KEYS = {"text": ("text",), "pairs": ("source", "target")}
SUFFIXES = {"text": (".txt", ".jsonl", ".parquet"), "pairs": (".tsv", ".jsonl", ".parquet")}
MOST_BYTES = 256 << 20
"""Of one document: all of it is in memory at once."""
TABLE_ROWS = 1024


class Place(NamedTuple):
    """Where reading goes on: bytes and lines read so far, or rows of a table."""

    offset: int = 0
    line: int = 0


class Item(NamedTuple):
    texts: tuple[str, ...]
    """One document, or a source and its target; an empty one is left out by who reads it."""
    after: Place


def files(inputs: list[Located], kind: str) -> list[Located]:
    """The files meant, in order: a directory stands for all in it that can be read."""
    found: list[Located] = []
    for path in inputs:
        inside: list[Located] = [path]
        if path.is_dir():
            every = path.inside() if isinstance(path, Remote) else path.rglob("*")
            inside = sorted((file for file in every if file.suffix in SUFFIXES[kind]), key=_order)
        if not inside:
            raise ValueError(f"{path}: no {', '.join(SUFFIXES[kind])} file in it")
        found += inside
    for file in found:
        if not file.is_file():
            raise ValueError(f"{file}: no such file")
        if file.suffix not in SUFFIXES[kind]:
            raise ValueError(f"{file}: {kind} is read from {', '.join(SUFFIXES[kind])}; convert it, or see --kind")
    return found


def _order(file: Located) -> tuple[str, ...]:
    """The same wherever a directory is: its parts, as paths are compared."""
    return (Path(file.path) if isinstance(file, Remote) else file).parts


def read(path: Located, kind: str, document: Document, place: Place = Place()) -> Iterator[Item]:  # noqa: B008
    """The items of a file after a place in it."""
    if path.suffix == ".parquet":
        yield from _table(path, KEYS[kind], place)
        return
    with path.open("rb") as file:
        file.seek(place.offset)
        if path.suffix == ".txt" and document == "file":
            yield from _whole(path, file, place)
        elif path.suffix == ".txt" and document == "blank":
            yield from _paragraphs(path, file, place)
        else:
            for text, after in _lines(path, file, place):
                yield Item(_parsed(path, after.line, text, kind), after)


def _lines(path: Located, file: BinaryIO, place: Place) -> Iterator[tuple[str, Place]]:
    offset, line = place
    while data := file.readline(MOST_BYTES + 1):
        offset, line = offset + len(data), line + 1
        yield _decoded(path, line, data).rstrip("\r\n"), Place(offset, line)


def _decoded(path: Located, line: int, data: bytes) -> str:
    if len(data) > MOST_BYTES:
        raise BadData(f"{path}, line {line}: more than {MOST_BYTES >> 20} MiB in one document; cut it into several")
    try:
        return data.decode("utf-8-sig" if line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line += data.count(b"\n", 0, error.start)
        wrong = data[error.start]
        raise BadData(
            f"{path}, line {line}: byte 0x{wrong:02x} is not UTF-8; convert it: iconv -f OLD -t UTF-8"
        ) from None


def _whole(path: Located, file: BinaryIO, place: Place) -> Iterator[Item]:
    if data := file.read(MOST_BYTES + 1):
        if len(data) > MOST_BYTES:
            raise BadData(f"{path}: more than {MOST_BYTES >> 20} MiB as one document; try --document line or blank")
        yield Item((_decoded(path, 1, data),), Place(place.offset + len(data), data.count(b"\n")))


def _paragraphs(path: Located, file: BinaryIO, place: Place) -> Iterator[Item]:
    held: list[str] = []
    size, after = 0, place
    for text, after in _lines(path, file, place):
        size += len(text)
        if size > MOST_BYTES:
            raise BadData(f"{path}, line {after.line}: no blank line in {MOST_BYTES >> 20} MiB; try --document line")
        if text.strip():
            held.append(text)
        elif held:
            yield Item(("\n".join(held),), after)
            held, size = [], 0
    if held:
        yield Item(("\n".join(held),), after)


def _parsed(path: Located, line: int, text: str, kind: str) -> tuple[str, ...]:
    if path.suffix == ".txt":
        return (text,)
    if not text.strip():
        return ("",) * len(KEYS[kind])
    if path.suffix == ".tsv":
        parts = tuple(text.split("\t"))
        if len(parts) != 2:
            raise BadData(f"{path}, line {line}: {len(parts) - 1} tabs; a pair is source, tab, target")
        return parts
    try:
        record = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise BadData(f"{path}, line {line}: not JSON ({error}); a line is one object") from None
    return _strings(f"{path}, line {line}", record, KEYS[kind])


def _strings(where: str, record: object, keys: tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(record, dict):
        raise BadData(f'{where}: {type(record).__name__}; a line is an object such as {{"{keys[0]}": "..."}}')
    for key in keys:
        if not isinstance(record.get(key), str):
            have = type(record[key]).__name__ if key in record else f"only {', '.join(sorted(record)) or 'nothing'}"
            raise BadData(f"{where}: {key} must be a string, found {have}")
        if not record[key].isascii() and any("\ud800" <= c <= "\udfff" for c in record[key]):
            raise BadData(
                f"{where}: {key} holds half a character (an unpaired \\ud800 escape); correct or remove the line"
            )
    return tuple(record[key] for key in keys)


def _table(path: Located, keys: tuple[str, ...], place: Place) -> Iterator[Item]:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path.seekable() if isinstance(path, Remote) else path) as table:
            missing = [key for key in keys if key not in table.schema_arrow.names]
            if missing:
                have = ", ".join(table.schema_arrow.names)
                raise BadData(f"{path}: no column {missing[0]}; it has {have}: rename one of them")
            sizes = [table.metadata.row_group(group).num_rows for group in range(table.num_row_groups)]
            before = [0, *accumulate(sizes)]
            first = max(bisect_right(before, place.offset) - 1, 0)
            row = before[first]
            for batch in table.iter_batches(TABLE_ROWS, range(first, len(sizes)), columns=list(keys)):
                if row + len(batch) <= place.offset:
                    row += len(batch)
                    continue
                for record in batch.to_pylist():
                    row += 1
                    if row > place.offset:
                        yield Item(_strings(f"{path}, row {row}", record, keys), Place(row, row))
    except pyarrow.ArrowException as error:
        raise BadData(f"{path}: not a readable Parquet file ({error})") from None
