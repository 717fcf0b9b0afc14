"""`ropewalk inspect`: what positions a checkpoint really uses, and whether every engine reads them alike."""

from __future__ import annotations

import json as jsons
import sys
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ropewalk.amounts import amount
from ropewalk.cli.output import WRONG, AllowKind, Json, Quiet, examples, guarded, write, write_table

if TYPE_CHECKING:
    from ropewalk.checkpoints.inspect.report import Report

EPILOG = examples(
    "ropewalk inspect config.json",
    "ropewalk inspect config.json --to 128k",
    "ropewalk inspect config.json --engines vllm,llama.cpp --json",
    "ropewalk inspect . --against config.json",
    "ropewalk inspect config.json --html positions.html",
)


def _tokens(value: str) -> int:
    try:
        return amount(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


@guarded
def inspect(
    path: Annotated[str, typer.Argument(help="A model directory, a config.json, a .gguf file, or an org/name.")],
    to: Annotated[
        int | None,
        typer.Option(
            "--to",
            metavar="N",
            parser=_tokens,
            help="Show what each scaling would do to reach N tokens (32768, 128k, 1M; a k is 1,000), and print the "
            "keys, overrides and flags that each engine needs for it.",
        ),
    ] = None,
    engines: Annotated[
        str | None,
        typer.Option(
            "--engines", metavar="NAMES", help="Compare only these engines, such as vllm,llama.cpp; else all."
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="PATH", help="Show where positions differ from those of this checkpoint."),
    ] = None,
    layers: Annotated[bool, typer.Option("--layers", help="Show every layer.")] = False,
    html: Annotated[
        str | None,
        typer.Option("--html", metavar="OUT", help="Also write a page with pictures to this file, which stands alone."),
    ] = None,
    allow_kind: AllowKind = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show what positions a checkpoint uses, and what each engine would compute from it.

    Reads the config alone, never weights; for an org/name only config.json is fetched, and a local path takes
    precedence.
    The exit code is 1 where engines disagree or a key about positions is not understood (with --against: where the two
    differ), 3 where the file is not valid.
    """
    from ropewalk.checkpoints.inspect.report import counted_engines
    from ropewalk.checkpoints.inspect.report import inspect as inspected

    try:
        counted = counted_engines(None if engines is None else [name.strip() for name in engines.split(",")])
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--engines'") from None
    if html is not None and against is not None:
        raise typer.BadParameter("--html shows one checkpoint and --against compares two; leave one of them out")
    report = inspected(path, to=to, against=against, engines=counted, kinds=allow_kind or ())
    if html is not None:
        from ropewalk.report.checkpoint_page import page

        Path(html).write_text(page(report), encoding="utf-8")
    wrong = bool(report.drifts) if against is not None else not report.agree or bool(report.resolved.not_understood)
    if json:
        shown(jsons.dumps(report.to_dict(), indent=2, ensure_ascii=False, allow_nan=False))
    elif quiet:
        from ropewalk.cli.inspect_words import drift_lines, verdict

        shown("\n".join(drift_lines(report)) if against is not None else verdict(report))
    else:
        _show(report, layers)
    if wrong:
        raise typer.Exit(WRONG)


def _show(report: Report, layers: bool) -> None:
    from ropewalk.cli import inspect_words as words

    shown("\n".join(words.headline(report)))
    if layers:
        shown("")
        table(words.LAYER_HEADINGS, words.layer_rows(report))
    if report.against is not None:
        shown("")
        shown("\n".join(words.drift_lines(report)))
        return
    if report.rotates:
        shown("")
        table(words.engine_headings(report), words.engine_rows(report))
    for part in (words.disagreements(report), [words.verdict(report)], words.notes(report), words.wave_lines(report)):
        if any(part):
            shown("")
            shown("\n".join(part))
    if report.reach is not None:
        _show_reach(report)


def _show_reach(report: Report) -> None:
    from ropewalk.cli import inspect_to as words

    assert report.reach is not None
    shown("")
    shown("\n".join(words.title(report.reach)))
    if report.reach.stretches:
        shown("")
        table(words.HEADINGS, words.rows(report.reach))
        shown("")
        shown("\n".join(words.to_paste(report.reach)))


def table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    cleaned = [[f"  {clean(row[0])}", *map(clean, row[1:])] for row in rows]
    write_table([f"  {headings[0]}", *headings[1:]], cleaned, records=True)


def shown(text: str) -> None:
    """Print what may quote a file: without control characters, and in what the terminal can write."""
    cleaned = "\n".join(clean(line) for line in text.split("\n"))
    encoding = sys.stdout.encoding or "ascii"
    write(cleaned.encode(encoding, errors="replace").decode(encoding))


def clean(text: str) -> str:
    """A line without characters that move a cursor, hide text or turn its direction: a file can hold any of them."""
    return "".join(sign if unicodedata.category(sign) not in ("Cc", "Cf", "Cs", "Zl", "Zp") else "?" for sign in text)
