"""`ropewalk quickstart`: compare three encodings from scratch in a minute."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from ropewalk.cli.compare.command import on_workers, run_study
from ropewalk.cli.compare.words import show
from ropewalk.cli.output import Json, Quiet, examples, guarded, note, write, write_json

EPILOG = examples("ropewalk quickstart first --no-open --workers 1")


@guarded
def quickstart(
    out: Annotated[Path, typer.Argument(metavar="DIR", help="Write everything into this folder.")] = Path("quickstart"),
    no_open: Annotated[bool, typer.Option("--no-open", help="Write the report without opening it.")] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Run this many trials at once; by default, one per core.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train six small models and compare three encodings, on a bundled text and on copying.

    RoPE, ALiBi and sinusoidal positions, each trained on short sequences and measured on longer ones. Nothing is
    downloaded; it takes one to two minutes on two cores. With one seed each there are no verdicts: those need
    `ropewalk compare`.
    """
    from ropewalk.compare.driver import Shard
    from ropewalk.compare.quickstart_study import quickstart_study

    out.mkdir(parents=True, exist_ok=True)
    found = run_study(quickstart_study(out), out, on_workers("local", workers), Shard(), None, quiet or json)
    if json:
        write_json(found)
    else:
        show(found, out, quiet)
        write("one seed each, so differences may be noise; for a study with seeds and verdicts, use ropewalk compare")
    if not no_open and not webbrowser.open((out / "report.html").resolve().as_uri()):
        note(f"no browser was found; open {out / 'report.html'} in one")
