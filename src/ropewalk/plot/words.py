"""The words of a picture, from the YAML file beside it, in one language."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import yaml

LANGUAGES = ("en", "zh")


class Words:
    """words("key", value=3) is the text of that key with the value filled in."""

    def __init__(self, picture: str, language: str = "en") -> None:
        if language not in LANGUAGES:
            raise ValueError(f"no language {language!r}; there are {', '.join(LANGUAGES)}")
        self.picture, self.language = picture, language
        self._texts: dict[str, str] = load(picture)[language]

    def __call__(self, key: str, /, **values: Any) -> str:
        return self._texts[key].format(**values)

    def get(self, key: str, otherwise: str) -> str:
        return self._texts.get(key, otherwise)


def load(picture: str) -> dict[str, dict[str, str]]:
    return yaml.safe_load((files("ropewalk.plot.pictures") / f"{picture}.yaml").read_text(encoding="utf-8"))


def wide(sign: str) -> bool:
    return unicodedata.east_asian_width(sign) in "WF"


def columns(text: str) -> int:
    """Columns of a terminal it takes."""
    return sum(2 if wide(sign) else 1 for sign in text)


def wrapped(text: str, width: float, measure: Callable[[str], float] = columns) -> list[str]:
    """Lines of at most so many columns; Chinese breaks between any two signs, but no line begins with a stop."""
    lines, line = [], ""
    for piece in _pieces(text):
        if measure(line + piece.rstrip()) > width and line and piece not in "\uff0c\u3002\uff1b\uff1a\u3001\uff09":
            lines.append(line.rstrip())
            line = ""
        line += piece
    return [*lines, line.rstrip()] if line.strip() else lines


def _pieces(text: str) -> list[str]:
    """What a line is never broken within: a word with the space after it, or one wide sign."""
    pieces = [""]
    for sign in text:
        if wide(sign) or (pieces[-1] and (pieces[-1][-1] == " " or wide(pieces[-1][-1]))):
            pieces.append("")
        pieces[-1] += sign
    return [piece for piece in pieces if piece]
