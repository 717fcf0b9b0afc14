"""Facts of other projects that scripts read from their sources: names of architectures, keys of configs."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Literal


@cache
def engine_names(engine: str) -> Any:
    """The architectures an engine knows, and which of them its code treats apart (scripts/engine_names.py)."""
    return _read("engine_names")[engine]


@cache
def of_transformers(what: Literal["keys", "defaults", "gguf"]) -> Any:
    """Of each architecture, keys that are not about positions, or what a text part may leave out; such keys of GGUF
    (scripts/config_keys.py)."""
    return _read("config_keys")[what]


@cache
def _read(name: str) -> Any:
    return json.loads(Path(__file__).with_name(f"{name}.json").read_text(encoding="utf-8"))
