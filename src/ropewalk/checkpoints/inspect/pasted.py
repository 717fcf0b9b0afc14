"""A text to paste for one engine, and what the engine's rule makes of a config that was changed so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ropewalk.checkpoints.engines import Reading
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.inspect.changes import Config
from ropewalk.checkpoints.resolve.hf import resolve

MODEL = "MODEL"
"""Stands for the model's directory where only its config was given."""


@dataclass(frozen=True, kw_only=True)
class Override:
    """The keys or flags for one engine, or why there are none."""

    engine: str
    into: str | None = None
    """The object of a file that the text's keys belong into; None: the text is a command."""
    text: str | None = None
    why: str | None = None
    """Why there is no text."""
    notes: tuple[str, ...] = ()
    """What else the engine does with these keys or flags."""


def checked(config: Config, changes: Mapping[str, Any], engine: Any) -> tuple[str | None, tuple[str, ...]]:
    """Why the changed config is not read as wanted, or what else the engine then does."""
    reading = reading_of(config, config.changed(changes), engine)
    why = config.wanted.short_of(reading)
    return why, () if why is not None else brought(config, reading, engine)


def reading_of(config: Config, changed: Mapping[str, Any], engine: Any) -> Reading:
    try:
        return engine.read(resolve(changed, where=config.facts.resolved.where, strict=False))
    except BadInput as error:
        return Reading(engine=engine.ENGINE, version=engine.VERSION, refusal=f"{error.field} {error.problem}")
    except ValueError as error:
        return Reading(engine=engine.ENGINE, version=engine.VERSION, refusal=str(error))


def brought(config: Config, reading: Reading, engine: Any) -> tuple[str, ...]:
    """Disagreements that the change brings."""
    before = {note.what for note in engine.read(config.facts.resolved).notes}
    return tuple(note.what for note in reading.notes if note.counts and note.what not in before)


def as_json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
