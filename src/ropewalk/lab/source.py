"""The lab's scripts, in the order in which they need one another. No file is a module: the page is one script."""

from __future__ import annotations

from importlib.resources import files

ARITHMETIC = ("real", "scaling", "phase", "biases")
"""The library's numbers again."""
FACTS = ("text", "state", "subject", "sinusoids", "clocks", "relative", "wavelengths", "scalings", "bias_map")
"""What each panel shows, as data: numbers with their lines of Python, a table, a sentence. No document is needed."""
VIEW = ("elements", "chart", "heat", "controls", "sinusoids", "circles", "lines", "bias_map", "panels", "main")
"""The page itself."""


def arithmetic() -> str:
    return _joined("arithmetic", ARITHMETIC)


def without_document() -> str:
    """All that runs in any JavaScript engine."""
    return arithmetic() + _joined("facts", FACTS)


def whole() -> str:
    return without_document() + _joined("view", VIEW)


def text(name: str) -> str:
    return (files("ropewalk.lab") / name).read_text(encoding="utf-8")


def _joined(folder: str, names: tuple[str, ...]) -> str:
    return "".join(text(f"{folder}/{name}.js") for name in names)
