"""A mutant: the reference with one line replaced by the line of a public bug."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from importlib.abc import SourceLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

from ropewalk.conformance.mutants.specs import SPECS

REFERENCE = Path(__file__).with_name("reference.py")


@dataclass(frozen=True, kw_only=True)
class Mutant:
    name: str
    """project_number_what"""
    issue: str
    """owner/repository#number, an issue or a pull request."""
    also: tuple[str, ...] = ()
    """Other threads with the same bug."""
    kills: str
    """The requirement it must fail."""
    right: str
    """Part of a line of reference.py; it stands there once."""
    wrong: str
    """What stands there instead."""
    of: str = "rope"
    """Which of SPECS it claims to be."""
    why: str
    """What goes wrong, in a sentence."""

    @property
    def target(self) -> Any:
        return load(self.name, self.right, self.wrong).Reference(SPECS[self.of], f"{__package__}:{self.name}")

    @property
    def lines(self) -> tuple[str, str]:
        """The line as it is in the reference, and in the mutant."""
        place = text().index(self.right)
        line = text()[text().rfind("\n", 0, place) + 1 : text().index("\n", place)].strip()
        return line, line.replace(self.right, self.wrong)

    @property
    def url(self) -> str:
        repository, number = self.issue.split("#")
        return f"https://github.com/{repository}/issues/{number}"


@cache
def text() -> str:
    """The reference."""
    return REFERENCE.read_text(encoding="utf-8")


def edited(right: str, wrong: str) -> str:
    """The text of the reference with one line changed."""
    if text().count(right) != 1 or "\n" in right + wrong:
        raise ValueError(f"{right!r} stands {text().count(right)} times in {REFERENCE.name}; a mutant changes one line")
    return text().replace(right, wrong)


class _Edited(SourceLoader):
    """Imports a text instead of a file; nothing of it is cached on disk."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text

    def get_filename(self, fullname: str) -> str:
        return f"{REFERENCE.with_suffix('')}.{self.name}.py"

    def get_data(self, path: bytes | str) -> bytes:
        return self.text.encode()


def load(name: str, right: str, wrong: str) -> ModuleType:
    """The module with that line in it, made anew: some mutants keep what they should not."""
    full = f"{__package__}.reference_{name}"
    spec = spec_from_loader(full, _Edited(name, edited(right, wrong)))
    if spec is None or spec.loader is None:
        raise ValueError(f"{name} cannot be imported")
    module = module_from_spec(spec)
    sys.modules[full] = module
    spec.loader.exec_module(module)
    return module
