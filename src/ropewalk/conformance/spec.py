"""The specification as data: `spec.md` beside this file is the text, `spec.zh.md` its Chinese, and this reads them.

Each requirement is a section `### N01 Title`, with a line `Bound: ...` whose numbers are the check's own.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("spec.md")
CHINESE = FILE.with_name("spec.zh.md")
VERSION = "2026-11-19"
"""The date of the text; a test compares it with the first lines of spec.md."""
MERGED = {"N02": "N01", "N11": "N01", "C06": "N07", "C28": "C05"}
"""Requirements that were given up, since another one sees all that they saw: their ids stay theirs."""
PAGES = "docs/en/conformance.md"
"""Where the text is rendered; each requirement has the anchor of its id."""


class Requirement(NamedTuple):
    id: str
    title: str
    text: str
    bound: str
    """What the line `Bound:` says."""

    @property
    def bounds(self) -> tuple[float, ...]:
        """The numbers written as code in that line."""
        return tuple(float(number) for number in re.findall(r"`([0-9.e+-]+)`", self.bound))


def page(id: str) -> str:
    return f"{PAGES}#{id.lower()}"


@cache
def requirements(language: str = "en") -> dict[str, Requirement]:
    """Every requirement of the text, in its order."""
    found = {}
    file = FILE if language == "en" else CHINESE
    for section in re.split(r"^### ", file.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        match = re.fullmatch(r"([NC]\d\d) (.+?)(?: \{#\w+\})?", heading.strip())
        if match is None:
            raise ValueError(f"{file}: the heading {heading!r} is not `### N01 title`")
        body = re.split(r"^## |^<a id=", body, flags=re.MULTILINE)[0].strip()  # the anchor before the next heading
        bound = re.search(r"^(?:Bound: |界\uff1a)(.*?)(?:\n\n|\Z)", body, flags=re.MULTILINE | re.DOTALL)
        said = " ".join(bound[1].split()) if bound else ""
        found[match[1]] = Requirement(match[1], match[2], body, said)
    return found


def dated() -> str:
    """The version that the text states."""
    match = re.search(r"^Version (\d{4}-\d\d-\d\d)", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if match is None:
        raise ValueError(f"{FILE} states no `Version YYYY-MM-DD`")
    return match[1]
