"""`ropewalk lab`: write the page of the lab and open it in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ropewalk.cli.output import can_be_written, examples, guarded, note, write

EPILOG = examples("ropewalk lab --no-open", "ropewalk lab --out lab.html --no-open")


@guarded
def lab(
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="FILE", help="Write this .html file; an existing page of the lab is overwritten."
        ),
    ] = Path("ropewalk-lab.html"),
    no_open: Annotated[bool, typer.Option("--no-open", help="Write the file without opening it.")] = False,
) -> None:
    """Write an interactive page about position encodings, and open it in a browser.

    It is a self-contained HTML file in English and Chinese, which needs no server and no network and can be sent or
    published as it is. Its numbers are computed in the page, equal the library's, and start from any of 121 published
    checkpoints.
    """
    from ropewalk.lab.page import page

    if out.suffix.lower() not in (".html", ".htm"):
        raise typer.BadParameter(f"{out} must end in .html, or a browser shows its source")
    can_be_written(out, "--out", "ropewalk-lab.html")
    if out.exists() and "sinusoids-picture" not in out.read_text(encoding="utf-8", errors="replace"):
        raise ValueError(
            f"{out} already exists and is not a page of the lab; give another name with --out, or remove it"
        )
    out.write_text(page(), encoding="utf-8", newline="\n")
    write(str(out))
    if no_open:
        return
    import webbrowser

    if not webbrowser.open(out.resolve().as_uri()):
        note(f"no browser was found; open {out} in one")
