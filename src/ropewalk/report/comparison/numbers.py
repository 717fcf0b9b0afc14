"""How the page of a comparison writes names and numbers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ropewalk.report.words import Words

words = Words("compare")


def names(found: Sequence[str]) -> Any:
    """An arm may be called none: what stands where there is none must not look like one."""
    return ", ".join(found) if found else words("no_arm")


def left_out(part: Mapping[str, Any], reference: str) -> list[dict[str, str]]:
    """Who is in no comparison of validation losses, and by which settings, as a sentence. Results of before do not
    know it."""
    each = [f"{name} ({', '.join(keys)})" for name, keys in part["rankings"].get("left_out", {}).items()]
    return [words("left_out", names=", ".join(each), reference=reference)] if each else []


def unlike(key: str, other: Sequence[str], reference: str) -> list[dict[str, str]]:
    """Who was measured on other text than the reference, or asked other questions, as a sentence."""
    return [words(key, names=names(other), reference=reference)] if other else []


def mean(values: Any) -> float | None:
    """None where a seed has no number: a mean of those that are left would flatter."""
    numbers = [] if isinstance(values, str) else values or []
    return statistics.fmean(numbers) if numbers and None not in numbers else None


def decimal(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "\u2212")


def percent(shares: Sequence[float]) -> str:
    """Of each seed."""
    return f"{', '.join(f'{100 * share:.0f}' for share in shares)} %"


def p_value(p: float) -> str:
    """Of an exact test it is never zero."""
    return f"{p:.2g}" if p >= 0.001 else "< 0.001"


def sentences(*said: Mapping[str, str]) -> dict[str, str]:
    """As one paragraph; Chinese puts no space between sentences."""
    return {language: gap.join(one[language] for one in said) for language, gap in (("en", " "), ("zh", ""))}


def at(by_length: Mapping[Any, Any], length: int) -> Any:
    """Lengths are text where this was read from JSON."""
    return by_length[length] if length in by_length else by_length.get(str(length))
