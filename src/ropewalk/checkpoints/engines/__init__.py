"""What each engine would compute from a checkpoint's positions: one engine, one file, which names its version."""

from __future__ import annotations

from ropewalk.checkpoints.engines import llama_cpp, paper, transformers4, transformers5, vllm
from ropewalk.checkpoints.engines.base import CLOSE, Disagreement, LayerReading, Reading, close, ratio
from ropewalk.checkpoints.resolved import Resolved

__all__ = ["CLOSE", "ENGINES", "Disagreement", "LayerReading", "Reading", "close", "names", "ratio", "readings"]

ENGINES = {"transformers5": transformers5, "transformers4": transformers4, "vllm": vllm, "llama.cpp": llama_cpp}
"""As --engines writes them. The papers are read besides, and never count."""


def names() -> tuple[str, ...]:
    return tuple(ENGINES)


def readings(resolved: Resolved) -> dict[str, Reading]:
    """Every engine's, and the paper's where it has a formula of its own."""
    found = {}
    for name, engine in ENGINES.items():
        try:
            found[name] = engine.read(resolved)
        except ValueError as error:  # what it would compute instead of the plan is no rotation at all
            found[name] = Reading(engine=engine.ENGINE, version=engine.VERSION, refusal=f"its numbers fail: {error}")
    published = paper.read(resolved)
    return found if published is None else {**found, "paper": published}
