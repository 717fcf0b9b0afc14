"""Help in the form that most programs have: `RECIPE [KEY=VALUE]...`, and a value's name without its Python type."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand


class _Command(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")  # pydantic's, of no use to a reader
            raise

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [self.options_metavar or "", *(_usage(param) for param in self.get_params(ctx) if _is_argument(param))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        shown = [(param, *record) for param in self.get_params(ctx) if (record := param.get_help_record(ctx))]
        arguments = [
            (_name(param), says.replace("  [required]", "")) for param, _, says in shown if _is_argument(param)
        ]
        options = [(_value(written), says) for param, written, says in shown if not _is_argument(param)]
        for title, rows in (("Arguments", arguments), ("Options", options)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class Commands(typer.Typer):
    """A group whose commands have such a help."""

    def command(self, name: str | None = None, **more: Any) -> Callable[[Any], Any]:
        return super().command(name, cls=_Command, **more)


def _is_argument(param: Any) -> bool:
    return param.param_type_name == "argument"


def _name(param: Any) -> str:
    return param.metavar or param.name.upper()


def _usage(param: Any) -> str:
    name = _name(param) if param.required else f"[{_name(param)}]"
    return name if param.nargs == 1 else f"{name}..."


def _value(written: str) -> str:
    """--seed <int range> as --seed INT, --to <hf|gguf> as --format hf|gguf"""
    choices = re.sub(r"<([^<>\[\]]*\|[^<>\[\]]*)>", r"\1", written)
    plain = re.sub(r"<(?:list\[)?(\w+)(?: range)?\]?>", lambda found: found[1].upper(), choices)
    return re.sub(r"\bSTR\b", "TEXT", plain)
