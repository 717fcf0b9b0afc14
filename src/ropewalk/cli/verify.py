"""`ropewalk verify`: runs the conformance suite on position code, ours or anybody's."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.cli import completion
from ropewalk.cli.output import (
    WRONG,
    AllowKind,
    Json,
    Quiet,
    examples,
    guarded,
    note,
    typed,
    write,
    write_json,
    write_table,
)

if TYPE_CHECKING:
    from ropewalk.conformance.run import Report

EPILOG = examples(
    "ropewalk verify rope",
    "ropewalk verify rope base=500000 scaling.kind=yarn scaling.factor=4 scaling.trained=8192 --only N07,N08",
    "ropewalk verify alibi heads=12 --only N9,C23 --json",
    "ropewalk verify --library all --only N7,C23 --out board",
    "ropewalk verify --list",
    "ropewalk verify --explain N06",
)


@guarded
def verify(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND|MODULE:TARGET|CHECKPOINT",
            help="Test this: a ropewalk encoding, a target of your own, or a model directory.",
            autocompletion=completion.encoding,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE", help="Override a setting of a ropewalk encoding: base=500000 scaling.kind=yarn ..."
        ),
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", metavar="IDS", help="Check only these requirements, such as N1,C4.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the requirements, and exit.")] = False,
    explained: Annotated[
        str | None,
        typer.Option("--explain", metavar="ID", help="Explain a requirement and the bugs it comes from, and exit."),
    ] = None,
    library: Annotated[
        str | None,
        typer.Option(
            "--library", metavar="NAME", help="Test this installed library (transformers, ...), or all of them (all)."
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", metavar="DIR", help="Write the results of --library all here; by default, to scoreboard."
        ),
    ] = None,
    vectors: Annotated[
        str | None, typer.Option("--vectors", metavar="DIR", help="Write golden vectors here as plain data, and exit.")
    ] = None,
    engine: Annotated[
        str, typer.Option("--engine", metavar="NAME", help="Read a checkpoint with ropewalk or transformers.")
    ] = "ropewalk",
    allow_kind: AllowKind = None,
    seed: Annotated[int, typer.Option("--seed", help="Draw random inputs with this seed.")] = 0,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also show passed checks and every comparison.")
    ] = False,
) -> None:
    """Test position code against the requirements: angles far from 0, shifts, caches, padding, configs.

    KIND is a ropewalk encoding (see ropewalk list encodings); MODULE:TARGET is an object of your own with a spec, a
    build and the functions it offers (rotate, bias, forward, ...); CHECKPOINT is a model directory, checked against its
    plan. Requirements that do not apply to a target are listed as such and never count as passed. --library all makes
    the scoreboard: every library that this Python can import, next to ropewalk, as a matrix, as JSON and as an HTML
    page. The exit code is 1 if anything failed; known failures of a library do not count.
    """
    if listed:
        return _list(json, quiet)
    if explained is not None:
        return _explain(explained)
    if vectors is not None:
        return _vectors(vectors)
    _check_words(target, library, engine, only, out)
    if library is not None:
        if library == "all":
            return _all(Path(out or "scoreboard"), only, seed, json, quiet)
        reports = _library(library, only, seed, quiet or json)
    elif target is None:
        raise typer.BadParameter("say what to verify: rope, my_package.module:target, or --library transformers")
    else:
        reports = [_one(target, settings or [], engine, allow_kind or [], only, seed, quiet or json)]
    if not any(report.counts["apply"] for report in reports):
        raise typer.BadParameter(_not_applicable(reports))
    if json:
        data = [report.to_dict() for report in reports]
        write_json(data if library is not None else data[0])
    else:
        for report in reports:
            _show(report, quiet, verbose, named=library is not None)
    if any(report.failed for report in reports):
        raise typer.Exit(WRONG)
    return None


def _not_applicable(reports: list[Report]) -> str:
    """Nothing passed and nothing failed: that is no verdict, and must not look like a good one."""
    whys = [*dict.fromkeys(f"{result.id} {result.why}" for report in reports for result in report.results)]
    asked = " or ".join(dict.fromkeys(report.target for report in reports))
    more = f"; and {len(whys) - 3} more" if len(whys) > 3 else ""
    return f"none of these requirements applies to {asked}: {'; '.join(whys[:3])}{more}"


def _check_words(target: str | None, library: str | None, engine: str, only: str | None, out: str | None) -> None:
    """What was typed, before anything is read."""
    from ropewalk.conformance import adapters
    from ropewalk.conformance.adapters.checkpoint import ENGINES
    from ropewalk.conformance.run import chosen

    with typed():
        if out is not None and library != "all":
            raise ValueError(f"--out {out} is only for --library all; leave it out, or add --library all")
        if library is not None and target is not None:
            raise ValueError(f"--library {library} has targets of its own; leave out {target!r}")
        if library not in (None, "all"):
            adapters.spelled(library)
        if engine not in ENGINES:
            raise ValueError(f"no engine {engine!r}; a checkpoint is read by {' or '.join(ENGINES)}")
        chosen(only)


def _one(
    target: str, settings: list[str], engine: str, kinds: list[str], only: str | None, seed: int, silent: bool
) -> Report:
    from ropewalk.conformance import run
    from ropewalk.conformance.target import Target, find
    from ropewalk.encodings import find as find_kind
    from ropewalk.encodings import names

    # Our own kinds first: a directory that is called `rope` is ./rope. Then what is there, then what can be imported.
    is_path = target not in names() and (os.sep in target or (":" not in target and Path(target).exists()))
    with typed():
        if not is_path and target.endswith((".gguf", ".json", ".safetensors")):
            raise ValueError(f"there is no file {target} here")
        if not is_path and (engine != "ropewalk" or kinds):
            raise ValueError(f"--engine and --allow-kind are for a checkpoint, which {target} is not; leave them out")
        elsewhere = is_path or ":" in target or ("." in target and not _ours(target))
        if elsewhere and settings:
            raise ValueError(
                f"{target} has a spec of its own; leave out {' '.join(settings)}, which is for ropewalk's encodings"
            )
        if not elsewhere:
            find_kind(target)
    if is_path:
        from ropewalk.conformance.adapters import checkpoint

        given = Target(checkpoint.target(target, engine, kinds))
    elif elsewhere:
        given = find(target)
    else:
        from ropewalk.conformance.adapters.ours import target as ours

        given = Target(ours(target, *settings))
    with _progress(silent) as progress:
        return run.verify(given, only=only, seed=seed, progress=progress)


def _ours(kind: str) -> bool:
    """Whether a dotted name is an encoding outside the package, and not a target."""
    from ropewalk.encodings import find

    try:
        find(kind)
    except (ValueError, ImportError):
        return False
    return True


def _library(name: str, only: str | None, seed: int, silent: bool) -> list[Report]:
    from ropewalk.conformance import adapters, run

    expected = adapters.expected(name)
    with _progress(silent) as progress:
        return [
            run.verify(each, only=only, seed=seed, expected=expected.get(each.short, {}), progress=progress)
            for each in adapters.targets(name)
        ]


def _all(out: Path, only: str | None, seed: int, json: bool, quiet: bool) -> None:
    """The scoreboard of what is installed here."""
    import datetime

    from ropewalk.report import scoreboard, scoreboard_page

    entries, not_run, broken = [], {}, False
    for name in scoreboard.LIBRARIES:
        try:
            with _progress(quiet or json) as progress:
                entries.append(scoreboard.gather(name, only, seed, progress))
        except Exception as error:  # leaves the others their turn
            not_run[name] = str(error)
            broken |= not isinstance(error, ImportError)
        if not (json or quiet):
            write(f"{name}: not run, {not_run[name]}" if name in not_run else scoreboard.said(entries[-1]))
    command = " ".join(["ropewalk verify --library all", *([f"--only {only}"] if only else [])])
    if not any(target["counts"]["apply"] for entry in entries for target in entry["targets"]) and not broken:
        raise typer.BadParameter(f"none of these requirements applies to what is installed: {only or 'all'}")
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    data = scoreboard.board(entries, date=date, command=command, not_run=not_run)
    out.mkdir(parents=True, exist_ok=True)
    files = out / "scoreboard.json", out / "scoreboard.html"
    scoreboard_page.write(data, *files)
    wrong = scoreboard.unexpected(data)
    if json:
        write_json(data)
    elif quiet:
        for name, target, result in wrong:
            write(f"{name} {target['short']} {result['id']}")
    else:
        write("")
        write_table(*scoreboard.table(data))
        for name, target, result in wrong:
            failed = f"{result['id']} failed, and this is not a known failure."
            write(f"\n{name}, {target['says']}: {failed} {result.get('why', '')}".rstrip())
            write("\n".join(f"    {line}" for line in result["reproduction"].splitlines()))
        write("\n" + "\n".join(map(str, files)))
    if wrong or broken:
        raise typer.Exit(WRONG)


def _vectors(out: str) -> None:
    from importlib import import_module

    for path in import_module("ropewalk.conformance.vectors.arrays").write(out) or ():
        write(str(path))


def _explain(text: str) -> None:
    from ropewalk.conformance.explain import explain
    from ropewalk.conformance.run import chosen

    with typed():
        checks = chosen(text)
    write("\n\n".join(explain(check.id) for check in checks))


def _list(json: bool, quiet: bool) -> None:
    from ropewalk.conformance.checks import every
    from ropewalk.conformance.spec import page, requirements

    text, checks = requirements(), every()
    if json:
        fields = ("id", "title", "bounds", "unit", "needs", "kinds", "declares")
        shown = [{name: getattr(check, name) for name in fields} for check in checks.values()]
        write_json([{**one, "bound": text[one["id"]].bound, "page": page(one["id"])} for one in shown])
    elif quiet:
        write("\n".join(checks))
    else:
        rows = [
            (
                check.id,
                check.title,
                ", ".join(f"{bound:g}" for bound in check.bounds) or "-",
                ", ".join(need.replace("|", " or ") for need in check.needs) or "-",
                ", ".join(check.kinds) or "all",
                check.declares or "-",
            )
            for check in checks.values()
        ]
        write_table(("id", "requirement", "bound", "needs", "kinds", "declared"), rows)


def _show(report: Report, quiet: bool, verbose: bool, *, named: bool) -> None:
    from ropewalk.conformance.run import describe

    if quiet:
        for result in report.failed:
            write(f"{report.target} {result.id}" if named else result.id)
        return
    if named:
        write(report.target)
    write(str(report))
    if verbose:
        write("")
        for result in report.results:
            if result.status in ("failed", "expected"):
                write(f"  {result.id}  {result.title}")
            else:
                write("\n".join(describe(result)))
            for found in result.compared:
                limit = "" if found.bound is None else f"  (bound {found.bound:g})"
                write(f"         {found.measured:9.3g}{limit}  {found.name}")
    elif report.counts["apply"] < len(report.results) and sys.stderr.isatty():
        note("To see why requirements do not apply, add -v. To read a requirement: ropewalk verify --explain ID")


@contextmanager
def _progress(silent: bool) -> Iterator[Callable[[Any], None] | None]:
    """The requirement at work, on a terminal, gone when the work is done."""
    if silent or not sys.stderr.isatty():
        yield None
        return

    def show(check: Any) -> None:
        sys.stderr.write(f"\r\x1b[K{check.id}  {check.title}")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
