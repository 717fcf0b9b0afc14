"""The Transformers of the articles by name, as presets.yaml beside this file writes them.

`preset("gpt2", layers=2, width=64)` is the same model in small, `preset("llama", encoding={"scaling": {...}})` the same
with a scaling: changes are laid over the preset by `overrides.merge`, as those of a command line are over a file.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ropewalk.models.config import TransformerConfig
from ropewalk.overrides import expand, merge, read

PRESETS: dict[str, dict[str, Any]] = read(Path(__file__).with_suffix(".yaml"))


def preset(name: str, **changes: Any) -> TransformerConfig:
    """The config of a named model, with these keys changed. A number of layers is that of each stack."""
    if name not in PRESETS:
        near = get_close_matches(name, PRESETS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"no preset {name!r}: {hint}there are {', '.join(PRESETS)}")
    known = expand(PRESETS[name], TransformerConfig)
    layers = known.get("layers")
    if isinstance(changes.get("layers"), int) and isinstance(layers, dict):
        count = changes["layers"]
        stacks = {
            side: {**stack, "count": count} if isinstance(stack, dict) else count for side, stack in layers.items()
        }
        changes = {**changes, "layers": stacks}
    return TransformerConfig(**merge(known, changes))
