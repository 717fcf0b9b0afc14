"""Writes the reference in docs/en/reference and docs/zh/reference, in a few seconds: the commands from their help, the
keys of a recipe from their schema, the Python names from their docstrings.

    python scripts/reference.py

Help texts and docstrings are in English; each command, section and name has a sentence of Chinese in
docs/reference.yaml, and the script ends where one is missing.
"""

from __future__ import annotations

import inspect
import io
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any, get_origin

import yaml
from typer.main import get_command

import ropewalk
from ropewalk.cli.main import app
from ropewalk.train.config import Recipe

ROOT = Path(__file__).parents[1]
WORDS = yaml.safe_load((ROOT / "docs" / "reference.yaml").read_text(encoding="utf-8"))
WIDTH = 86
"""Columns of the help texts."""
HELP = get_command(app).context_settings["help_option_names"]
"""Of the whole command; a part of it, called alone, does not know them."""


def main() -> None:
    for page, text in pages().items():
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")


def pages() -> dict[Path, str]:
    made: dict[str, Callable[[str], str]] = {"commands": commands, "recipe": recipe, "python": python}
    return {
        ROOT / "docs" / language / "reference" / f"{name}.md": write(language)
        for name, write in made.items()
        for language in ("en", "zh")
    }


def said(language: str, kind: str, name: str) -> str:
    """The sentence of Chinese, as a paragraph; of English nothing, since what follows is English."""
    if name not in WORDS[kind]:
        sys.exit(f"docs/reference.yaml, {kind}: {name} has no Chinese sentence")
    return f"{WORDS[kind][name]}\n\n" if language == "zh" else ""


def top(language: str, page: str) -> str:
    words = WORDS["pages"][page][language]
    return f"# {words['title']}\n\n{words['about']}\n\n"


def commands(language: str) -> str:
    parts = [top(language, "commands")]
    for name, command in _commands(get_command(app), ()):
        parts.append(
            f"## ropewalk {name}\n\n{said(language, 'commands', name)}```text\n{_help(name, command)}\n```\n\n"
        )
    return "".join(parts).rstrip("\n") + "\n"


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield " ".join(path), command
        return
    for name, one in command.commands.items():
        yield from _commands(one, (*path, name))


def _help(name: str, command: Any) -> str:
    shown = io.StringIO()
    with redirect_stdout(shown):
        command.main(
            ["--help"], prog_name=f"ropewalk {name}", standalone_mode=False, terminal_width=WIDTH,
            max_content_width=WIDTH, help_option_names=HELP,
        )  # fmt: skip
    return "\n".join(line.rstrip() for line in shown.getvalue().strip("\n").splitlines())


def recipe(language: str) -> str:
    schema = Recipe.model_json_schema()
    parts = [top(language, "recipe")]
    heads = WORDS["columns"][language]
    for path, kind, fields in _sections(schema, schema["$defs"], "", set()):
        title = f"{path}: {kind}" if kind else path
        rows = [
            f"| `{name}` | {_values(each, schema['$defs'])} | {_default(each)} | {_cell(each.get('description', ''))} |"
            for name, each in fields["properties"].items()
        ]
        about = (fields.get("description") or "").partition("\n\n")[0]
        parts.append(f"## {title}\n\n{said(language, 'recipe', path)}")
        parts += [f"{' '.join(about.split())}\n\n"] if about else []
        parts.append("\n".join([f"| {' | '.join(heads)} |", "|---|---|---|---|", *rows]) + "\n\n")
    return "".join(parts).rstrip("\n") + "\n"


def _sections(
    one: dict[str, Any], known: dict[str, Any], path: str, shown: set[str]
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Path, kind or nothing, and schema of every part of a recipe that has keys of its own, where it stands first."""
    for name, each in one["properties"].items():
        here = f"{path}.{name}" if path else name
        for part in _objects(each, known):
            if (text := json.dumps(part)) in shown:
                continue
            shown.add(text)
            yield here, part["properties"].get("kind", {}).get("const", ""), part
            yield from _sections(part, known, here, shown)


def _objects(one: dict[str, Any], known: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "$ref" in one:
        yield from _objects(known[one["$ref"].rpartition("/")[2]], known)
    elif set(one.get("properties", ())) - {"kind"}:  # a kind without settings is named by its string
        yield one
    for each in (*one.get("anyOf", ()), *one.get("oneOf", ())):
        yield from _objects(each, known)
    for each in (one.get("items"), one.get("additionalProperties")):
        if isinstance(each, dict):
            yield from _objects(each, known)


def _values(one: dict[str, Any], known: dict[str, Any]) -> str:
    """What may stand there, in the words of JSON."""
    if "$ref" in one:
        return _values(known[one["$ref"].rpartition("/")[2]], known)
    several = [*one.get("anyOf", ()), *one.get("oneOf", ())]
    if several:
        return ", ".join(dict.fromkeys(_values(each, known) for each in several))
    if "const" in one:
        return f"`{one['const']}`"
    if "enum" in one:
        return ", ".join(f"`{each}`" for each in one["enum"])
    kind = one.get("type", "any")
    return ", ".join(kind) if isinstance(kind, list) else kind


def _default(one: dict[str, Any]) -> str:
    value = one.get("default")
    if value is None or isinstance(value, dict):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def python(language: str) -> str:
    parts = [top(language, "python")]
    for name in sorted(ropewalk.__all__, key=str.lower):
        thing = getattr(ropewalk, name)
        parts.append(f"## {name}\n\n{said(language, 'python', name)}")
        if inspect.ismodule(thing):
            parts.append(f"{_document(thing)}\n\n")
            parts += [_entry(f"{name}.{each}", getattr(thing, each), language) for each in _public(thing)]
        else:
            parts.append(_block(f"ropewalk.{name}", thing, language))
            parts += _methods(name, thing, language) if inspect.isclass(thing) else []
    return "".join(parts).rstrip("\n") + "\n"


def _public(module: Any) -> list[str]:
    """Of a module without __all__: what it defines itself."""
    if hasattr(module, "__all__"):
        return sorted((each for each in module.__all__ if each not in ropewalk.__all__), key=str.lower)
    own = (each for each, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__)
    return sorted((each for each in own if not each.startswith("_") and each not in ropewalk.__all__), key=str.lower)


def _methods(name: str, thing: type, language: str) -> list[str]:
    own = {each: found for each, found in vars(thing).items() if not each.startswith("_")}
    callables = {each: getattr(thing, each) for each, found in own.items() if callable(found) or _wrapped(found)}
    return [_entry(f"{name}.{each}", found, language) for each, found in callables.items() if found.__doc__]


def _wrapped(found: Any) -> bool:
    return isinstance(found, classmethod | staticmethod)


def _entry(name: str, thing: Any, language: str) -> str:
    return f"### {name}\n\n{_block(f'ropewalk.{name}', thing, language)}"


def _block(name: str, thing: Any, language: str) -> str:
    """The signature and the docstring."""
    if get_origin(thing) is Annotated:  # Python's own docstring and signature say nothing of it
        return f"```text\n{name}\n```\n\n{WORDS['annotations'][name][language]}\n\n"
    if hasattr(thing, "model_fields"):
        fields = (each if one.is_required() else f"{each}=..." for each, one in thing.model_fields.items())
        made = textwrap.fill(f"{name}({', '.join(fields)})", WIDTH, subsequent_indent="    ")
        return f"```text\n{made}\n```\n\n{_document(thing)}\n\n"
    try:
        signature = name + re.sub(r"ForwardRef\('([^']*)'\)|'([^']*)'", r"\1\2", str(inspect.signature(thing)))
    except (TypeError, ValueError):
        signature = name
    text = _document(thing) if inspect.isroutine(thing) or inspect.isclass(thing) else ""
    signature = textwrap.fill(signature, WIDTH, break_long_words=False, subsequent_indent="    ")
    return f"```text\n{signature}\n```\n\n" + (f"{text}\n\n" if text else "")


def _document(thing: Any) -> str:
    """A docstring as Markdown: what is indented in it is code."""
    text = inspect.cleandoc(thing.__doc__ or "")
    parts = []
    for paragraph in re.split(r"\n\n+", text):
        code = all(line.startswith("    ") or not line for line in paragraph.splitlines())
        parts.append(f"```text\n{inspect.cleandoc(paragraph)}\n```" if code and paragraph else paragraph)
    return "\n\n".join(parts)


if __name__ == "__main__":
    main()
