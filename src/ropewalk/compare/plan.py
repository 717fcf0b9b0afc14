"""Which trials a study still needs, given those that are done.

1. each arm at every learning rate of the search, one seed, a part of the training
2. each arm at its own best rate, all seeds; the first seeds at the recipe's rate too
3. one seed more for arms whose interval is too wide, until none is or the most seeds are there
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ropewalk.compare.difference import difference
from ropewalk.compare.measure_text import measured_on, seed_means
from ropewalk.compare.study import Study, TextPart
from ropewalk.compare.trials import Trial, Trials

Results = Mapping[str, Mapping[str, Any]]
"""Of trials that are done, by their hash."""


class Plan:
    def __init__(self, study: Study) -> None:
        self.study, self.trials = study, Trials(study)

    def needed(self, results: Results) -> list[Trial]:
        """Every trial known to be needed, the done ones among them. Where all are done, the study is."""
        found = [trial for part in self.study.parts for trial in self._of_part(part, results)]
        return list({trial.hash: trial for trial in found}.values())

    def missing(self, results: Results) -> list[Trial]:
        return [trial for trial in self.needed(results) if trial.hash not in results]

    def own_rate(self, part: str, arm: str, results: Results) -> float | None:
        """The factor with the lowest validation loss, of equal ones that nearest 1; None: not known yet."""
        if not self._search(part, arm):  # one factor needs none
            return 1.0 if self.study.rates is None else self.study.rates.factors[0]
        losses = self.searched(part, arm, results)
        if losses is None:
            return None
        return min(losses, key=lambda factor: (losses[factor], abs(math.log(factor))))

    def searched(self, part: str, arm: str, results: Results) -> dict[float, float] | None:
        """The loss at every factor of the search; None where one is missing."""
        search = self._search(part, arm)
        if any(trial.hash not in results for trial in search):
            return None
        return {trial.factor: _loss(results[trial.hash]) for trial in search}

    def final(self, part: str, arm: str, results: Results, *, shared: bool = False) -> list[Trial]:
        """The trials that an arm is judged by, at its own rate or at the shared one."""
        factor = 1.0 if shared else self.own_rate(part, arm, results)
        if factor is None:
            return []
        count = self.seeds(part, arm, results)
        if shared and self.own_rate(part, arm, results) != 1 and self.study.rates is not None:
            count = min(count, self.study.rates.shared_seeds)
        return [self.trials.trial(part, arm, seed, factor) for seed in range(count)]

    def seeds(self, part: str, arm: str, results: Results) -> int:
        """Those the study asks for, and those that its rule for stopping adds."""
        asked = self.study.parts[part]
        first = self._first_seeds(part, arm)
        if not isinstance(asked, TextPart) or asked.until is None:
            return first
        if arm == self.study.reference:
            others = (self.seeds(part, other, results) for other in self.study.arms_of(part)[1:])
            return max([first, *others])
        count = first
        while count < asked.until.seeds and self._too_wide(part, arm, count, asked.until.half_width, results):
            count += 1
        return count

    def _of_part(self, part: str, results: Results) -> list[Trial]:
        found: list[Trial] = []
        for arm in self.study.arms_of(part):
            found += self._search(part, arm)
            found += self.final(part, arm, results) + self.final(part, arm, results, shared=True)
        return found

    def _search(self, part: str, arm: str) -> list[Trial]:
        rates = self.study.rates
        factors: Sequence[float] = () if rates is None or len(rates.factors) < 2 else rates.factors
        return [self.trials.trial(part, arm, 0, factor, search=True) for factor in factors]

    def _first_seeds(self, part: str, arm: str) -> int:
        asked = self.study.parts[part]
        floor = asked.reference_seeds or 0
        return max(asked.seeds, floor) if arm == self.study.reference else asked.seeds

    def _too_wide(self, part: str, arm: str, count: int, most: float, results: Results) -> bool:
        """Of the difference that the verdict is about: known to be too wide with so many seeds, all of them done."""
        rates = {name: self.own_rate(part, name, results) for name in (arm, self.study.reference)}
        data: dict[str, Any] = {name: self.trials.recipes[part, name].data for name in rates}
        if measured_on(data[arm]) != measured_on(data[self.study.reference]):
            return False  # of other text there is no verdict
        trained, losses = data[self.study.reference].length, {}
        for name, factor in rates.items():
            if factor is None:
                return False
            number = max(count, self._first_seeds(part, name))
            each = [self.trials.trial(part, name, seed, factor).hash for seed in range(number)]
            if any(name not in results for name in each):
                return False
            measured = [results[name]["measured"] for name in each]
            if None in measured or isinstance(means := seed_means(measured, trained), str):
                return False  # more seeds do not narrow a divergence
            losses[name] = means
        return difference(losses[arm], losses[self.study.reference]).half_width > most


def _loss(result: Mapping[str, Any]) -> float:
    """The validation loss, at the trained length; of one that diverged, worse than any."""
    loss = math.inf if result["loss"] is None else float(result["loss"])
    return loss if math.isfinite(loss) else math.inf
