"""`ropewalk inspect --many`: a census of many checkpoints, in a folder that the same command continues."""

from __future__ import annotations

import json as jsons
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ropewalk.checkpoints.census.record import RECORD
from ropewalk.cli.output import note

if TYPE_CHECKING:
    from ropewalk.checkpoints.census.run import Census

PAGE, TABLE = "census.html", "census.parquet"
MOST = 6
"""Values of one line."""


def take(
    many: str,
    out: Path,
    *,
    engines: Sequence[str] | None,
    rate: float,
    workers: int,
    on: Literal["local", "ray"],
    json: bool,
    quiet: bool,
) -> tuple[str, bool]:
    """What to print, and whether something had no answer."""
    from ropewalk.checkpoints.census.run import Census
    from ropewalk.report.census.page import page
    from ropewalk.trials.jobs import Workers

    with Census(many, out, engines) as census:
        with _progress(quiet or json) as progress:
            census.fetch(rate=rate, workers=Workers(workers, on, say=note), progress=progress)
        found = census.summary()
        if census.record.broken:
            note(f"skipped {census.record.broken} damaged lines of {out / RECORD}; their configs are fetched again")
        _replace(out / PAGE, page(found))
        _write_table(census, out / TABLE)
        census.end()
    silent = bool(found["answers"].get("no answer"))
    if json:
        return jsons.dumps(found, indent=2, ensure_ascii=False, allow_nan=False), silent
    return "\n".join([_first(found)] if quiet else _lines(found, out)), silent


def _write_table(census: Census, file: Path) -> None:
    from ropewalk.checkpoints.census.table import write_parquet

    try:
        write_parquet(census.rows(), file)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyarrow":
            raise
        there = f"{file.with_name(RECORD)} and {file.with_name(PAGE)} are written"
        said = f'Parquet needs pyarrow: pip install "ropewalk[datasets]", then run the same command again; {there}'
        raise ImportError(said) from None


def _replace(file: Path, text: str) -> None:
    partial = file.with_suffix(".part")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, file)


@contextmanager
def _progress(hidden: bool) -> Iterator[Callable[[int, int], None]]:
    """Checkpoints done of all, with the time that is left; on stderr, and only on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("configs"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True, disable=hidden or not console.is_terminal)
    with bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _first(found: dict[str, Any]) -> str:
    if not found["loaded"]:
        return "No config here both uses RoPE and is loaded by an engine."
    if not found["differing"]:
        return f"Engines agree on all {found['loaded']:,} configs that at least one of them loads."
    return f"Engines differ on {found['differing']:,} of the {found['loaded']:,} configs that at least one loads."


def _lines(found: dict[str, Any], out: Path) -> list[str]:
    differ = [[name, one["differs"]] for name, one in found["engines"].items() if one["differs"]]
    parts = {
        "outcome": found["states"],
        "kinds": found["kinds"],
        "scalings": found["scalings"],
        "bases": found["bases"],
        "lengths": found["lengths"]["stated"],
        "engines that differ": sorted(differ, key=lambda each: -each[1]),
        "unknown types": found["unknown_types"],
        "not read because of": found["fields"],
        "keys not understood": found["not_understood"],
        "this pass": [[name, count] for name, count in sorted(found["answers"].items()) if count],
    }
    wide = max(map(len, parts))
    lines = [f"{found['checkpoints']:,} checkpoints. {_first(found)}", ""]
    lines += [f"  {name:{wide}}  {_listed(ranked)}" for name, ranked in parts.items() if ranked]
    if found["answers"].get("no answer"):
        lines += ["", "The hub did not answer for some checkpoints; run the same command to ask again."]
    return [*lines, "", f"Written: {out / PAGE}, {out / TABLE}, {out / RECORD}"]


def _listed(ranked: Sequence[Sequence[Any]]) -> str:
    said = [f"{_value(value)}: {count:,}" for value, count in ranked[:MOST]]
    return ", ".join(said) + (f", and {len(ranked) - MOST:,} more" if len(ranked) > MOST else "")


def _value(value: Any) -> str:
    return f"{value:,.10g}" if isinstance(value, int | float) else value if len(value) <= 40 else value[:37] + "..."
