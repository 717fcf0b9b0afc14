"""`ropewalk plot`: a picture of an encoding, a checkpoint or a run, as a file or in the terminal."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ropewalk.cli import completion
from ropewalk.cli.output import Json, Quiet, can_be_written, examples, guarded, typed, write, write_json, write_table

EPILOG = examples(
    "ropewalk plot --list",
    "ropewalk plot sinusoids",
    "ropewalk plot wavelengths config.json",
    "ropewalk plot scalings config.json to=8k --out scalings.svg",
    "ropewalk plot masks packed=[3,5] window=3 --lang zh --out masks.json",
)


class Language(StrEnum):
    en = "en"
    zh = "zh"


@guarded
def plot(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Draw this picture; see --list.", autocompletion=completion.picture),
    ] = None,
    rest: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="THING|KEY=VALUE",
            help="Draw it from this (a checkpoint, or the folders of runs), with these settings.",
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", metavar="FILE", help="Write this .svg, .png or .json file; by default, print to the terminal."
        ),
    ] = None,
    lang: Annotated[Language, typer.Option("--lang", help="Write text in English (en) or Chinese (zh).")] = Language.en,
    dark: Annotated[
        bool,
        typer.Option("--dark", help="Draw for a dark background; without it, an .svg follows the reader's theme."),
    ] = False,
    every: Annotated[bool, typer.Option("--list", help="List the pictures, what each takes and its settings.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw a picture of an encoding, a checkpoint or a run.

    Without --out, the picture is printed as text, 80 columns wide; --json prints its numbers. .svg and .png need
    matplotlib: pip install "ropewalk[plot]". Only `attention`, `norms` and `biases` read weights.
    """
    from ropewalk.plot import check_format, text
    from ropewalk.plot import write as write_file
    from ropewalk.plot.catalogue import find

    if every:
        if name is not None:
            raise typer.BadParameter(f"--list lists every picture; leave out {name}, or --list")
        _list(lang.value, json, quiet)
        return
    if name is None:
        raise typer.BadParameter("name a picture, such as wavelengths; ropewalk plot --list lists them")
    if out is not None and json:
        raise typer.BadParameter("--json prints the numbers and --out writes a file; for both, write --out x.json")
    if dark and out is None:
        raise typer.BadParameter("--dark is for a picture in a file; add --out FILE, or leave it out")
    can_be_written(None if out is None else Path(out), "--out", f"{name}.svg")
    with typed():
        picture = find(name)
        things, settings = _sorted(rest or [], picture.takes)
        options = picture.read(settings)
        if out is not None:
            check_format(out)
    data = picture.data(_thing(things, picture.takes, name), options)
    if out is not None:
        write_file(data, out, lang=lang.value, dark=dark)
        write(out)
    elif json:
        write_json(data)
    else:
        encoding = sys.stdout.encoding or "ascii"
        plain = not _can_write("\u2591\u2593", encoding)
        write(text(data, lang=lang.value, plain=plain).encode(encoding, errors="replace").decode(encoding))


def _sorted(words: list[str], takes: str) -> tuple[list[str], list[str]]:
    """What to draw from, and key=value. A path may have an equals sign in it, where such a file is there."""
    settings = [word for word in words if "=" in word and not ("/" in word.partition("=")[0] or Path(word).exists())]
    return [word for word in words if word not in settings], settings


def _thing(things: list[str], takes: str, name: str) -> Any:
    if not things:
        return None
    if "..." in takes:
        return things
    if len(things) > 1 and takes:
        raise typer.BadParameter(f"{name} takes one {takes.strip('[]')}, got {', '.join(things)}")
    if not takes:
        raise typer.BadParameter(f"{name} takes only settings; {things[0]!r} is not KEY=VALUE")
    return things[0]


def _can_write(signs: str, encoding: str) -> bool:
    try:
        signs.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def _list(lang: str, json: bool, quiet: bool) -> None:
    from ropewalk.plot.catalogue import NAMES, find
    from ropewalk.plot.words import load

    found: list[dict[str, Any]] = []
    for name in NAMES:
        picture = find(name)
        options = list(picture.module.Options.model_fields)
        found.append({"name": name, "takes": picture.takes, "settings": options, "shows": load(name)[lang]["shows"]})
    if json:
        write_json(found)
    elif quiet:
        write("\n".join(NAMES))
    else:
        rows = [(one["name"], one["takes"] or "-", one["shows"], ", ".join(one["settings"])) for one in found]
        write_table(("picture", "takes", "shows", "settings"), rows, records=True)
