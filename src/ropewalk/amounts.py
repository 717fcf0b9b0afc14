"""Amounts as people write and read them: 20M, 16k tokens; 1 pass, 2 passes; ten lines of many. A k is a thousand."""

from __future__ import annotations

import re
from collections.abc import Iterable
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


def counted(number: int, one: str, more: str | None = None) -> str:
    """1 requirement, 45 requirements"""
    return f"{number:,} {one if number == 1 else more or f'{one}s'}"


def duration(seconds: float) -> str:
    """In the unit that it is read in: 12 s, 3 minutes, 1.5 hours, 2.5 days."""
    for size, name in ((86400, "days"), (3600, "hours")):
        if seconds >= 1.95 * size:
            return f"{seconds / size:,.1f} {name}"
    if seconds >= 59.5:
        return counted(round(seconds / 60), "minute")
    return f"{seconds:.0f} s" if seconds >= 1 else "less than a second"


def consecutive(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """The first and the last of each run of numbers that follow one another."""
    runs: list[tuple[int, int]] = []
    for one in numbers:
        if runs and one == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], one
        else:
            runs.append((one, one))
    return runs


Amount = Annotated[int, BeforeValidator(amount), Field(gt=0)]


def brief(text: str, most: int = 10) -> str:
    """What is shown at a prompt of a text that print() shows in full."""
    lines = text.splitlines()
    if len(lines) <= most:
        return text
    return "\n".join([*lines[: most - 1], f"... {len(lines) - most + 1} more lines: print it to see them"])
