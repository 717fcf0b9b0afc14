"""The one error of everything that reads a file: which file, which field, what is wrong with it, what to do next.

Names in a file are its author's words, so what is not printable is shown as an escape and a long word is cut: a tensor
called by a terminal's control sequence prints as its letters.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

LONGEST_WORD = 200
DAMAGED = "the file is damaged or cut off; fetch it again"


class BadInput(ValueError):
    """A file that cannot be read as what it says it is."""

    def __init__(self, file: str | os.PathLike[str], field: str, problem: str, remedy: str = "") -> None:
        super().__init__(file, field, problem, remedy)
        self.file = os.fspath(file)
        self.field = field
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{plain(self.file, 1000)}: {plain(self.field)}: {self.said}"

    @property
    def said(self) -> str:
        """What is wrong and what to do next, without where."""
        told = plain(self.problem, 2000)
        return f"{told}; {plain(self.remedy, 2000)}" if self.remedy else told


def plain(text: object, longest: int = LONGEST_WORD) -> str:
    """Foreign text made safe to print: one line of printable characters, cut to a length."""
    whole = str(text)
    cut = whole if len(whole) <= longest else whole[: longest - 3] + "..."
    if cut.isprintable():
        return cut
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)


def few(names: Iterable[str], most: int = 3) -> str:
    """The first few of a list, and how many more there are."""
    every = list(names)
    more = f" and {len(every) - most:,} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more
