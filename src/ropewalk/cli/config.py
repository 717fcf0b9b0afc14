"""`ropewalk config`: what a config file and `key=value` on the command line resolve to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.cli.help import Commands
from ropewalk.cli.output import WRONG, Json, Quiet, examples, guarded, write, write_json, write_table
from ropewalk.cli.recipes import located

if TYPE_CHECKING:
    from ropewalk.train.config import Recipe

app = Commands(
    help="Show, describe and compare configs.",
    epilog=examples(
        "ropewalk config show recipe.yaml model.encoding=alibi", "ropewalk config diff recipe.yaml model.encoding=alibi"
    ),
    no_args_is_help=True,
    rich_markup_mode=None,
)

ABSENT = "-"


@app.command(
    epilog=examples(
        "ropewalk config show                                       # the defaults",
        "ropewalk config show recipe.yaml",
        "ropewalk config show recipe.yaml model.encoding=rope model.encoding.base=5e5",
        "ropewalk config show recipe.yaml --plan",
        "ropewalk config show recipe.yaml model.width=256 > small.yaml",
    )
)
@guarded
def show(
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="FILE",
            help="Read this recipe: a YAML file or a name from `ropewalk list recipes`; by default, use only the "
            "defaults.",
        ),
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Override a setting of the recipe.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Also print the position plan, layer by layer.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Print a config with every default filled in.

    The output is YAML that reads back as the same config. Changing a kind (model.encoding=alibi) drops the old kind's
    settings. --plan adds the plan as comments; with --json, the two are {"config": ..., "plan": {stack: ...}}.
    """
    from ropewalk.yaml_text import to_yaml

    files, assignments = _split([*filter(None, [file]), *(changes or [])], most=1)
    recipe = _load(files[0] if files else None, assignments)
    resolved = {side: recipe.model.plan(side) for side in recipe.model.sides} if plan else {}
    data = recipe.model_dump(mode="json")
    if json:
        plans = {side: one.to_dict() for side, one in resolved.items()}
        write_json({"config": data, "plan": plans} if plan else data)
        return
    write(to_yaml(data))
    for side, one in resolved.items():
        lines = [line for line in str(one).splitlines() if line.strip()]
        heading = [] if quiet else ["", f"# plan, {side}"]
        write("\n".join([*heading, *(f"#   {line}" for line in lines)]))


@app.command(
    epilog=examples(
        "ropewalk config schema > recipe.schema.json",
        "ropewalk config schema --quiet                             # on one line",
    )
)
@guarded
def schema(json: Json = False, quiet: Quiet = False) -> None:
    """Print the JSON Schema of config files (always as JSON, with or without --json).

    Editors complete and check a file that starts with: # yaml-language-server: $schema=recipe.schema.json
    """
    from json import dumps

    from ropewalk.train.config import schema as describe

    if quiet:
        write(dumps(describe()))
    else:
        write_json(describe())


@app.command(
    epilog=examples(
        "ropewalk config diff recipe.yaml other.yaml",
        "ropewalk config diff recipe.yaml model.encoding=alibi      # what the override changes",
        "ropewalk config diff recipe.yaml other.yaml --quiet        # only the exit code",
    )
)
@guarded
def diff(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="Read this recipe: a YAML file or a name from `ropewalk list recipes`."),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE|KEY=VALUE", help="Compare with this file; override a setting in it."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Print the keys in which two configs differ.

    Defaults are included. KEY=VALUE changes the second config; a single file is compared with a changed copy of itself.
    The exit code is 0 if the two are the same and 1 if they differ.
    """
    files, assignments = _split([file, *(changes or [])], most=2)
    if not files or (len(files) == 1 and not assignments):
        raise typer.BadParameter("give two files to compare, or one file and KEY=VALUE")
    old, new = files[0], files[-1]
    before, after = (_flat(_load(*which).model_dump(mode="json")) for which in ((old, []), (new, assignments)))
    keys = [key for key in {**before, **after} if before.get(key, ...) != after.get(key, ...)]
    names = (old, f"{new} + command line" if assignments else new)
    if json:
        rows = [{"key": k, "old": before.get(k), "new": after.get(k), "in": _where(k, before, after)} for k in keys]
        write_json({"same": not keys, "old": names[0], "new": names[1], "keys": rows})
    elif not quiet and keys:
        write(f"{len(keys)} {'key differs' if len(keys) == 1 else 'keys differ'}\n")
        rows = [(f"  {key}", *(_shown(key, side) for side in (before, after))) for key in keys]
        write_table(("  key", *names), rows)
    elif not quiet:
        write("no difference")
    if keys:
        raise typer.Exit(WRONG)


def _split(words: list[str], most: int) -> tuple[list[str], list[str]]:
    """Files and key=value, told apart by the equals sign; a file that exists may have one in its name."""
    files = [word for word in words if "=" not in word or Path(word).is_file()]
    if len(files) > most:
        said = ", ".join(files[most:])
        raise typer.BadParameter(f"{said}: give at most {most} file{'s'[: most > 1]}; write a change as KEY=VALUE")
    return files, [word for word in words if word not in files]


def _load(file: str | None, assignments: list[str]) -> Recipe:
    from ropewalk.train.start.recipe import load_recipe

    return load_recipe(None if file is None else located(file), assignments)


def _flat(data: Any, above: str = "") -> dict[str, Any]:
    """{model: {width: 512}} as {model.width: 512}: the keys as KEY=VALUE has them."""
    if isinstance(data, list) and not any(isinstance(value, dict) for value in data):
        return {above: data}
    if not isinstance(data, (dict, list)) or not data:
        return {above: data}
    flat: dict[str, Any] = {}
    for name, inner in data.items() if isinstance(data, dict) else enumerate(data):
        flat |= _flat(inner, f"{above}.{name}".lstrip("."))
    return flat


def _where(key: str, before: dict[str, Any], after: dict[str, Any]) -> str:
    return "both" if key in before and key in after else "old" if key in before else "new"


def _shown(key: str, side: dict[str, Any]) -> str:
    from json import dumps

    value = side.get(key, ABSENT)
    return value if isinstance(value, str) and value.isprintable() else dumps(value)
