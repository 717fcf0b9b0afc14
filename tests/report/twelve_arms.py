"""Made-up trials of a study with twelve arms, whose numbers have what real ones have: an arm far above all others, one
that explodes past the trained length, a table that ends, arms nearly alike, seeds that fail a task."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

from ropewalk.compare.plan import Plan
from ropewalk.compare.result import compared
from ropewalk.compare.study import Study
from ropewalk.compare.trials import Trial
from ropewalk.data.prepare.sample import sample
from tests.compare.tiny_study import RECIPE

TRAINED, LENGTHS, PIECES, CURVES = 32, (32, 64, 192, 512), 10, 4
TEXT: dict[str, tuple[float, float, float]] = {
    # loss at the trained length, what 16 times of it adds to the loss of the same tokens, milliseconds of a step
    "rope": (2.910, 1.40, 30.0),
    "none": (2.935, 0.90, 27.5),
    "alibi": (2.905, 0.004, 30.5),
    "t5": (2.890, 0.02, 41.0),
    "kerple": (2.900, -0.02, 44.0),
    "scalar-unit": (3.020, 0.60, 27.8),
    "scalar-integer": (6.120, 4.00, 27.9),
    "rope-one-pair": (2.930, 0.80, 28.5),
    "sinusoidal": (2.950, 2.50, 28.0),
    "learned": (2.948, math.nan, 27.6),
    "rope-nope": (2.908, 0.70, 29.5),
    "rope-random": (2.980, 0.05, 30.1),
}
SYMBOLS = (5, 20, 25, 40)
COPY: dict[str, dict[int, list[float]]] = {
    "rope": {5: [1, 1, 1, 1, 1], 20: [1, 0.97, 1, 0.96, 0.99], 25: [0] * 5, 40: [0] * 5},
    # One seed has 87 % at the shortest length, and copies 40 symbols all the same.
    "t5": {5: [1, 0.87, 1, 1, 1], 20: [1, 1, 1, 1, 0.99], 25: [1, 1, 1, 0.99, 0.8], 40: [1, 1, 0.99, 0.98, 0.58]},
    "none": {5: [1, 1, 0.2, 1, 1], 20: [0.9, 0.95, 0, 0.7, 0.91], 25: [0.1, 0, 0, 0.03, 0], 40: [0] * 5},
    "alibi": {5: [1] * 5, 20: [1] * 5, 25: [0.92, 0.4, 1, 0.9, 0.88], 40: [0.02, 0, 0.1, 0, 0.01]},
    "learned": {5: [1] * 5, 20: [1] * 5, 25: [math.nan] * 5, 40: [math.nan] * 5},
}


def planned(folder: Path, **changes: Any) -> Plan:
    data = {"kind": "text", "path": str(sample("text", folder / "d")), "length": TRAINED, "isolate": False}
    # Each is another recipe: arms alike in everything are one and the same trial.
    arms = {name: {"model": {"encoding": {"kind": "rope", "base": 10_000 + n}}} for n, name in enumerate(TEXT)}
    asked = {
        "recipe": RECIPE, "reference": "rope", "arms": arms,
        "text": {"recipe": {"data": data}, "lengths": LENGTHS[1:], "tail": 16, "seeds": 3},
        "tasks": {
            "recipe": {"data": {"kind": "tasks", "of": ["copy", "parity"], "longest": 20}},
            "arms": list(COPY), "lengths": SYMBOLS,
        },
        "rates": {"factors": [0.5, 1, 2], "shared_seeds": 1},
    }  # fmt: skip
    return Plan(Study(**{**asked, **changes}))


def trial_result(trial: Trial) -> dict[str, Any]:
    near, more, step = TEXT[trial.arm]
    number = list(TEXT).index(trial.arm)
    noise = 0.004 * math.sin(7.0 * trial.seed + number)
    # The smallest rate is best for scalar-integer, the greatest for t5.
    best = {"scalar-integer": 0.5, "t5": 2.0}.get(trial.arm, 1.0)
    loss = near + noise + 0.05 * abs(math.log2(trial.factor / best)) + (0.3 if trial.share != 1 else 0.0)
    measured = _text(near + noise, more * (1 + 10 * noise)) if trial.part == "text" else _tasks(trial)
    return {
        "hash": trial.hash, "part": trial.part, "arm": trial.arm, "seed": trial.seed, "factor": trial.factor,
        "rate": 0.002 * trial.factor, "parameters": 800_000, "steps": 1000, "tokens": 1_500_000, "step_flops": 1e9,
        "diverged": None, "loss": loss, "curve": [[500, loss + 0.2], [1000, loss]],
        "measured": None if trial.measure is None else measured, "versions": {"torch": "2"},
        "timing": {"train": step, "step": step / 1000, "measure": 1.0},
    }  # fmt: skip


def _text(near: float, more: float) -> dict[str, Any]:
    def added(length: int) -> float:
        return more * math.log(length / TRAINED) / math.log(LENGTHS[-1] / TRAINED) if length > TRAINED else 0.0

    def row(at: float) -> Any:
        return "cannot" if math.isnan(at) else [at + 0.01 * math.sin(d) for d in range(PIECES)]

    edges = [8 * 2**n for n in range(7)]
    return {
        "pieces": PIECES,
        "same_tokens": {n: row(near + added(n)) for n in LENGTHS},
        # Tokens with little before them cost 0.1 nats, and long windows have fewer of them.
        "non_overlapping": {n: row(near + 0.1 * TRAINED / n + added(n) / 2) for n in LENGTHS},
        "sliding": {TRAINED: row(near)},
        "context": [0.2] * CURVES,
        "by_position": [
            {"from": a, "to": b, "loss": near + 0.5 * 8 / a + added(a)}
            for a, b in itertools.pairwise(edges)
            if a < TRAINED or not math.isnan(more)
        ],
    }


def _tasks(trial: Trial) -> dict[str, Any]:
    shares = {n: each[trial.seed] for n, each in COPY[trial.arm].items()}
    copying = {n: "cannot" if math.isnan(share) else float(share) for n, share in shares.items()}
    exact = {"copy": copying, "parity": {n: float(n == 5 and trial.arm == "none") for n in SYMBOLS}}
    return {"exact": exact, "constant": {task: dict.fromkeys(SYMBOLS, 0.01) for task in exact}}


def results(plan: Plan) -> dict[str, dict[str, Any]]:
    """Of every trial, those that the search makes necessary among them."""
    known: dict[str, dict[str, Any]] = {}
    while missing := plan.missing(known):
        known |= {trial.hash: trial_result(trial) for trial in missing}
    return known


def found(plan: Plan, folder: Path, known: dict[str, dict[str, Any]] | None = None) -> dict[str, Any]:
    """As study.json has it."""
    answer = compared(plan, results(plan) if known is None else known, folder)
    return json.loads(json.dumps(answer, allow_nan=False))
