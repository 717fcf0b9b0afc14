"""What each engine would compute from a checkpoint's positions: one engine, one file, which names its version."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from ropewalk.checkpoints.engines import paper
from ropewalk.checkpoints.engines.base import CLOSE, Disagreement, LayerReading, Reading, close, ratio
from ropewalk.checkpoints.resolve.resolved import Resolved

__all__ = ["CLOSE", "ENGINES", "Disagreement", "LayerReading", "Reading", "close", "names", "ratio", "readings"]

FILES = {
    "transformers5": "transformers5",
    "transformers4": "transformers4",
    "vllm": "vllm",
    "llama.cpp": "llama_cpp.rules",
}
"""The engines as --engines writes them, in the order in which they are shown, and the file of each. The papers are read
besides, and never count."""


class Engine(Protocol):
    """What such a file has."""

    ENGINE: str
    VERSION: str
    """What the rule was read from."""

    def read(self, resolved: Resolved) -> Reading: ...


ENGINES = {name: cast(Engine, import_module(f"ropewalk.checkpoints.engines.{file}")) for name, file in FILES.items()}


def names() -> tuple[str, ...]:
    return tuple(ENGINES)


def readings(resolved: Resolved) -> dict[str, Reading]:
    """Every engine's, and the paper's where it has a formula of its own."""
    found = {}
    for name, engine in ENGINES.items():
        try:
            found[name] = engine.read(resolved)
        except ValueError as error:  # what it would compute instead of the plan is no rotation at all
            found[name] = Reading(
                engine=engine.ENGINE, version=engine.VERSION, refusal=f"its frequencies cannot be computed: {error}"
            )
    published = paper.read(resolved)
    return found if published is None else {**found, "paper": published}
