"""The numbers of a comparison as CSV files, one behind each figure and table: a row is one number with its names."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Rows = Iterator[tuple[Any, ...]]


def write_tables(found: Mapping[str, Any], folder: Path) -> list[Path]:
    written = []
    folder.mkdir(parents=True, exist_ok=True)
    for name, (headings, rows) in tables(found).items():
        file = folder / f"{name}.csv"
        with file.open("w", encoding="utf-8", newline="") as opened:
            writer = csv.writer(opened)
            writer.writerow(headings)
            writer.writerows(rows)
        written.append(file)
    return written


def tables(found: Mapping[str, Any]) -> dict[str, tuple[tuple[str, ...], Rows]]:
    made: dict[str, tuple[tuple[str, ...], Rows]] = {}
    if (text := found["text"]) is not None:
        made["position"] = (("arm", "from", "to", "seed", "nats"), _positions(text))
        for protocol in ("same_tokens", "non_overlapping", "sliding"):
            made[protocol] = (("arm", "length", "seed", "nats"), _protocol(text, protocol))
        made["verdicts"] = (("length", "arm", "verdict", "difference", "low", "high", "p"), _verdicts(text))
        made["cost"] = (
            ("arm", "seed", "parameters", "flops of a step", "nats", "nats at equal time", "seconds of a step"),
            _cost(text, found["timing"]["arms"]["text"]),
        )
    if (tasks := found["tasks"]) is not None:
        made["tasks"] = (("task", "arm", "symbols", "seed", "exact"), _tasks(tasks))
    return made


def _positions(text: Mapping[str, Any]) -> Rows:
    for name, arm in text["arms"].items():
        for part in arm["by_position"]:
            found = zip(arm["seed"], part["loss"], strict=True)
            yield from ((name, part["from"], part["to"], seed, loss) for seed, loss in found)


def _protocol(text: Mapping[str, Any], protocol: str) -> Rows:
    for name, arm in text["arms"].items():
        for length, losses in arm[protocol].items():
            each = [losses] * arm["seeds"] if isinstance(losses, str) else losses
            yield from ((name, length, seed, loss) for seed, loss in zip(arm["seed"], each, strict=True))


def _verdicts(text: Mapping[str, Any]) -> Rows:
    for length, each in text["verdicts"].items():
        for name, one in each.items():
            yield (length, name, one["verdict"], one.get("mean"), one.get("low"), one.get("high"), one.get("p"))


def _cost(text: Mapping[str, Any], times: Mapping[str, Any]) -> Rows:
    for name, arm in text["arms"].items():
        late = times[name]["loss_at_equal_time"]
        for number, (seed, loss) in enumerate(zip(arm["seed"], arm["loss"], strict=True)):
            at = late[number] if late else None
            yield (name, seed, arm["parameters"], arm["step_flops"], loss, at, times[name]["step"])


def _tasks(tasks: Mapping[str, Any]) -> Rows:
    for task in tasks["tasks"]:
        for name, arm in tasks["arms"].items():
            for length, one in arm["exact"][task].items():
                each = [one["points"]] * arm["seeds"] if isinstance(one["points"], str) else one["points"]
                found = zip(arm["seed"], each, strict=True)
                yield from ((task, name, length, seed, share) for seed, share in found)
