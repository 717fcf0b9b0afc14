"""Checkpoints against engines: which would compute the positions of each as its config says, and which would not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.inspect.report import Report, inspect
from ropewalk.plot.chart import Axis, Cell, Chart, Data, Note, Panel
from ropewalk.plot.words import Words
from ropewalk.settings import Settings

TAKES = "CHECKPOINT..."
IN_PYTHON = "inspections"
AGREES, DEPARTS, PARTLY, REFUSES = "agrees", "departs", "partly", "refuses"
LOOKS = {AGREES: ("=", "green"), DEPARTS: ("\u2260", "orange"), PARTLY: ("?", "gold"), REFUSES: ("\u2013", "wash")}
"""What a cell says without its colour, and its colour."""


SHORT = {"transformers5": "transf. 5", "transformers4": "transf. 4"}
"""So that a table with reasons fits a terminal."""


class Options(Settings):
    only: str = Field(default="all", pattern="all|departing")
    """departing: only checkpoints that some engine computes otherwise."""


def data(thing: Any, options: Options) -> Data:
    """A folder is a checkpoint where it has a config.json, else every .json file in it is one."""
    rows, unread, count = [], [], 0
    for one in [thing] if isinstance(thing, str | Path | Report) else list(thing):
        for place in [one] if isinstance(one, Report) else _configs(Path(one), str(one)):
            try:
                report = place if isinstance(place, Report) else inspect(place)
            except BadInput as error:
                unread.append({"name": Path(str(place)).stem, "why": str(error)})
                continue
            count += report.rotates
            if report.rotates and (options.only == "all" or not report.agree):
                rows.append(standing(report))
    if not rows:
        raise ValueError("no checkpoint here has positions that engines are compared in" + _reasons(unread))
    rows.sort(key=lambda row: (row["agree"], row["name"]))
    return {"engines": list(rows[0]["engines"]), "compared": count, "rows": rows, "unread": unread}


def _configs(path: Path, given: str) -> list[str]:
    if not path.is_dir() or (path / "config.json").exists():
        return [given]
    found = sorted(str(file) for file in path.glob("*.json"))
    if not found:
        raise ValueError(f"{given} holds no config.json and no other .json file; name a checkpoint")
    return found


def _reasons(unread: list[dict[str, str]]) -> str:
    return f"; {unread[0]['name']}: {unread[0]['why']}" if unread else ""


def standing(report: Report) -> dict[str, Any]:
    """Which counted engine computes what the config says, and what the others do not."""
    found = {}
    for name in report.counted:
        row = report.rows[name]
        departs = list(row.departs)
        unknown = [aspect for aspect in row.reading.unknown if aspect in report.applicable]
        kind = REFUSES if row.reading.refusal else DEPARTS if departs else PARTLY if unknown else AGREES
        found[name] = {"kind": kind, "departs": departs, "not_compared": unknown}
    return {"name": report.resolved.name, "agree": report.agree, "engines": found}


def chart(data: Data, words: Words) -> Chart:
    marks: list[Any] = []
    for column, engine in enumerate(data["engines"]):
        marks.append(Cell(x=column, y=-1, text=SHORT.get(engine, engine), faint=True))
    for y, row in enumerate(data["rows"]):
        marks.append(Note(x=-0.58, y=y, text=row["name"], align="right", tone="ink"))
        for column, found in enumerate(row["engines"].values()):
            sign, fill = LOOKS[found["kind"]]
            marks.append(Cell(x=column, y=y, text=sign, fill=fill))
        said = dict.fromkeys(aspect for found in row["engines"].values() for aspect in found["departs"])
        if said:
            told = words("comma").join(words(aspect.replace(" ", "_").replace("-", "_").lower()) for aspect in said)
            marks.append(Note(x=len(data["engines"]) - 0.4, y=y, text=told))
    count = len(data["rows"])
    bad = sum(not row["agree"] for row in data["rows"])
    panel = Panel(
        x=Axis(low=-2.3, high=len(data["engines"]) + 1.6),
        y=Axis(low=count - 0.4, high=-1.6),
        marks=marks,
        frame=False,
    )
    key = " \u00b7 ".join(f"{LOOKS[kind][0]} {words(kind)}" for kind in LOOKS)
    about = words("about", count=data["compared"], bad=bad, key=key)
    return Chart(title=words("title"), about=about, panels=[panel], height=0.27 * (count + 1) + 0.35)
