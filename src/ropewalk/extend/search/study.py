"""Six numbers searched by optuna's tree of Parzen estimators, from the best formulas on, by a seed.

The study is kept nowhere: all it asks for is stored under the hash of what was measured, so a run that continues asks
for the same again, has it at once, and ends as it would have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from ropewalk.extend.candidates import Candidate, Rope
from ropewalk.extend.search.objective import Objective
from ropewalk.extend.search.ramp import Ramp, nearest, ranges

SEED = 0
STARTS = 4
"""Settings that are measured in full before any is given up."""
LOGARITHMIC = ("span", "power", "factor", "base")


@dataclass(frozen=True)
class Trial:
    """One setting: value is None where it was given up after half of the documents."""

    ramp: Ramp
    half: float
    value: float | None
    formula: str | None = None
    """What it is the nearest ramp to."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def study(objective: Objective, rope: Rope, formulas: Sequence[Candidate], passes: int) -> list[Trial]:
    """formulas: the best first, which are tried in this order. passes: at most as many are asked for."""
    import optuna

    limits = ranges(rope)
    space: dict[str, optuna.distributions.BaseDistribution] = {
        name: optuna.distributions.FloatDistribution(*limit, log=name in LOGARITHMIC) for name, limit in limits.items()
    }
    starts: dict[Ramp, str] = {}
    # Half of the settings are the search's own: formulas compete by themselves.
    most = max(STARTS, passes // objective.cost // 2)
    for one in formulas:
        if len(starts) < most:
            starts.setdefault(nearest(rope.divisors(one.scaling), one.gain, rope), one.name)
    shown = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        # From the formulas on it learns; before so many settings it would draw at random.
        sampler = optuna.samplers.TPESampler(seed=SEED, multivariate=True, n_startup_trials=len(starts))
        kept = optuna.create_study(sampler=sampler, pruner=optuna.pruners.NopPruner())
        for ramp in starts:
            kept.enqueue_trial(asdict(ramp))
        found: list[Trial] = []
        end = objective.passes + passes
        while objective.passes + objective.cost <= end:
            trial = kept.ask(space)
            ramp = Ramp(**trial.params)
            scaling = ramp.candidate(rope).scaling
            stage = f"search, setting {len(found) + 1}"
            half = objective.begin(stage, scaling)
            trial.report(half, 0)
            # optuna's median is over completed trials alone, which get better and better: few would be completed.
            if len(found) >= STARTS and half > median(one.half for one in found):
                value = None
                kept.tell(trial, state=optuna.trial.TrialState.PRUNED)
            else:
                value = objective.finish(stage, scaling)
                kept.tell(trial, value)
            found.append(Trial(ramp, half, value, starts.get(ramp)))
    finally:
        optuna.logging.set_verbosity(shown)
    return found
