"""Families of checkpoints: one small file each, which the row of an architecture names."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from types import ModuleType

from ropewalk.checkpoints.architectures.table import TABLE
from ropewalk.checkpoints.errors import BadInput

_BASE = "base"


def names() -> tuple[str, ...]:
    """The files there are."""
    return tuple(sorted(found.name for found in pkgutil.iter_modules(__path__) if found.name != _BASE))


def model_types() -> tuple[str, ...]:
    """What they read."""
    return tuple(model_type for model_type, row in TABLE.items() if row.family is not None)


def find(model_type: str, where: str) -> ModuleType:
    """The family that reads this `model_type`."""
    row = TABLE.get(model_type)
    if row is not None and row.family is not None:
        return import_module(f"{__name__}.{row.family}")
    known = ", ".join(model_types())
    raise BadInput(where, "model_type", f"{model_type!r} is not one that loads", f"these do: {known}")
