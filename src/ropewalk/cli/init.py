"""`ropewalk init`: a file to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ropewalk.cli.output import Json, Quiet, examples, guarded, write, write_json

app = typer.Typer(
    help="Write a file to start from.",
    epilog=examples("ropewalk init target", "ropewalk init target rope_check.py"),
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command(epilog=examples("ropewalk init target", "ropewalk init target rope_check.py"))
@guarded
def target(
    path: Annotated[Path, typer.Argument(metavar="[PATH]", help="The file to write.")] = Path("rope_target.py"),
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a target: what your position code claims to be and how to call it, for `ropewalk verify`.

    Three places in it are to be filled in. A file that exists is never written over.
    """
    from ropewalk.conformance.target_template import TEXT

    path = path / "rope_target.py" if path.is_dir() else path
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise ValueError(f"{path} is no module that Python can import; name it like rope_target.py")
    module = ".".join(path.with_suffix("").parts)
    inside = not path.is_absolute() and all(part.isidentifier() for part in module.split("."))
    module = module if inside else path.stem
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(TEXT.format(module=module, file=path.name))
    except FileExistsError:
        raise ValueError(f"{path} exists and is left as it is; give another name: ropewalk init target PATH") from None
    there = "" if inside else f"cd {path.parent} && "
    then = f"{there}ropewalk verify {module}:target"
    if json:
        write_json({"path": str(path), "target": f"{module}:target", "next": then})
    elif quiet:
        write(str(path))
    else:
        write(f"{path}\nFill in (1), (2) and (3), then: {then}")
