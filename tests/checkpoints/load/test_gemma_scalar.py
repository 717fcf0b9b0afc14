"""Gemma's scale of scores, which a GGUF file does not say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ropewalk.checkpoints.load.gguf import _scalar


@pytest.mark.parametrize(("layers", "width", "want"), [(62, 5376, 168), (26, 5376, 128), (62, 5380, 168.125)])
def test_it_is_whole_where_it_can_be(layers: int, width: int, want: float) -> None:
    """Gemma 3 27B, by its widths; transformers 5 refuses a config with 168.0."""
    sizes = {"attention.head_count": 32, "embedding_length": width, "attention.key_length": 128}
    resolved: Any = SimpleNamespace(plan=SimpleNamespace(layers=range(layers)))
    keys: Any = SimpleNamespace(count=sizes.__getitem__)
    known: Any = SimpleNamespace(scale_by_width_at=62)
    found = _scalar(resolved, keys, known)
    assert (found, type(found)) == (want, type(want))
