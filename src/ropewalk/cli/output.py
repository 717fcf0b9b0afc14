"""What all commands share: where output goes, how it looks, and what the exit code says.

    0 success   1 found a problem   2 wrong usage   3 bad input   5 environment (something is missing or unavailable)

Data goes to stdout, everything else to stderr. On a terminal tables fit its width and headings are bold, unless
NO_COLOR is set; anywhere else each row is one line of plain text.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

import typer

from ropewalk.cli import completion

WRONG, USAGE, BAD_INPUT, ENVIRONMENT = 1, 2, 3, 5

EXTRAS = {
    **dict.fromkeys(("gguf", "huggingface_hub", "tokenizers"), "models"),
    "grain": "data",
    "pyarrow": "datasets",
    "matplotlib": "plot",
    "optuna": "search",
    "ray": "cluster",
    "trackio": "track",
}
"""Which extra of ours brings a module."""

AllowKind = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-kind",
        metavar="KIND",
        help="Import this encoding from outside ropewalk (my_pkg.cable) if the checkpoint names it; may be repeated.",
    ),
]
RecipeFile = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="Read this recipe: a YAML file or a name from `ropewalk list recipes`.",
        autocompletion=completion.recipe,
    ),
]
RecipeChanges = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Override a setting of the recipe.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")]

GAP = "  "

P = ParamSpec("P")
R = TypeVar("R")


def examples(*lines: str) -> str:
    """The end of a command's help. The tests run each line."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def example_commands(epilog: str) -> list[list[str]]:
    """The arguments of each command in such an epilog; what a line sends to a file, it sends to stdout."""
    lines = re.findall(r"^ *ropewalk (.*?)(?: +#.*| *>.*)?$", epilog, flags=re.MULTILINE)
    return [shlex.split(line) for line in lines]


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """Answers mistakes of the user in words, with their exit code; a traceback is for mistakes of ours."""

    @functools.wraps(command)
    def answer(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except BrokenPipeError:
            raise  # the reader has gone (| head): answered in __main__
        except (ValueError, OSError, ImportError) as error:
            if os.environ.get("ROPEWALK_TRACEBACK"):
                raise
            missing = isinstance(error, ImportError)
            say_error(_not_installed(error) if isinstance(error, ImportError) else str(error))
            raise typer.Exit(ENVIRONMENT if missing else BAD_INPUT) from None

    return answer


@contextmanager
def typed() -> Iterator[None]:
    """Around what is known wrong from the words that were typed alone: a usage error."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _not_installed(error: ImportError) -> str:
    module = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or not module:
        return str(error)  # ours say what to type, a broken library's name the library
    wanted = f'"ropewalk[{EXTRAS[module]}]"' if module in EXTRAS else module
    return f"This needs {module}: pip install {wanted}"


def can_be_written(file: Path | None, option: str, name: str) -> None:
    """Known before hours are spent on what goes there. name: of the file, where a directory was given."""
    if file is not None and file.is_dir():
        raise typer.BadParameter(f"{file} is a directory; write {file / name}", param_hint=f"'{option}'")
    if file is not None and not file.parent.is_dir():
        raise typer.BadParameter(f"{file.parent} is not a directory; create it first", param_hint=f"'{option}'")


def note(text: str) -> None:
    """For the person, not for the pipe."""
    typer.echo(text, err=True)


def say_error(text: str) -> None:
    """Why a command ends, in the form that mistakes of usage have."""
    note(f"Error: {text}")


def write(text: str) -> None:
    typer.echo(text.rstrip("\n"))


def write_json(data: Any) -> None:
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False))


def write_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, records: bool = False) -> None:
    """Aligned columns. Those at the end that a terminal has no room for go below their row, indented; with `records`
    such a table is written row by row instead, each value beside its heading."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    ends = list(accumulate(len(GAP) + width for width in widths))
    fit = [end for end in ends if end - len(GAP) <= console.width] if console.is_terminal else ends
    beside = max(len(fit), 1)
    if records and beside < len(headings):
        for line in _records(headings, rows, console.width):
            console.print(Text(line), soft_wrap=True)
        return
    for row in [headings, *rows]:
        line = GAP.join(f"{cell:{width}}" for cell, width in zip(row[:beside], widths, strict=False)).rstrip()
        bold = row is headings and not console.no_color
        console.print(Text(line, style="bold" if bold else ""), soft_wrap=True)
        for cell in () if row is headings else (cell for cell in row[beside:] if cell != "-"):
            for part in textwrap.wrap(cell, max(console.width - 4, 20), break_on_hyphens=False):
                console.print(Text(f"    {part}"), soft_wrap=True)


def _records(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    wide = max(map(len, headings[1:]))
    lines = []
    for first, *cells in rows:
        lines.append(first)
        for heading, cell in zip(headings[1:], cells, strict=True):
            label = f"    {heading:{wide}}{GAP}"
            lines += textwrap.wrap(
                cell,
                max(width, len(label) + 12),
                initial_indent=label,
                subsequent_indent=" " * len(label),
                break_on_hyphens=False,
            )
    return lines
