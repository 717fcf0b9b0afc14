"""The mutant museum: public bugs, each one line of a correct implementation replaced, all of which the suite must see.

A mutant is a target as any other: `ropewalk verify ropewalk.conformance.mutants:sglang_33558_gain_squared`, or
verify(MUTANTS["sglang_33558_gain_squared"].target, only="N08").
"""

from __future__ import annotations

from typing import Any

from ropewalk.conformance.mutants import alone, angles, biases, modules, recent, scalings, schedules
from ropewalk.conformance.mutants.mutant import Mutant, edited
from ropewalk.conformance.mutants.reference import Reference
from ropewalk.conformance.mutants.specs import SPECS

__all__ = ["MUTANTS", "SPECS", "Mutant", "Reference", "edited"]

ROOMS = (angles, scalings, biases, schedules, modules, recent, alone)
MUTANTS: dict[str, Mutant] = {mutant.name: mutant for room in ROOMS for mutant in room.MUTANTS}


def __getattr__(name: str) -> Any:
    """A mutant's target by its name, so that it can be imported as any other."""
    if name in MUTANTS:
        return MUTANTS[name].target
    raise AttributeError(f"no mutant {name!r}; MUTANTS has their names")
