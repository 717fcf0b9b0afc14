"""What may be done to read longer texts: one family, one file, plain numbers, no torch.

formulas(Rope(base=1e4, width=64, trained=2048, to=8192))
"""

from __future__ import annotations

from ropewalk.extend.candidates import clip, crop, gain, hybrid, larger_base, leave, linear, llama3, mrrope, yarn
from ropewalk.extend.candidates.base import Candidate, Rope, listed

__all__ = ["Candidate", "Rope", "formulas", "listed"]

FAMILIES = (leave, crop, linear, larger_base, yarn, mrrope, llama3, hybrid, clip, gain)


def formulas(rope: Rope) -> list[Candidate]:
    """All there are for this rotation, none twice: at their own length most of them leave everything as it is."""
    found: dict[tuple[object, ...], Candidate] = {}
    for family in FAMILIES:
        for one in family.candidates(rope):
            same = tuple(round(divisor, 9) for divisor in rope.divisors(one.scaling))
            found.setdefault((one.text, same, round(one.gain, 9)), one)
    return list(found.values())
