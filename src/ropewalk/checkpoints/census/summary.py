"""The rows of a census, counted. A checkpoint counts once for each kind, base or scaling that one of its layers has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ropewalk.checkpoints.census.look import READ, UNREAD

MOST_EXAMPLES = 100
LENGTHS = ("stated", "trained", "extended", "table")
NO_SCALING = "none"


def summary(
    rows: Iterable[Mapping[str, Any]], answers: Mapping[str, int], engines: Sequence[str], listed: int
) -> dict[str, Any]:
    """In what JSON can hold; most frequent first."""
    names = ("states", "kinds", "scalings", "bases", "model_types", "unknown_types", "fields", "not_understood")
    counts: dict[str, Counter[Any]] = {name: Counter() for name in names}
    lengths: dict[str, Counter[int]] = {name: Counter() for name in LENGTHS}
    by_engine = {name: {"loads": 0, "differs": 0, "aspects": Counter[str]()} for name in engines}
    examples: dict[str, list[dict[str, Any]]] = {"differ": [], "unread": []}
    rotating = loaded = differing = partly = 0
    for row in rows:
        counts["states"][row["state"]] += 1
        if row["state"] == UNREAD:
            kind = "unknown_types" if row["field"] == "model_type" and row.get("model_type") else "fields"
            counts[kind][row["model_type"] if kind == "unknown_types" else row["field"]] += 1
            _example(examples["unread"], {"name": row["name"], "why": f"{row['field']}: {row['why']}"})
        if row["state"] != READ:
            continue
        counts["model_types"][row["model_type"]] += 1
        for name in ("kinds", "bases", "not_understood"):
            counts[name].update(row[name])
        counts["scalings"].update(row["scalings"] or ([NO_SCALING] if row["rotates"] else []))
        for name in LENGTHS:
            if row[name] is not None:
                lengths[name][row[name]] += 1
        rotating += row["rotates"]
        loaded += bool(row["loading"])
        differing += bool(row["at_odds"])
        partly += bool(row["not_compared"])
        for name in row["loading"]:
            by_engine[name]["loads"] += 1
        for name in row["at_odds"]:
            by_engine[name]["differs"] += 1
        for one in row["departs"]:
            name, _, aspect = one.partition(": ")
            by_engine[name]["aspects"][aspect] += 1
        if row["at_odds"]:
            _example(examples["differ"], {key: row[key] for key in ("name", "model_type", "at_odds")})
    return {
        "checkpoints": listed,
        "answers": dict(answers),
        **{name: _ranked(found) for name, found in counts.items()},
        "lengths": {name: _ranked(found) for name, found in lengths.items()},
        "rotating": rotating,
        "loaded": loaded,
        "differing": differing,
        "partly_compared": partly,
        "engines": {name: {**one, "aspects": _ranked(one["aspects"])} for name, one in by_engine.items()},
        "examples": examples,
    }


def _example(kept: list[dict[str, Any]], one: dict[str, Any]) -> None:
    if len(kept) < MOST_EXAMPLES:
        kept.append(one)


def _ranked(found: Counter[Any]) -> list[list[Any]]:
    """Pairs: keys that are numbers stay numbers in JSON."""
    return [[value, count] for value, count in sorted(found.items(), key=lambda each: (-each[1], each[0]))]
