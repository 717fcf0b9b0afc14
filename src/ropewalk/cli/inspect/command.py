"""`ropewalk inspect`: what positions a checkpoint really uses, and whether the engines agree on them."""

from __future__ import annotations

import json as jsons
import sys
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ropewalk.cli.data import On
from ropewalk.cli.output import WRONG, AllowKind, Json, Quiet, can_be_written, examples, guarded, write, write_table
from ropewalk.cli.scaling import tokens

if TYPE_CHECKING:
    from ropewalk.checkpoints.inspect.report import Report

EPILOG = examples(
    "ropewalk inspect config.json",
    "ropewalk inspect config.json --to 128k",
    "ropewalk inspect config.json --engines vllm,llama.cpp --json",
    "ropewalk inspect . --against config.json",
    "ropewalk inspect config.json --html positions.html",
    "ropewalk inspect --many names.txt --out census",
)
RATE = 5.0
"""Requests a second: what a hub gives to those who have not signed in is about twice that."""


def _tokens(value: str) -> int:
    return tokens(value, "--to")


@guarded
def inspect(
    path: Annotated[
        str | None,
        typer.Argument(help="Inspect this checkpoint: a model directory, a config.json, a .gguf file, or an org/name."),
    ] = None,
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
            "--engines", metavar="NAMES", help="Compare only these engines, such as vllm,llama.cpp; by default, all."
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="PATH", help="Show where positions differ from those of this checkpoint."),
    ] = None,
    layers: Annotated[bool, typer.Option("--layers", help="Show every layer.")] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="OUT",
            help="Also write a self-contained HTML page with pictures to this file, in English and Chinese.",
        ),
    ] = None,
    allow_kind: AllowKind = None,
    many: Annotated[
        str | None,
        typer.Option(
            "--many",
            metavar="LIST",
            help="Take a census instead: read the configs of all checkpoints in this list, which is a text file with "
            "an org/name, a URL or a path on each line, or hub:QUERY, such as hub:llama or hub:author=Qwen&limit=100.",
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", metavar="DIR", help="Keep the census here; run the same command to continue or repeat it."
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.01, max=10_000, help=f"Fetch at most this many configs per second from the hub; by default, {RATE:g}."
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=4096, help="Read configs in this many processes; by default, 1.")
    ] = None,
    on: Annotated[
        On | None,
        typer.Option(help="Run the workers on this machine (local) or on a Ray cluster (ray); by default, local."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show what positions a checkpoint uses, and what each engine would compute from it.

    Only the config is read, never the weights; for an org/name, only config.json is fetched, and a local path takes
    precedence. The exit code is 1 if engines disagree or a key about positions is not understood (with --against: if
    the two differ), and 3 if the file is not valid. A census fetches no faster than --rate, and only what has changed
    since the last census; its exit code is 1 if the hub did not answer for some of the list.
    """
    if many is not None:
        alone = {"PATH": path, "--to": to, "--against": against, "--layers": layers, "--html": html,
                 "--allow-kind": allow_kind}  # fmt: skip
        given = [name for name, value in alone.items() if value]
        _refuse(given, "only for one", "--many reads many checkpoints, and ")
        if out is None:
            raise typer.BadParameter("--many needs a folder to keep the census in; add --out DIR")
    else:
        census = {"--out": out, "--rate": rate, "--workers": workers, "--on": on}
        _refuse([name for name, value in census.items() if value is not None], "only for a census (--many)")
        if path is None:
            raise typer.BadParameter("name a checkpoint, or take a census of many with --many", param_hint="'PATH'")
    from ropewalk.checkpoints.inspect.report import counted_engines
    from ropewalk.checkpoints.inspect.report import inspect as inspected

    try:
        counted = counted_engines(None if engines is None else [name.strip() for name in engines.split(",")])
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--engines'") from None
    if many is not None and out is not None:
        from ropewalk.cli.census import take

        told, silent = take(
            many, Path(out), engines=counted, rate=rate or RATE, workers=workers or 1,
            on="ray" if on is On.ray else "local", json=json, quiet=quiet,
        )  # fmt: skip
        shown(told)
        if silent:
            raise typer.Exit(WRONG)
        return
    assert path is not None
    if against is not None:
        single = {"--to": to, "--engines": engines, "--html": html}
        _refuse([name for name, value in single.items() if value is not None], "for one checkpoint, not --against")
    can_be_written(html, "--html", "inspect.html")
    report = inspected(path, to=to, against=against, engines=counted, kinds=allow_kind or ())
    if html is not None:
        from ropewalk.report.checkpoint_page import page

        html.write_text(page(report), encoding="utf-8")
    wrong = bool(report.drifts) if against is not None else not report.agree or bool(report.resolved.not_understood)
    if json:
        shown(jsons.dumps(report.to_dict(), indent=2, ensure_ascii=False, allow_nan=False))
    elif quiet:
        from ropewalk.cli.inspect.words import drift_lines, verdict

        shown("\n".join(drift_lines(report)) if against is not None else verdict(report))
    else:
        _show(report, layers)
    if wrong:
        raise typer.Exit(WRONG)


def _refuse(given: list[str], why: str, before: str = "") -> None:
    if given:
        verb, them = ("are", "them") if len(given) > 1 else ("is", "it")
        raise typer.BadParameter(f"{before}{' and '.join(given)} {verb} {why}; leave {them} out")


def _show(report: Report, layers: bool) -> None:
    from ropewalk.cli.inspect import words

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
    from ropewalk.cli.inspect import to as words

    assert report.reach is not None
    shown("")
    shown("\n".join(words.title(report.reach)))
    if report.reach.stretches:
        shown("")
        table(words.headings(report.reach), words.rows(report.reach))
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
