"""The Transformers of the articles by name, as presets.yaml beside this file writes them.

`preset("gpt2", layers=2, width=64)` is the same model in small.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ropewalk.models.config import TransformerConfig
from ropewalk.overrides import read

PRESETS: dict[str, dict[str, Any]] = read(Path(__file__).with_suffix(".yaml"))


def preset(name: str, **changes: Any) -> TransformerConfig:
    """The config of a named model, with these keys changed."""
    if name not in PRESETS:
        raise ValueError(f"no preset {name!r}: {', '.join(PRESETS)}")
    return TransformerConfig.model_validate({**PRESETS[name], **changes})
