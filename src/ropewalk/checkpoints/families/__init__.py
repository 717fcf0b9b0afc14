"""Families of checkpoints: one small file each, found by the `model_type` of a config."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from types import ModuleType

from ropewalk.checkpoints.errors import BadInput

_BASE = "base"


def names() -> tuple[str, ...]:
    """The files there are."""
    return tuple(sorted(found.name for found in pkgutil.iter_modules(__path__) if found.name != _BASE))


def model_types() -> tuple[str, ...]:
    """What they read."""
    return tuple(sorted(kind for name in names() for kind in import_module(f"{__name__}.{name}").MODEL_TYPES))


def find(model_type: str, where: str) -> ModuleType:
    """The family that reads this `model_type`."""
    for name in names():
        family = import_module(f"{__name__}.{name}")
        if model_type in family.MODEL_TYPES:
            return family
    known = ", ".join(model_types())
    raise BadInput(where, "model_type", f"{model_type!r} is not one that loads", f"these do: {known}")
