"""The numbers of a comparison as CSV files, one behind each figure and table: a row is one number with its names."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ropewalk.compare.derived import ratios

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


COST = ("arm", "seed", "parameters", "flops of a step", "nats", "nats at equal time", "seconds of a step")
SOLVED = ("task", "arm", "symbols", "solved", "seeds", "low", "high", "median", "verdict", "p")


def tables(found: Mapping[str, Any]) -> dict[str, tuple[tuple[str, ...], Rows]]:
    made: dict[str, tuple[tuple[str, ...], Rows]] = {}
    times = found["timing"]["arms"]
    if (text := found["text"]) is not None:
        made["position"] = (("arm", "from", "to", "seed", "nats"), _positions(text))
        for protocol in ("same_tokens", "non_overlapping", "sliding"):
            made[protocol] = (("arm", "length", "seed", "nats"), _protocol(text, protocol))
        made["anchors"] = (("arm", "length", "seed", "perplexity ratio"), _anchors(text))
        made["verdicts"] = (("length", "arm", "verdict", "difference", "low", "high", "p"), _verdicts(text))
        made["cost"] = (COST, _cost(text, times["text"]))
    if (tasks := found["tasks"]) is not None:
        made["tasks"] = (("task", "arm", "symbols", "seed", "exact"), _tasks(tasks))
        made["task_verdicts"] = (SOLVED, _task_verdicts(tasks))
        made["task_reach"] = (("task", "arm", "seed", "reach", "verdict", "p"), _task_reach(tasks))
        made["task_cost"] = (COST, _cost(tasks, times["tasks"]))
    made["rates"] = (("part", "arm", "seed", "which", "factor", "rate", "nats"), _rates(found))
    made["search"] = (("part", "arm", "factor", "nats", "chosen", "edge"), _search(found))
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


def _anchors(text: Mapping[str, Any]) -> Rows:
    for name, arm in text["arms"].items():
        for length in (n for n in text["lengths"] if n > text["trained"]):
            if isinstance(one := arm["same_tokens"].get(str(length)), str):
                yield from ((name, length, seed, one) for seed in arm["seed"])
            else:
                found = zip(arm["seed"], ratios(text, name, length), strict=False)
                yield from ((name, length, seed, ratio) for seed, ratio in found)


def _verdicts(text: Mapping[str, Any]) -> Rows:
    for length, each in text["verdicts"].items():
        for name, one in each.items():
            yield (length, name, one["verdict"], one.get("mean"), one.get("low"), one.get("high"), one.get("p"))


def _cost(part: Mapping[str, Any], times: Mapping[str, Any]) -> Rows:
    for name, arm in part["arms"].items():
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


def _task_verdicts(tasks: Mapping[str, Any]) -> Rows:
    for task, judged in tasks["verdicts"].items():
        for name, arm in tasks["arms"].items():
            for length, one in arm["exact"][task].items():
                said = judged.get(name, {}).get("lengths", {}).get(length, {})
                numbers = (one.get(key) for key in ("solved", "of", "low", "high", "median"))
                yield (task, name, length, *numbers, said.get("verdict"), said.get("p"))


def _task_reach(tasks: Mapping[str, Any]) -> Rows:
    for task, judged in tasks["verdicts"].items():
        for name, one in judged.items():
            # Results of before have the verdict on reaches alone, under these names.
            said = (one.get("reach_verdict", one.get("verdict")), one.get("reach_p", one.get("p")))
            found = zip(tasks["arms"][name]["seed"], one["reach"], strict=False)
            yield from ((task, name, seed, reach, *said) for seed, reach in found)


def _rates(found: Mapping[str, Any]) -> Rows:
    """The loss of every seed at the arm's own learning rate and at the shared one."""
    for part in ("text", "tasks"):
        for name, arm in (found[part] or {"arms": {}})["arms"].items():
            own, factor = arm["rate"], arm["factor"]
            for seed, loss in zip(arm["seed"], arm["loss"], strict=True):
                yield (part, name, seed, "own", factor, own, loss)
            for seed, loss in zip(arm["shared_seed"], arm["shared_loss"], strict=True):
                yield (part, name, seed, "shared", 1.0, own / factor if own and factor else None, loss)


def _search(found: Mapping[str, Any]) -> Rows:
    for part in ("text", "tasks"):
        for name, arm in (found[part] or {"arms": {}})["arms"].items():
            for factor, loss in arm.get("search", {}).items():
                chosen = float(factor) == arm["factor"]
                yield (part, name, factor, loss, chosen, chosen and bool(arm.get("edge")))
