"""What follows from the numbers of a study.json, for the page, the files and the terminal alike.

None of it is stored: a result that was kept before shows it too.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple


def budget_used_up(found: Mapping[str, Any]) -> bool:
    """Trials were left because the study's budget was spent, so that the same command would not run them either."""
    budget = found["study"].get("budget")
    return (
        budget is not None and bool(found["trials"]["missing"]) and found["timing"]["cost"]["seconds"] >= 3600 * budget
    )


def on_other_text(text: Mapping[str, Any]) -> list[str]:
    """Arms whose pieces of text are not the reference's, at any length."""
    judged = next(iter(text["verdicts"].values()))
    return [name for name, one in judged.items() if one["verdict"] == "other text"]


def asked_alike(tasks: Mapping[str, Any], task: str) -> tuple[dict[str, Any], list[str]]:
    """The results of the arms that were asked the reference's questions, and the names of the others."""
    judged = tasks["verdicts"][task]
    other = [name for name, one in judged.items() if one.get("reach_verdict") == "other questions"]
    arms, alike = ({name: one for name, one in each.items() if name not in other} for each in (tasks["arms"], judged))
    return {**tasks, "arms": arms, "verdicts": {**tasks["verdicts"], task: alike}}, other


def losses(arm: Mapping[str, Any], protocol: str, length: int) -> list[float | None]:
    """Of each seed; none where the arm cannot be measured there."""
    each = arm[protocol].get(str(length), [])
    return [] if isinstance(each, str) else each


def ratios(text: Mapping[str, Any], name: str, length: int) -> list[float | None]:
    """Of each seed: perplexity on the same tokens, over the arm's own at the trained length."""
    arm = text["arms"][name]
    pairs = zip(losses(arm, "same_tokens", text["trained"]), losses(arm, "same_tokens", length), strict=False)
    return [None if near is None or far is None else math.exp(min(far - near, 700.0)) for near, far in pairs]


def middle(each: Sequence[float | None]) -> float | None:
    """The geometric mean of ratios, which is that of mean losses: in an arithmetic one a seed that explodes is all.
    None where a seed has none, or there are none."""
    known = [one for one in each if one is not None]
    return math.exp(statistics.fmean(map(math.log, known))) if known and len(known) == len(each) else None


class Flattered(NamedTuple):
    """An arm whose loss falls with longer non-overlapping windows, and on the same tokens by less than half as much."""

    name: str
    length: int
    windows: float
    """Mean over seeds: loss at that length less that at the trained one."""
    same: float


def flattered(text: Mapping[str, Any]) -> Iterator[Flattered]:
    """Each at the longest length where every seed gains by windows, and on the same tokens less than half of that."""
    trained = text["trained"]
    for name, arm in text["arms"].items():
        for length in sorted((n for n in text["lengths"] if n > trained), reverse=True):
            windows, same = (_gains(arm, protocol, trained, length) for protocol in ("non_overlapping", "same_tokens"))
            if windows and same and max(windows) < 0 and all(2 * b > a for a, b in zip(windows, same, strict=True)):
                yield Flattered(name, length, statistics.fmean(windows), statistics.fmean(same))
                break


def _gains(arm: Mapping[str, Any], protocol: str, near: int, far: int) -> list[float]:
    """Of each seed; nothing where one of them has no number."""
    pairs = zip(losses(arm, protocol, near), losses(arm, protocol, far), strict=False)
    each = [None if a is None or b is None else b - a for a, b in pairs]
    known = [one for one in each if one is not None]
    return known if len(known) == len(each) else []


def best_on_task(tasks: Mapping[str, Any], task: str) -> tuple[int, list[str]] | None:
    """The longest length at which any seed answers more right than by chance, and the arms that are best there: by the
    median of their seeds, of equal ones by the worst seed, then by the best."""
    # Results of before know no chance.
    chance = tasks.get("chance", {}).get(task, {})
    for length in sorted(tasks["lengths"], reverse=True):
        rows = {name: arm["exact"][task][str(length)]["points"] for name, arm in tasks["arms"].items()}
        keys = {name: _key(row) for name, row in rows.items() if row and not isinstance(row, str)}
        if any(best > chance.get(str(length), 0.0) for _, _, best in keys.values()):
            return length, [name for name, key in keys.items() if key == max(keys.values())]
    return None


def _key(shares: Sequence[float]) -> tuple[float, float, float]:
    return statistics.median(shares), min(shares), max(shares)
