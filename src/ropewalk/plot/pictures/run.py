"""Training runs, one over the other: loss, learning rate, gradient norm and speed by step."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import Field

from ropewalk.plot.chart import Axis, Chart, Data, Line, Panel
from ropewalk.plot.runs import named_runs
from ropewalk.plot.words import Words
from ropewalk.settings import Settings

TAKES = "RUN..."
IN_PYTHON = "the folders of runs"
CURVES = {"loss": "loss", "rate": "lr", "norm": "norm", "speed": "tokens_per_second"}
"""What is drawn, and what metrics.jsonl calls it."""
REFUSED = ("spike", "not finite")
"""Events that a step's update was refused or undone for; others tell of a start, a resumption, a full disk."""
LOOKS = (("blue", 0), ("orange", 1), ("green", 3), ("violet", 2), ("gold", 4), ("grey", 5))


class Options(Settings):
    points: int = Field(default=300, ge=10, le=5000)
    """Points of a curve; of more steps the median of neighbours is taken."""


def data(thing: Any, options: Options) -> Data:
    return {"runs": [_run(name, path, options.points) for name, path in named_runs(thing)]}


def _run(name: str, path: Path, points: int) -> dict[str, Any]:
    from ropewalk.train.metrics import read

    records = read(path)
    if not records["train"]:
        raise ValueError(f"{path} holds no training step yet; wait for one, or name another run")
    every = -(-len(records["train"]) // points)
    groups = [records["train"][i : i + every] for i in range(0, len(records["train"]), every)]
    curves = {curve: [_middle(group, key) for group in groups] for curve, key in CURVES.items()}
    return {
        "name": name,
        "steps_per_point": every,
        "steps": [group[-1]["step"] for group in groups],
        **curves,
        "valid": {
            "steps": [one["step"] for one in records["valid"]],
            "loss": [one["loss"] if _finite(one["loss"]) else None for one in records["valid"]],
        },
        "events": [
            {"step": one["step"], "what": one["what"]} for one in records["event"] if "step" in one and "what" in one
        ],
    }  # fmt: skip


def _middle(group: list[dict[str, Any]], key: str) -> float | None:
    values = [one[key] for one in group if _finite(one.get(key))]
    return median(values) if values else None


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def chart(data: Data, words: Words) -> Chart:
    runs = data["runs"]
    panels = [_panel(curve, runs, words) for curve in CURVES]
    about = words("about", runs=words("comma").join(run["name"] for run in runs))
    if refused := sum(event["what"] in REFUSED for run in runs for event in run["events"]):
        about += words("events", count=refused)
    return Chart(title=words("title"), about=about, panels=panels, columns=2, height=2.5)


def _panel(curve: str, runs: list[dict[str, Any]], words: Words) -> Panel:
    lines = []
    for run, (tone, dashes) in zip(runs, LOOKS * 9, strict=False):
        label = run["name"] if len(runs) > 1 else ""
        lines.append(_line(run["steps"], run[curve], label, tone, dashes))
        if curve == "loss" and run["valid"]["steps"]:
            name = words("valid") if len(runs) == 1 else ""
            lines.append(_line(run["valid"]["steps"], run["valid"]["loss"], name, tone, dashes, dots=True))
    lines = [line for line in lines if line.y]
    values = [value for line in lines for value in line.y] or [0.0]
    low, high = (0.0 if curve in ("rate", "speed") else min(values)), max(values)
    room = 0.06 * (high - low or 1)
    last = max(run["steps"][-1] for run in runs)
    return Panel(
        title=words(curve),
        x=Axis(low=0, high=last, label=words("step")),
        y=Axis(low=low - (room if low else 0), high=high + room, label=words(f"{curve}_unit")),
        marks=lines,
    )


def _line(x: list[int], y: list[float | None], label: str, tone: str, dashes: int, dots: bool = False) -> Line:
    known = [(step, value) for step, value in zip(x, y, strict=True) if value is not None]
    return Line(
        x=[s for s, _ in known],
        y=[v for _, v in known],
        label=label,
        tone=tone,
        dashes=dashes,
        dots=dots,
        joined=not dots,
    )
