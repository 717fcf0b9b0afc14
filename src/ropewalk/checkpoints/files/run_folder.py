"""The folder of a training run, as those see it who look for a model: an export, checkpoints, or neither yet.

RUN/{recipe.yaml, export/, checkpoints/step-00000100/}
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from ropewalk.checkpoints.errors import BadInput

CHECKPOINTS, EXPORT, RECIPE = "checkpoints", "export", "recipe.yaml"
COMMITTED = re.compile(r"step-(\d{8,})(\.replaced)?")


def committed(folder: Path) -> list[tuple[int, Path]]:
    """Step and place of each checkpoint, oldest first; of one step, what was replaced first."""
    found = [(COMMITTED.fullmatch(path.name), path) for path in folder.glob("step-*")]
    order = [(int(m[1]), m[2] is None, path) for m, path in found if m is not None]
    return [(step, path) for step, _, path in sorted(order)]


def is_run(place: Path) -> bool:
    folder = place / CHECKPOINTS
    return folder.is_dir() and ((place / RECIPE).is_file() or bool(committed(folder)))


def has_export(place: Path) -> bool:
    return (place / EXPORT / "config.json").is_file()


def not_a_model(place: Path) -> BadInput | None:
    """What to type where a run, or a part of one, was given for a model; None where it is neither."""
    found = COMMITTED.fullmatch(place.name)
    if found is not None and is_run(run := place.parent.parent):
        problem, remedy = "is a checkpoint of a run", f"write a model of it: {export_line(run)} --step {int(found[1])}"
    elif place.name == CHECKPOINTS and is_run(run := place.parent):
        problem, remedy = "holds the checkpoints of a run", f"write a model of the newest: {export_line(run)}"
    elif not is_run(place):
        return None
    elif not (steps := committed(place / CHECKPOINTS)):
        problem, remedy = no_checkpoint(place)
    else:
        problem = f"the run has not finished; its newest checkpoint is of step {steps[-1][0]:,}"
        remedy = f"write a model of it: {export_line(place)}"
    return BadInput(place, "model", problem, remedy)


def export_line(run: Path) -> str:
    return f"ropewalk export {shlex.quote(str(run))} OUT"


def no_checkpoint(run: Path) -> tuple[str, str]:
    """The problem and the remedy."""
    line = f"ropewalk train RECIPE --out {shlex.quote(str(run))} --resume"
    return "the run has no checkpoint yet", f"wait for its first, or continue it: {line}"
