"""Amounts as people write them: 20M, 16k tokens, 1.5B. A k is a thousand, here as everywhere else."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

SIZES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}


def amount(value: Any) -> Any:
    if isinstance(value, float) and value == int(value):
        return int(value)
    if not isinstance(value, str):
        return value
    found = re.fullmatch(
        r"\s*(\d+(?:\.\d+)?)\s*([kKmMbBtT]?)\s*(?:tokens?)?\s*", value.replace(",", "").replace("_", "")
    )
    if found is None:
        raise ValueError(f"{value!r} is not an amount; write 20000000, 20M, or 16k tokens")
    return round(float(found[1]) * SIZES[found[2].lower()])


Amount = Annotated[int, BeforeValidator(amount), Field(gt=0)]
