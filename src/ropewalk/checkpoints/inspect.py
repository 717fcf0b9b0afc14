"""What a checkpoint's positions are and what every engine would make of them, as data; `ropewalk inspect` prints it.

Nothing here imports torch or opens a weight: a config.json, or the head of a GGUF file, says it all.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ropewalk.checkpoints.engines import ENGINES, LayerReading, Reading, close, ratio, readings
from ropewalk.checkpoints.engines.facts import Facts
from ropewalk.checkpoints.hub import locate
from ropewalk.checkpoints.inspect_drift import Drift, drifts
from ropewalk.checkpoints.inspect_lengths import Stretch, Waves, stretches, waves
from ropewalk.checkpoints.resolve import read
from ropewalk.checkpoints.resolved import Resolved


@dataclass(frozen=True, kw_only=True)
class Row:
    """One engine beside the plan."""

    reading: Reading
    apart: float = 1.0
    """The largest factor between its frequencies and the plan's, for texts within the trained length."""
    apart_long: float = 1.0
    """The same for texts of the extended length."""
    gains_differ: bool = False

    @property
    def agrees(self) -> bool:
        return not self.reading.disagrees and self.apart == self.apart_long == 1.0 and not self.gains_differ


@dataclass(frozen=True, kw_only=True)
class Report:
    resolved: Resolved
    planned: tuple[LayerReading, ...]
    rows: dict[str, Row]
    counted: tuple[str, ...]
    """Engines whose disagreement makes the verdict."""
    waves: tuple[Waves, ...]
    to: int | None = None
    stretches: tuple[Stretch, ...] = ()
    against: Resolved | None = None
    drifts: tuple[Drift, ...] = ()

    @property
    def rotates(self) -> bool:
        return bool(self.planned)

    @property
    def loading(self) -> tuple[str, ...]:
        """Counted engines that can read such a checkpoint."""
        return tuple(name for name in self.counted if self.rows[name].reading.refusal is None)

    @property
    def at_odds(self) -> tuple[str, ...]:
        """Counted engines that differ from the plan, or that take another list for the same text than another does."""
        if not self.rotates:
            return ()
        found = [name for name in self.loading if not self.rows[name].agrees]
        default = {self.rows[name].apart for name in self.loading}
        # An engine alone may choose LongRoPE's list by the length it serves; two that choose differently disagree.
        if len(default) == 1:
            found = [name for name in found if self.rows[name].reading.disagrees or not self._only_chooses(name)]
        return tuple(found)

    def _only_chooses(self, name: str) -> bool:
        row = self.rows[name]
        return not row.gains_differ and row.apart_long == 1.0 and row.reading.switch.startswith("at start")

    @property
    def agree(self) -> bool:
        return not self.at_odds

    def to_dict(self) -> dict[str, Any]:
        resolved = self.resolved
        return {
            "name": resolved.name,
            "where": resolved.where,
            "model_type": resolved.model_type,
            "stack": resolved.stack,
            "refusal": resolved.refusal,
            "plans": {side: plan.to_dict() for side, plan in resolved.plans.items()},
            "agree": self.agree,
            "at_odds": list(self.at_odds),
            "counted": list(self.counted),
            "engines": {name: _row(row) for name, row in self.rows.items()},
            "notes": list(resolved.notes),
            "wavelengths": [asdict(one) for one in self.waves],
            "to": self.to,
            "scalings": [asdict(one) for one in self.stretches],
            "against": None if self.against is None else self.against.name,
            "drifts": [asdict(one) for one in self.drifts],
        }


def inspect(
    path: str | Path,
    *,
    to: int | None = None,
    against: str | Path | None = None,
    engines: Collection[str] | None = None,
) -> Report:
    """Read a directory, a config.json, a .gguf file or an org/name. `engines` limits whose disagreement counts."""
    counted = tuple(ENGINES) if engines is None else tuple(engines)
    for name in counted:
        if name not in ENGINES:
            raise ValueError(f"no engine {name!r}; there are {', '.join(ENGINES)}")
    resolved = _read(path)
    other = None if against is None else _read(against)
    planned = tuple(subject.planned() for subject in Facts(resolved).subjects())
    return Report(
        resolved=resolved,
        planned=planned,
        rows={name: _beside(planned, reading) for name, reading in readings(resolved).items()},
        counted=counted,
        waves=waves(resolved.plan),
        to=to,
        stretches=() if to is None else stretches(resolved.plan, to, resolved.where),
        against=other,
        drifts=() if other is None else drifts(resolved, other),
    )


def _read(path: str | Path) -> Resolved:
    place, name = locate(path)
    found = read(place)
    return found if name is None else replace(found, name=name)


def _beside(planned: tuple[LayerReading, ...], reading: Reading) -> Row:
    if reading.refusal is not None or not planned:
        return Row(reading=reading)
    pairs = list(zip(planned, reading.layers, strict=True))
    return Row(
        reading=reading,
        apart=max(ratio(ours.frequencies, theirs.frequencies) for ours, theirs in pairs),
        apart_long=max(ratio(ours.stretched, theirs.stretched) for ours, theirs in pairs),
        gains_differ=any(
            not close(ours.rotary_gain, theirs.rotary_gain) or not close(ours.logit_gain, theirs.logit_gain)
            for ours, theirs in pairs
        ),
    )


def _row(row: Row) -> dict[str, Any]:
    """JSON has no infinity: null stands where one of two frequencies is 0, or where there are not as many."""
    reading = row.reading
    return {
        "engine": reading.engine,
        "version": reading.version,
        "refusal": reading.refusal,
        "agrees": row.agrees,
        "frequencies_apart": row.apart if math.isfinite(row.apart) else None,
        "frequencies_apart_at_extended_length": row.apart_long if math.isfinite(row.apart_long) else None,
        "switch": reading.switch,
        "length": reading.length,
        "ignored": list(reading.ignored),
        "disagreements": [asdict(note) for note in reading.notes],
        "layers": [asdict(layer) for layer in reading.layers],
    }
