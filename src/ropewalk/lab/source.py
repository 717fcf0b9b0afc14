"""The lab's scripts, in the order in which they need one another. No file is a module: the page is one script."""

from __future__ import annotations

from importlib.resources import files

ARITHMETIC = ("real", "scaling", "phase", "biases")
"""The library's numbers again."""


def arithmetic() -> str:
    return _joined("arithmetic", ARITHMETIC)


def text(name: str) -> str:
    return (files("ropewalk.lab") / name).read_text(encoding="utf-8")


def _joined(folder: str, names: tuple[str, ...]) -> str:
    return "".join(text(f"{folder}/{name}.js") for name in names)
