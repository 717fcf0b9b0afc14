"""Checkpoints against engines, as data: what each config says, which engine computes otherwise, in what, and why.

    gather(paths) -> the gallery     entry(rw.inspect("config.json")) -> one checkpoint

All of it comes from `inspect`: configs alone, no weights, no torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ropewalk.checkpoints.engines.base import LayerReading
from ropewalk.checkpoints.engines.besides import FREQUENCIES
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.inspect.report import Report, Row, inspect
from ropewalk.plan import LayerPlan
from ropewalk.plot.pictures.engines import standing

CONFIG = "config"


def gather(paths: Iterable[Path], sources: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Those that disagree first, then by name; `sources` are addresses of the configs, by name."""
    entries, unread = [], []
    for path in paths:
        try:
            report = inspect(path)
        except BadInput as error:
            unread.append({"name": path.stem, "why": f"{error.field}: {error.problem}"})
            continue
        entries.append({**entry(report), "name": path.stem, "source": (sources or {}).get(path.stem, "")})
    entries.sort(key=lambda one: (one["agree"], not one["rotates"], one["name"]))
    return {"entries": entries, "unread": sorted(unread, key=lambda one: one["name"])}


def entry(report: Report) -> dict[str, Any]:
    """One checkpoint, in what JSON can hold."""
    plan = report.resolved.plan
    stands = standing(report)["engines"] if report.rotates else {}
    return {
        "name": report.resolved.name,
        "model_type": report.resolved.model_type,
        "agree": report.agree,
        "rotates": report.rotates,
        "trained": plan.trained,
        "stated": plan.stated,
        "extended": plan.extended,
        "layers": _alike(plan.layers),
        "count": len(plan.layers),
        "engines": {name: {**_engine(report.rows[name]), **stands.get(name, {})} for name in report.counted},
        "not_understood": dict(report.resolved.not_understood),
        "pairs": [{"pairs": one.pairs, "unfinished": one.unfinished, "longest": one.longest} for one in report.waves],
        "waves": [_waves(report, place) for place in range(len(report.planned))],
    }


def _alike(layers: Iterable[LayerPlan]) -> list[dict[str, Any]]:
    """Layers that a reader is told the same of, once, with how many there are."""
    found: dict[str, dict[str, Any]] = {}
    for layer in layers:
        said = _layer(layer)
        found.setdefault(json.dumps(said, sort_keys=True), {**said, "count": 0})["count"] += 1
    return list(found.values())


def _layer(layer: LayerPlan) -> dict[str, Any]:
    scaling = layer.scaling
    factor = getattr(scaling, "ratio", None) or getattr(scaling, "factor", None)
    return {
        "kind": layer.kind,
        "base": layer.base,
        "layout": layer.layout,
        "rotated": layer.rotary_width,
        "head": layer.head_width,
        "scaling": None if scaling is None else scaling.kind,
        "factor": factor if factor != 1 else None,
        "window": layer.window,
    }


def _engine(row: Row) -> dict[str, Any]:
    reading = row.reading
    return {
        "engine": reading.engine,
        "version": reading.version,
        "refusal": reading.refusal,
        "apart": _finite(row.apart),
        "apart_long": _finite(row.apart_long),
        "rotary_gain": list(dict.fromkeys(layer.rotary_gain for layer in reading.layers)),
        "logit_gain": list(dict.fromkeys(layer.logit_gain for layer in reading.layers)),
        "length": reading.length,
        "notes": [
            {"what": note.what, "why": note.why, "issue": note.issue, "about": note.about, "counts": note.counts}
            for note in reading.notes
        ],
    }


def _finite(value: float) -> float | None:
    """JSON has no infinity: None where other pairs turn."""
    return value if math.isfinite(value) else None


def _waves(report: Report, place: int) -> dict[str, Any]:
    """Tokens per turn of each pair: as the config says, and as each engine that departs from it computes."""
    ours = report.planned[place]
    rows = _rows(CONFIG, ours)
    for name in report.at_odds:
        row = report.rows[name]
        if FREQUENCIES in row.departs:
            theirs = _rows(row.reading.engine, row.reading.layers[place])
            known = [one["wavelengths"] for one in rows if one["who"] == CONFIG]
            several = len(theirs) > 1 or len(known) > 1
            rows += [one for one in theirs if several or one["wavelengths"] not in known]
    return {"layers": list(ours.numbers), "rows": rows}


def _rows(who: str, reading: LayerReading) -> list[dict[str, Any]]:
    """Once, or for short texts and long ones where those differ."""
    short, long = ([2 * math.pi / omega if omega else None for omega in found]
                   for found in (reading.frequencies, reading.stretched))  # fmt: skip
    if short == long:
        return [{"who": who, "when": "all", "wavelengths": short}]
    return [{"who": who, "when": when, "wavelengths": each} for when, each in (("short", short), ("long", long))]
