"""What the trials of a study say together, as data: verdicts, curves, both rankings, and what was not shown.

Everything that a second run of the study would change stands under `timing`.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ropewalk.compare.cost import Cost
from ropewalk.compare.difference import difference, noise_floor, verdicts
from ropewalk.compare.judge_tasks import SOLVED, by_chance, judged_task, points
from ropewalk.compare.measure_text import CANNOT, at_length, measured_on, seed_means
from ropewalk.compare.plan import Plan, Results
from ropewalk.compare.trials import changed, digest
from ropewalk.data.task_set import OF_DIGITS
from ropewalk.evaluate.statistics import FEWEST, paired
from ropewalk.train.config import Recipe
from ropewalk.train.schedule import WarmupStableDecay

PAYS = 0.05
"""Nats by which the reference must gain from context within its length; else verdicts on text mean nothing."""

OTHER_TEXT = "other text"

Trials = Sequence[Mapping[str, Any]]
Measured = Sequence[Mapping[str, Any] | None]
"""Of each seed; None of one that diverged."""


def compared(plan: Plan, results: Results, out: Path) -> dict[str, Any]:
    study = plan.study
    needed = plan.needed(results)
    known = [results[trial.hash] for trial in needed if trial.hash in results]
    registered = out / "registered.jsonl"
    lines = registered.read_text(encoding="utf-8").splitlines() if registered.is_file() else []
    asked = study.model_dump(mode="json")
    return {
        "study": asked,
        "hash": digest(asked),
        "reference": study.reference,
        "trials": {"done": len(known), "missing": [trial.name for trial in needed if trial.hash not in results]},
        "versions": sorted({json.dumps(one["versions"], sort_keys=True) for one in known}),
        "text": _text(plan, results) if study.text is not None else None,
        "tasks": _tasks(plan, results) if study.tasks is not None else None,
        "timing": {
            "registered": [json.loads(line) for line in lines],
            "cost": Cost.of(needed, results)._asdict(),
            "arms": {part: _times(plan, part, results) for part in study.parts},
        },
    }


def _judged(plan: Plan, part: str, arm: str, results: Results, *, shared: bool = False) -> Trials:
    """The trials of an arm that are there."""
    found = plan.final(part, arm, results, shared=shared)
    return [results[trial.hash] for trial in found if trial.hash in results]


def _about(plan: Plan, part: str, arm: str, results: Results) -> dict[str, Any]:
    own, shared = _judged(plan, part, arm, results), _judged(plan, part, arm, results, shared=True)
    first = next(iter([*own, *shared]), None)
    searched = plan.searched(part, arm, results) or {}
    return {
        "seeds": len(own),
        "asked": plan.seeds(part, arm, results),
        # Which they are: of an unfinished study any of them may be missing.
        "seed": [one["seed"] for one in own],
        "shared_seed": [one["seed"] for one in shared],
        "factor": (factor := plan.own_rate(part, arm, results)),
        "search": {_key(at): _finite(loss) for at, loss in searched.items()},
        # A grid that went on might have a better one there.
        "edge": len(searched) > 2 and factor in (min(searched), max(searched)),
        "rate": own[0]["rate"] if own else None,
        "parameters": first and first["parameters"],
        "step_flops": first and first["step_flops"],
        "tokens": first and first["tokens"],
        "diverged": [{"seed": one["seed"], **one["diverged"]} for one in own if one["diverged"]],
        "loss": [_finite(one["loss"]) for one in own],
        "shared_loss": [_finite(one["loss"]) for one in shared],
    }


def _key(factor: float) -> str:
    """Short, and the same number when it is read: the chosen one is found by it."""
    short = f"{factor:g}"
    return short if float(short) == factor else repr(factor)


def _text(plan: Plan, results: Results) -> dict[str, Any]:
    study, names = plan.study, plan.study.arms_of("text")
    assert study.text is not None
    arms = {name: _about(plan, "text", name, results) for name in names}
    each = {name: [one["measured"] for one in _judged(plan, "text", name, results)] for name in names}
    done = {name: [one for one in measured if one] for name, measured in each.items()}
    trained = plan.trials.recipes["text", study.reference].data.length
    for name, about in arms.items():
        skips: Any = getattr(plan.trials.recipes["text", name].data, "positions", None)
        about["reach"] = None if skips is None else skips.reach
        about["same_tokens"] = _by_length(each[name], "same_tokens")
        about["non_overlapping"] = _by_length(each[name], "non_overlapping")
        about["sliding"] = _by_length(each[name], "sliding")
        about["by_position"] = _positions(each[name])
    pays = _context_pays([one["context"] for one in done[study.reference]])
    whole = {name: len(done[name]) >= plan.seeds("text", name, results) for name in names}
    lengths = [n for n in sorted({trained, *study.text.lengths}) if n >= trained]
    # An arm with other data is measured on that: neither its tokens nor its pieces are the reference's.
    read = {name: measured_on(plan.trials.recipes["text", name].data) for name in names}
    base = read[study.reference]
    floors, judged = {}, {}
    for length in lengths:
        values = {name: seed_means(done[name], length) if read[name] == base else OTHER_TEXT for name in names}
        reference = values[study.reference]
        # A reference without the seeds that it lost would be a better one.
        enough = study.text.reference_seeds is not None and whole[study.reference]
        floor = noise_floor(reference) if enough and not isinstance(reference, str) else None
        floors[length] = floor
        judged[length] = _verdicts(values, done, study.reference, length, floor if pays["pays"] else None)
        for name, one in judged[length].items():
            # The seeds that are left are not those that were asked for.
            if not whole[name] and one["verdict"] in ("better", "worse", "tie", "no verdict"):
                one["verdict"] = "some diverged" if arms[name]["diverged"] else "no verdict"
    return {
        "trained": trained,
        "lengths": lengths,
        "pieces": done[study.reference][0]["pieces"] if done[study.reference] else 0,
        # Windows and the loss by position are measured on fewer.
        "curve_pieces": len(done[study.reference][0]["context"]) if done[study.reference] else 0,
        "tail": study.text.tail,
        "context_pays": pays,
        "noise_floor": floors,
        "verdicts": judged,
        "rankings": _ranked(arms, _left_out(plan, "text")),
        "arms": arms,
    }


def _verdicts(
    values: Mapping[str, Sequence[float] | str],
    done: Mapping[str, Trials],
    reference: str,
    length: int,
    floor: float | None,
) -> dict[str, dict[str, Any]]:
    """Of each arm but the reference, at one length: loss of the same tokens."""
    base = values[reference]
    found = {
        name: difference(value, base)
        for name, value in values.items()
        if name != reference and not isinstance(value, str) and not isinstance(base, str) and value and base
    }
    said = verdicts(found, floor)
    answer: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        if name == reference:
            continue
        if isinstance(value, str):
            answer[name] = {"verdict": value}
        elif name in found:
            over = paired(_by_document(done[name], done[reference], length))
            verdict = said[name]
            # Past the noise of seeds and not past that of texts: another text could turn it round.
            if verdict in ("better", "worse") and (over.documents < FEWEST or over.low <= 0 <= over.high):
                verdict = "tie" if over.documents >= FEWEST else "no verdict"
            answer[name] = {"verdict": verdict, **found[name].to_dict(), "documents": over.to_dict()}
        else:
            answer[name] = {"verdict": "no verdict"}
    return answer


def _by_document(arm: Trials, reference: Trials, length: int) -> list[float]:
    """Arm minus reference for each piece of text, over all seeds."""
    return [
        a - b
        for a, b in zip(_document_means(arm, length), _document_means(reference, length), strict=True)
        if math.isfinite(a - b)
    ] or [math.nan]


def _document_means(done: Trials, length: int) -> list[float]:
    rows = [at_length(one["same_tokens"], length) for one in done]
    return [statistics.fmean(math.inf if v is None else v for v in column) for column in zip(*rows, strict=True)]


def _by_length(each: Measured, protocol: str) -> dict[str, Any]:
    """Of each seed, the mean over pieces; None of one that diverged."""
    found: dict[str, Any] = {}
    for length in next((one[protocol] for one in each if one), ()):
        rows = [one[protocol][length] if one else None for one in each]
        found[str(length)] = (
            CANNOT
            if CANNOT in rows
            else [None if row is None or None in row else statistics.fmean(row) for row in rows]
        )
    return found


def _positions(each: Measured) -> list[dict[str, Any]]:
    first = next((one["by_position"] for one in each if one), [])
    return [
        {**part, "loss": [one["by_position"][number]["loss"] if one else None for one in each]}
        for number, part in enumerate(first)
    ]


def _context_pays(seeds: Sequence[Sequence[float | None]]) -> dict[str, Any]:
    """What the reference gains from its whole length on tokens that it also reads with little before them."""
    each = [None if None in column else statistics.fmean(column) for column in zip(*seeds, strict=True)]
    known = [value for value in each if value is not None]
    if not known or len(known) < len(each):
        return {"pays": False, "gain": None, "least": PAYS, "low": None, "high": None}
    over = paired(known)
    said = {name: value if math.isfinite(value) else None for name, value in (("low", over.low), ("high", over.high))}
    return {"pays": over.mean >= PAYS, "gain": over.mean, "least": PAYS, **said}


def _left_out(plan: Plan, part: str) -> dict[str, list[str]]:
    """Arms whose validation loss is of other data than the reference's, and by which settings."""
    read = {arm: _validated(plan.trials.recipes[part, arm]) for arm in plan.study.arms_of(part)}
    each = {arm: [key for key, _, _ in changed(read[plan.study.reference], one)] for arm, one in read.items()}
    return {arm: keys for arm, keys in each.items() if keys}


def _validated(recipe: Recipe) -> dict[str, Any]:
    """What decides which tokens are validated on, and what stands before them: in longer windows more, which alone
    lowers a loss. Which documents and samples come how often is of training, and positions are the model's affair."""
    data = recipe.data.model_dump(mode="json", exclude={"positions", "long", "samples"})
    return {"data": data, "train": {"evaluate": {"tokens": recipe.train.evaluate.tokens}}}


def _ranked(arms: Mapping[str, Mapping[str, Any]], left: Mapping[str, list[str]]) -> dict[str, Any]:
    return {**_rankings({name: one for name, one in arms.items() if name not in left}), "left_out": left}


def _rankings(arms: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """By validation loss at the trained length: each arm at its own learning rate, and all at the shared one. Over the
    seeds that every arm has at both: seeds share weights and batches, and move all arms alike."""
    there = {name: about for name, about in arms.items() if about["loss"] and about["shared_loss"]}
    each = [set(about[key]) for about in there.values() for key in ("seed", "shared_seed")]
    seeds = sorted(set.intersection(*each)) if each else []

    def means(losses: str, numbers: str) -> dict[str, float]:
        found = {name: dict(zip(about[numbers], about[losses], strict=True)) for name, about in there.items()}
        worst = {name: [math.inf if known[n] is None else known[n] for n in seeds] for name, known in found.items()}
        return {name: statistics.fmean(values) for name, values in worst.items() if values}

    own, shared = means("loss", "seed"), means("shared_loss", "shared_seed")
    return {
        "own": sorted(own, key=lambda name: (own[name], name)),
        "shared": sorted(shared, key=lambda name: (shared[name], name)),
        "seeds": seeds,
        "kendall_tau": _kendall(list(own.values()), list(shared.values())),
    }


def _kendall(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Tau-b, for which arms that are alike, such as two that diverged, have no order; None: one ranks nothing."""
    signs = [
        ((a > b) - (a < b), (c > d) - (c < d))
        for (a, c), (b, d) in itertools.combinations(zip(one, other, strict=True), 2)
    ]
    ordered = [sum(sign != 0 for sign in each) for each in zip(*signs, strict=True)]
    return sum(a * b for a, b in signs) / math.sqrt(math.prod(ordered)) if ordered and all(ordered) else None


def _tasks(plan: Plan, results: Results) -> dict[str, Any]:
    study, names = plan.study, plan.study.arms_of("tasks")
    assert study.tasks is not None
    data: Any = plan.trials.recipes["tasks", study.reference].data
    arms = {name: _about(plan, "tasks", name, results) for name in names}
    measured = {name: [one["measured"] for one in _judged(plan, "tasks", name, results)] for name in names}
    for name, each in measured.items():
        # A seed that diverged answers nothing right.
        arms[name]["exact"] = {
            task: {
                str(n): points([at_length(one["exact"][task], n) if one else 0.0 for one in each])
                for n in study.tasks.lengths
            }
            for task in data.of
        }
    asked_of: dict[str, Any] = {name: plan.trials.recipes["tasks", name].data for name in names}
    other = [name for name in names if asked_of[name].vocabulary != data.vocabulary]
    # All others have the same questions; none is known before the first trial.
    known = [one["constant"] for name, each in measured.items() if name not in other for one in each if one]
    chance = {
        task: {
            str(n): by_chance(at_length(one[task], n), study.tasks.samples)
            for one in known[:1]
            for n in study.tasks.lengths
        }
        for task in data.of
    }
    # Without the seeds that the study asks of its reference nobody is judged.
    asked = names if study.tasks.reference_seeds is not None else []
    complete = [name for name in asked if arms[name]["seeds"] >= plan.seeds("tasks", name, results)]
    return {
        "tasks": list(data.of),
        "longest": data.longest,
        "lengths": sorted({*study.tasks.lengths}),
        "samples": study.tasks.samples,
        "solved": SOLVED,
        "chance": chance,
        "verdicts": {
            task: judged_task(
                {name: arm["exact"][task] for name, arm in arms.items()},
                study.reference,
                study.tasks.lengths,
                complete,
                chance[task],
                () if task in OF_DIGITS else other,
            )
            for task in data.of
        },
        "rankings": _ranked(arms, _left_out(plan, "tasks")),
        "arms": arms,
    }


def _times(plan: Plan, part: str, results: Results) -> dict[str, Any]:
    """Seconds of a step, and the validation loss each seed of each arm had when the fastest arm was done; where the
    rate falls in a last part of the training, when it began to: that part lowers the loss more than the time does."""
    found: dict[str, dict[str, Any]] = {}
    ends, left = [], _left_out(plan, part)
    schedule = plan.trials.recipes[part, plan.study.reference].train.schedule
    level = 1 - schedule.decay if isinstance(schedule, WarmupStableDecay) else 1.0
    for arm in plan.study.arms_of(part):
        each = _judged(plan, part, arm, results)
        steps = [one["timing"]["step"] for one in each if one["timing"]["step"]]
        found[arm] = {
            # What else the machine did only added to it, and to some seeds more than to others.
            "step": min(steps, default=None),
            "train": sum(one["timing"]["train"] for one in each),
            "curves": [[] if one["diverged"] else [(n, _finite(at)) for n, at in one["curve"]] for one in each],
            "steps": each[0]["steps"] if each else 0,
        }
        if arm not in left and steps and not all(one["diverged"] for one in each):
            ends.append(level * found[arm]["step"] * found[arm]["steps"])
    for arm, one in found.items():
        curves = one.pop("curves")
        share = min(ends) / (one["step"] * one["steps"]) if ends and one["step"] and arm not in left else None
        one["loss_at_equal_time"] = [_along(curve, share * one["steps"]) for curve in curves] if share else []
    return found


def _finite(loss: float | str | None) -> float | None:
    """Records have a word where a loss is not finite."""
    return None if loss is None or not math.isfinite(float(loss)) else float(loss)


def _along(curve: Sequence[tuple[int, float | None]], step: float) -> float | None:
    """The loss at a step between two measurements, on the straight line between them."""
    for (a, first), (b, second) in itertools.pairwise(curve):
        if a <= step <= b and first is not None and second is not None:
            return first + (second - first) * (step - a) / (b - a)
    return curve[-1][1] if curve and step >= curve[-1][0] else None
