"""The search of one tournament: a ramp, then its slow pairs where the ramp is worth it, as one more finalist.

documents to search on    choose the six numbers, and the steps of the refinement
documents to select on    say whether the ramp is better than the best formula: only then it is refined; and whether
                          the refined one is better than the ramp: only then it is taken
documents to judge on     are not looked at here
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from typing import Any, NamedTuple

from ropewalk.extend.candidates import Candidate, Rope
from ropewalk.extend.rounds import Ask
from ropewalk.extend.search.objective import Objective
from ropewalk.extend.search.ramp import Ramp, as_candidate
from ropewalk.extend.search.refine import refine, slow
from ropewalk.extend.search.study import Trial, study
from ropewalk.extend.sets import SEARCH, SELECT, Sets

FEWEST = 4
"""Settings that a search measures at least."""


@dataclass(frozen=True)
class Searched:
    candidate: Candidate
    """The finalist."""
    ramp: Ramp
    trials: list[Trial]
    select: dict[str, float]
    """What is made small, on the documents to select on: of the formulas that are finalists, the ramp, and the refined
    one where there is one."""
    refined: bool
    """Whether the finalist is the refined one."""
    passes: int
    """Asked for, at the full length."""
    with_needles: bool
    """Whether needles had a part in what was made small; a short text has no room for them."""

    def to_dict(self) -> dict[str, Any]:
        trials = [one.to_dict() for one in self.trials]
        return {**asdict(self), "candidate": self.candidate.to_dict(), "trials": trials}


class Passes(NamedTuple):
    """What a search measures with, and how many passes are kept for the comparison at its end."""

    on: Objective
    selecting: Objective
    compared: int

    @classmethod
    def of(
        cls,
        ask: Ask,
        sets: Sets,
        finalists: int,
        encode: Callable[[str], Sequence[int]] | None,
        *,
        given: int,
        tail: int,
    ) -> Passes:
        """Refuses too few: asked before the rounds too, which take hours."""
        on = Objective(ask, sets.search, encode, tail, SEARCH)
        selecting = Objective(ask, sets.select, encode, tail, SELECT)
        compared = selecting.cost * (finalists + 2)
        least = compared + 2 * FEWEST * on.cost
        if given < least:
            raise ValueError(
                f"--search {given} is too few passes: {compared} compare the result with the finalists and each "
                f"setting takes {on.cost}; give at least {least}"
            )
        return cls(on, selecting, compared)


def need() -> None:
    """Before anything is measured: a search that cannot be is not found out hours later."""
    if find_spec("optuna") is None:
        raise ModuleNotFoundError("optuna is not installed", name="optuna")


def search(
    ask: Ask,
    rope: Rope,
    sets: Sets,
    formulas: Sequence[Candidate],
    finalists: Mapping[str, Candidate],
    encode: Callable[[str], Sequence[int]] | None,
    *,
    passes: int,
    tail: int,
) -> Searched:
    """formulas: that read the whole text, the best first. passes: at the full length, at most."""
    on, selecting, compared = Passes.of(ask, sets, len(finalists), encode, given=passes, tail=tail)
    trials = study(on, rope, formulas, 2 * (passes - compared) // 3)
    best = min((one for one in trials if one.value is not None), key=lambda one: one.value or 0.0)
    assert best.value is not None
    ramp = best.ramp.candidate(rope)
    select = {
        name: selecting("search, compared", one.scaling)
        for name, one in {**finalists, "ramp": ramp}.items()
    }  # fmt: skip
    taken, refined = ramp, False
    if select["ramp"] < min(select[name] for name in finalists):
        divisors = best.ramp.divisors(rope.width // 2)
        left = passes - compared - on.passes
        moved, value = refine(on, rope, divisors, best.ramp.gain, best.value, best.half, left)
        if value < best.value:
            about = f"{ramp.about}, and its {len(slow(divisors, rope))} slow pairs refined"
            other = replace(as_candidate(moved, best.ramp.gain, rope), about=about)
            select["refined"] = selecting("refinement, compared", other.scaling)
            if select["refined"] < select["ramp"]:
                taken, refined = other, True
    return Searched(taken, best.ramp, trials, select, refined, on.passes + selecting.passes, bool(on.fillers))
