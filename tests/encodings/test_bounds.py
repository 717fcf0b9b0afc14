"""Where the settings of encodings and scalings end: the last value that is taken, and the first that is not."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from ropewalk import encodings, positions
from ropewalk.scaling import Linear, LongRoPE, Proportional, YaRN

NEXT = {float: lambda value, way: math.nextafter(value, way * math.inf), int: lambda value, way: value + way}
CASES = [
    # kind, its other settings, the setting, the smallest and the largest; None: not looked at.
    ("rope", {}, "base", None, 1e12),
    ("sinusoidal", {}, "base", None, 1e12),
    ("xpos", {}, "base", None, 1e12),
    ("rope", {}, "rotary_width", 2, None),
    ("t5", {"farthest": 2**40}, "buckets", 4, 2**20),
    ("t5", {}, "farthest", None, 2**40),
    ("learned", {}, "longest", 1, 2**40),
    ("learned", {"longest": 8}, "first_row", 0, 2**20),
    ("temperature", {}, "trained", 2, None),
    ("fire", {}, "hidden", 1, None),
    (Linear, {}, "factor", 1.0, 4096.0),
    (Proportional, {}, "fraction", None, 1.0),
    (LongRoPE, {"short": (1.0,), "long": (2.0,), "trained": 64}, "extended", 64, 64 * 4096),
    (YaRN, {"factor": 2}, "trained", 2, 2**40),
    (YaRN, {"factor": 2, "trained": 64}, "beta_fast", None, 1e6),
    (YaRN, {"factor": 2, "trained": 64}, "attention_factor", None, 100.0),
    (YaRN, {"factor": 2, "trained": 64}, "mscale", 0.0, 100.0),
]


def named(case: Any) -> str | None:
    return getattr(case, "__name__", case) if isinstance(case, (str, type)) else None


@pytest.mark.parametrize(("kind", "settings", "name", "smallest", "largest"), CASES, ids=named)
def test_the_last_value_and_the_next(kind: Any, settings: dict, name: str, smallest: Any, largest: Any) -> None:
    build = encodings.find(kind).Config if isinstance(kind, str) else kind
    for last, way in ((smallest, -1), (largest, 1)):
        if last is not None:
            assert getattr(build(**settings, **{name: last}), name) == last
            with pytest.raises(ValueError, match=name):
                build(**settings, **{name: NEXT[type(last)](last, way)})


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_what_must_be_positive_and_finite(value: float) -> None:
    for kind, name in (("fire", "slope"), ("fire", "threshold"), ("xpos", "fade")):
        with pytest.raises(ValueError, match=name):
            encodings.find(kind).Config(**{name: value})
        assert getattr(encodings.find(kind).Config(**{name: 1e-3}), name) == 1e-3
    with pytest.raises(ValueError, match="long"):
        LongRoPE(short=(1.0,), long=(value,), trained=64, factor=2)


def test_keys_past_the_end_of_a_table_are_refused() -> None:
    learned = encodings.build({"kind": "learned", "longest": 8}, width=4)
    learned.at(positions.plain(8), positions.plain(8))
    for places in ((8, 9), (9, 8)):
        with pytest.raises(ValueError, match="position 8 may come"):
            learned.at(*map(positions.plain, places))


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float16, 5120), (torch.bfloat16, 61_440), (torch.float32, 61_440)])
def test_how_far_xpos_stays_within_a_precision(dtype: torch.dtype, limit: int) -> None:
    """10 and 120 times the positions over which a pair fades, 512."""
    xpos, x = encodings.build("xpos", head_width=8), torch.ones(1, 1, 2, 8, dtype=dtype)
    assert xpos.at(positions.plain(2, limit=limit)).rotate(x, "key").isfinite().all()
    with pytest.raises(ValueError, match=f"up to limit {limit:,}, and the limit is {limit + 1:,}"):
        xpos.at(positions.plain(2, limit=limit + 1)).rotate(x, "key")
