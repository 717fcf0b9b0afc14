"""What a run was and what it would be resumed as: every difference that changes what is learned, in one error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ropewalk.amounts import counted

# Where, how often and what is done about faults, not what is learned: a run may continue with other values of these.
# The checkpoint that a run started from is compared by its fingerprint, wherever it lies.
FREE = (
    "recipe.mesh",
    "recipe.data.path",
    "recipe.data.of.*.path",
    "recipe.train.start",
    "recipe.train.micro",
    "recipe.train.recompute",
    "recipe.train.deterministic",
    "recipe.train.save",
    "recipe.train.evaluate",
    "recipe.train.samples",
    "recipe.train.track",
    "recipe.train.faults",
)
ABSENT = "absent"


class Drift(ValueError):
    """A checkpoint of a run that was not this one."""

    def __init__(self, differences: list[str]) -> None:
        super().__init__(differences)
        self.differences = differences

    @property
    def _listed(self) -> str:
        return "\n".join(f"  {each}" for each in self.differences)

    def __str__(self) -> str:
        return (
            f"the checkpoint is of another run; {counted(len(self.differences), 'difference')}:\n{self._listed}\n"
            "resume with what it was saved with, or accept the differences by --allow-drift"
        )

    def within(self, what: str, folder: Path) -> ValueError:
        """Of a run that another command makes in a folder of its own, and which has no --allow-drift."""
        return ValueError(
            f"the {what} in {folder} was begun with something else:\n{self._listed}\n"
            f"continue with that, or begin it again: rm -r {folder}"
        )


def check_drift(saved: Mapping[str, Any], now: Mapping[str, Any], *, allow: bool = False) -> list[str]:
    """The differences in what `now` names, or none; an error unless they are allowed."""
    # Matrices that are kept in one or apart are updated alike, number by number; Muon updates each as a whole.
    kinds = {_optimizer(side) for side in (saved, now)}
    free = FREE if "muon" in kinds else (*FREE, "recipe.model.fused")
    found = [
        f"{name}: was {was!r}, is {is_!r}"
        for key in now
        for name, was, is_ in differences(key, saved.get(key, ABSENT), now[key])
        if not (name == "versions.python" and _minor(was) == _minor(is_))
        if not any(fnmatchcase(name, each) or fnmatchcase(name, f"{each}.*") for each in free)
    ]
    if found and not allow:
        raise Drift(found)
    return found


def _optimizer(facts: Mapping[str, Any]) -> Any:
    found: Any = facts
    for key in ("recipe", "train", "optimizer", "kind"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _minor(version: Any) -> list[str]:
    """A patch release of Python computes as the one before it."""
    return str(version).split(".")[:2]


def differences(name: str, was: Any, is_: Any) -> Iterator[tuple[str, Any, Any]]:
    """Leaves that are not equal. JSON knows no tuples, so a list equals one."""
    if isinstance(was, Mapping) and isinstance(is_, Mapping):
        for key in [*was, *(key for key in is_ if key not in was)]:
            yield from differences(f"{name}.{key}", was.get(key, ABSENT), is_.get(key, ABSENT))
    elif isinstance(was, (list, tuple)) and isinstance(is_, (list, tuple)) and len(was) == len(is_):
        for number, (one, other) in enumerate(zip(was, is_, strict=True)):
            yield from differences(f"{name}.{number}", one, other)
    elif was != is_:
        yield name, was, is_
