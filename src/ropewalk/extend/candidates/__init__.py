"""What may be done to read longer texts: one family, one file, plain numbers, no torch.

formulas(Rope(base=1e4, width=64, trained=2048, to=8192))
"""

from __future__ import annotations

from ropewalk.extend.candidates import (
    clip,
    crop,
    gain,
    hybrid,
    larger_base,
    leave,
    linear,
    llama3,
    mrrope,
    stretched,
    yarn,
)
from ropewalk.extend.candidates.base import Candidate, Missing, Rope, listed

__all__ = ["Candidate", "Rope", "formulas", "listed", "without"]

FAMILIES = (leave, crop, linear, larger_base, yarn, mrrope, llama3, hybrid, clip, gain, stretched)


def formulas(rope: Rope) -> list[Candidate]:
    """All there are for this rotation, none twice: at their own length most of them leave everything as it is."""
    return _every(rope)[0]


def without(rope: Rope) -> dict[str, str]:
    """The names of those that are not among them, with the reason."""
    return _every(rope)[1]


def _every(rope: Rope) -> tuple[list[Candidate], dict[str, str]]:
    found: dict[tuple[object, ...], Candidate] = {}
    missing: dict[str, str] = {}
    for family in FAMILIES:
        for one in family.candidates(rope):
            if isinstance(one, Missing):
                missing[one.name] = one.why
                continue
            under = one.scaling or rope.scaling
            same = tuple(round(divisor, 9) for divisor in rope.divisors(one.scaling))
            gains = (one.gain, 1.0 if under is None else under.logit_gain)
            first = found.setdefault((one.text, same, *(round(gain, 9) for gain in gains)), one)
            if first is not one:
                missing[one.name] = f"the same as {first.name}"
    return list(found.values()), missing
