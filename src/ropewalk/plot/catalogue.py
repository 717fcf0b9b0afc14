"""Which pictures there are, and how each goes from a thing to its numbers to a chart."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Protocol

from ropewalk.overrides import load
from ropewalk.plot.chart import Chart, Data
from ropewalk.plot.words import Words
from ropewalk.settings import Settings

NAMES = (
    "sinusoids",
    "wavelengths",
    "scalings",
    "distance",
    "unseen",
    "biases",
    "masks",
    "layouts",
    "loss",
    "run",
    "attention",
    "clocks",
    "products",
    "buckets",
    "engines",
    "norms",
    "sections",
)


HIDDEN = ("Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp")
"""Categories of characters that have no picture of their own."""


class _Module(Protocol):
    TAKES: str
    """What a command may name: nothing, CHECKPOINT, MODEL, RUN...; in brackets where it may be left out."""
    IN_PYTHON: str
    """What else a caller in Python may give."""
    Options: type[Settings]

    def data(self, thing: Any, options: Any) -> Data: ...
    def chart(self, data: Data, words: Words) -> Chart: ...


@dataclass(frozen=True)
class Picture:
    name: str
    module: _Module

    @property
    def takes(self) -> str:
        return self.module.TAKES

    def options(self, settings: dict[str, Any]) -> Settings:
        return self.module.Options(**settings)

    def read(self, assignments: Sequence[str]) -> Settings:
        """From `key=value` of a command line."""
        return load(self.module.Options, assignments=assignments)

    def data(self, thing: Any, options: Settings) -> Data:
        if thing is not None and not self.takes and not self.module.IN_PYTHON:
            raise ValueError(f"{self.name} is drawn from its settings alone; leave out {_short(thing)}")
        if thing is None and self.takes and not self.takes.startswith("["):
            raise ValueError(f"{self.name} is drawn from a {self.takes.strip('.')}; name one")
        return {"picture": self.name, **cleaned(self.module.data(thing, options))}

    def chart(self, data: Data, lang: str = "en") -> Chart:
        return self.module.chart(data, Words(self.name, lang))


def find(name: str) -> Picture:
    if name not in NAMES:
        near = get_close_matches(name, NAMES, n=1)
        meant = f"Did you mean {near[0]}? " if near else ""
        raise ValueError(f"no picture {name!r}. {meant}There are {', '.join(NAMES)}")
    module: Any = import_module(f"ropewalk.plot.pictures.{name}")
    return Picture(name, module)


def cleaned(value: Any) -> Any:
    """The same without characters that move a cursor, hide text or are none in XML: names of files hold any of them."""
    if isinstance(value, str):
        return "".join(sign if unicodedata.category(sign) not in HIDDEN else "?" for sign in value)
    if isinstance(value, dict):
        return {cleaned(key): cleaned(one) for key, one in value.items()}
    return [cleaned(one) for one in value] if isinstance(value, list) else value


def chart_of(data: Data, lang: str = "en") -> Chart:
    """The chart of a picture's data."""
    return find(data["picture"]).chart(data, lang)


def _short(thing: Any) -> str:
    text = str(thing)
    return text if len(text) <= 60 else type(thing).__name__
