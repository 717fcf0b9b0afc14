"""What each engine would compute from a checkpoint's positions: one engine, one file, which names its version."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from importlib import import_module
from typing import Protocol, cast

from ropewalk.checkpoints.engines import paper
from ropewalk.checkpoints.engines.base import CLOSE, Disagreement, LayerReading, Reading, close, ratio
from ropewalk.checkpoints.engines.besides import ASPECTS
from ropewalk.checkpoints.engines.facts import Facts
from ropewalk.checkpoints.resolve.resolved import Resolved

__all__ = [
    "CLOSE",
    "ENGINES",
    "NOT_RUN",
    "Disagreement",
    "LayerReading",
    "Reading",
    "close",
    "names",
    "ratio",
    "readings",
]

FILES = {
    "transformers5": "transformers5",
    "transformers4": "transformers4",
    "vllm": "vllm",
    "llama.cpp": "llama_cpp.rules",
    "sglang": "sglang",
    "mlx": "mlx",
    "tensorrt-llm": "tensorrt_llm",
    "exllamav3": "exllamav3",
}
"""The engines as --engines writes them, in the order in which they are shown, and the file of each. The papers are read
besides, and never count."""
NOT_RUN = ("tensorrt-llm", "exllamav3")
"""Those whose rules were read and never compared with the running engine: they are shown where --engines names them."""


class Engine(Protocol):
    """What such a file has."""

    ENGINE: str
    VERSION: str
    """What the rule was read from."""

    def read(self, resolved: Resolved) -> Reading: ...


ENGINES = {name: cast(Engine, import_module(f"ropewalk.checkpoints.engines.{file}")) for name, file in FILES.items()}


def names() -> tuple[str, ...]:
    return tuple(ENGINES)


def readings(resolved: Resolved, asked: Collection[str] = ()) -> dict[str, Reading]:
    """Every engine's that was run, of the others those asked for, and the paper's where it has a formula of its own."""
    found = {}
    for name, engine in ENGINES.items():
        if name in NOT_RUN and name not in asked:
            continue
        try:
            found[name] = _compared(name, resolved, engine.read(resolved))
        except ValueError as error:  # what it would compute instead of the plan is no rotation at all
            found[name] = Reading(
                engine=engine.ENGINE, version=engine.VERSION, refusal=f"its frequencies cannot be computed: {error}"
            )
    published = paper.read(resolved)
    return found if published is None else {**found, "paper": published}


def _compared(name: str, resolved: Resolved, reading: Reading) -> Reading:
    """The reading; without its numbers where the engine's code for such a row was not read."""
    facts = Facts(resolved)
    unread = facts.row.only_transformers and not name.startswith("transformers") and name not in facts.row.compared
    if not unread or reading.refusal is not None:
        return reading
    layers = tuple(subject.planned() for subject in facts.subjects())
    return replace(reading, layers=layers, switch="static", ignored=(), notes=(), unknown=ASPECTS)
