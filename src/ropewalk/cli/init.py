"""`ropewalk init`: a file to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ropewalk.cli.help import Commands
from ropewalk.cli.output import Json, Quiet, examples, guarded, write, write_json

app = Commands(
    help="Write a file to start from: a recipe, an encoding or a target.",
    epilog=examples("ropewalk init recipe first", "ropewalk init encoding cable", "ropewalk init target rope_check.py"),
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command(epilog=examples("ropewalk init recipe", "ropewalk init recipe first"))
@guarded
def recipe(
    path: Annotated[Path, typer.Argument(metavar="NAME", help="Write this file; .yaml may be left out.")] = Path(
        "my_recipe.yaml"
    ),
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a recipe that trains in under a minute without data, with comments that say what to change.

    `ropewalk list recipes` lists larger ones. An existing file is never overwritten.
    """
    from ropewalk.train.recipe_template import TEXT

    path = path if path.suffix in (".yaml", ".yml") else path.with_name(f"{path.name}.yaml")
    _create(path, TEXT.format(file=path, name=path.stem))
    _say(path, f"ropewalk train {path}", json, quiet)


@app.command(epilog=examples("ropewalk init encoding", "ropewalk init encoding cable"))
@guarded
def encoding(
    path: Annotated[Path, typer.Argument(metavar="NAME", help="Write this file; .py may be left out.")] = Path(
        "my_encoding.py"
    ),
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write an encoding of your own: a working bias to edit.

    In recipes and commands, its kind is the file name and the class name: cable.Cable. An existing file is never
    overwritten.
    """
    from ropewalk.encodings.template import TEXT

    path, module, there = _module(path)
    name = "".join(part.capitalize() for part in path.stem.split("_"))
    kind = f"{module}.{name}"
    _create(path, TEXT.format(name=name, kind=kind))
    _say(path, f"{there}ropewalk verify {kind}", json, quiet, kind=kind)


@app.command(epilog=examples("ropewalk init target", "ropewalk init target rope_check.py"))
@guarded
def target(
    path: Annotated[Path, typer.Argument(metavar="NAME", help="Write this file; .py may be left out.")] = Path(
        "rope_target.py"
    ),
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a target: what your position code claims to be and how to call it, for `ropewalk verify`.

    Fill in the three places marked in it. An existing file is never overwritten.
    """
    from ropewalk.conformance.target_template import TEXT

    path, module, there = _module(path / "rope_target.py" if path.is_dir() else path)
    _create(path, TEXT.format(module=module, file=path.name))
    then = f"{there}ropewalk verify {module}:target"
    _say(path, then, json, quiet, before="Fill in (1), (2) and (3), then", target=f"{module}:target")


def _module(path: Path) -> tuple[Path, str, str]:
    """A Python file, the name it is imported by, and what to type first where that is from another folder."""
    path = path if path.suffix else path.with_name(f"{path.name}.py")
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise ValueError(f"{path} is not a module that Python can import; give a name like rope_target.py")
    module = ".".join(path.with_suffix("").parts)
    if not path.is_absolute() and all(part.isidentifier() for part in module.split(".")):
        return path, module, ""
    return path, path.stem, f"cd {path.parent} && "


def _create(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ValueError(f"{path} already exists and was not overwritten; give another name") from None


def _say(path: Path, then: str, json: bool, quiet: bool, *, before: str = "Next", **more: Any) -> None:
    if json:
        write_json({"path": str(path), **more, "next": then})
    elif quiet:
        write(str(path))
    else:
        write(f"{path}\n{before}: {then}")
