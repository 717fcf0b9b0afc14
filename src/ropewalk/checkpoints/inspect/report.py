"""What a checkpoint's positions are and what every engine would make of them, as data; `ropewalk inspect` prints it.

Nothing here imports torch or opens a weight: a config.json, or the head of a GGUF file, says it all.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ropewalk.amounts import brief
from ropewalk.checkpoints.engines import ENGINES, NOT_RUN, LayerReading, Reading, close, ratio, readings
from ropewalk.checkpoints.engines.besides import ASPECTS, FREQUENCIES, GAINS, Besides
from ropewalk.checkpoints.engines.facts import Facts
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.files.hub import locate
from ropewalk.checkpoints.inspect.beside import to_raise
from ropewalk.checkpoints.inspect.drift import Drift, drifts
from ropewalk.checkpoints.inspect.lengths import Reach, Waves, reach, waves
from ropewalk.checkpoints.inspect.pasted import MODEL
from ropewalk.checkpoints.resolve.read import read
from ropewalk.checkpoints.resolve.resolved import Resolved


@dataclass(frozen=True, kw_only=True)
class Row:
    """One engine beside the plan."""

    reading: Reading
    apart: float = 1.0
    """The largest factor between its frequencies and the plan's, for texts within the trained length."""
    apart_long: float = 1.0
    """The same for texts of the extended length."""
    gains_differ: bool = False
    departs: tuple[str, ...] = ()
    """What it would compute differently from the plan."""

    @property
    def agrees(self) -> bool:
        return not self.departs


@dataclass(frozen=True, kw_only=True, repr=False)
class Report:
    """A checkpoint's positions, and what each engine would make of them."""

    resolved: Resolved
    planned: tuple[LayerReading, ...]
    besides: Besides
    rows: dict[str, Row]
    counted: tuple[str, ...]
    """Engines whose disagreement makes the verdict."""
    waves: tuple[Waves, ...]
    reach: Reach | None = None
    """What it takes to serve a longer text, where that was asked."""
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
        """Counted engines that differ from the plan."""
        return tuple(name for name in self.loading if not self.rows[name].agrees) if self.rotates else ()

    @property
    def applicable(self) -> tuple[str, ...]:
        """What there is to compare: frequencies, gains, and what else the checkpoint or an engine has."""
        departures = {aspect for row in self.rows.values() for aspect in row.departs}
        return tuple(name for name in ASPECTS if name in {FREQUENCIES, GAINS, *self.besides.present(), *departures})

    @property
    def unknown(self) -> dict[str, tuple[str, ...]]:
        """What was not compared, with the counted engines whose rule is not known."""
        found = {
            aspect: tuple(name for name in self.loading if aspect in self.rows[name].reading.unknown)
            for aspect in self.applicable
        }
        return {aspect: names for aspect, names in found.items() if names}

    @property
    def compared(self) -> tuple[str, ...]:
        """What every counted engine that loads the checkpoint was compared in."""
        return tuple(aspect for aspect in self.applicable if aspect not in self.unknown)

    @property
    def agree(self) -> bool:
        return not self.at_odds

    def __str__(self) -> str:
        """The plan and the verdict; `ropewalk inspect` prints all of it, `to_dict` has all of it."""
        lines = [f"{self.resolved.name}, {self.resolved.model_type} {self.resolved.stack}"]
        for side, plan in self.resolved.plans.items():
            first, *more = brief(str(plan), 4).splitlines()
            lines += [f"{side}: {first}", *(f"  {line}" for line in more)]
        agreeing = [name for name in self.loading if name not in self.at_odds]
        told = {
            **{f"{name} departs in": self.rows[name].departs for name in self.at_odds},
            f"{', '.join(agreeing)} agree{'s' * (len(agreeing) == 1)} on": self.compared if agreeing else (),
            "cannot load it:": [name for name in self.counted if name not in self.loading],
            "not compared:": tuple(self.unknown),
            "keys not understood:": tuple(self.resolved.not_understood),
            "keys not looked at:": self.resolved.not_looked_at,
        }
        if self.rotates:
            lines += [f"{what} {', '.join(names)}" for what, names in told.items() if names]
        return brief("\n".join(lines))

    __repr__ = __str__

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
            "compared": list(self.compared),
            "not_compared": {aspect: list(names) for aspect, names in self.unknown.items()},
            "engines": {name: _row(row) for name, row in self.rows.items()},
            "not_understood": dict(resolved.not_understood),
            "not_looked_at": list(resolved.not_looked_at),
            "notes": list(resolved.notes),
            "wavelengths": [asdict(one) for one in self.waves],
            "to": None if self.reach is None else self.reach.to,
            "from": None if self.reach is None else self.reach.start,
            "to_know": [] if self.reach is None else list(self.reach.words),
            "scalings": [] if self.reach is None else [asdict(one) for one in self.reach.stretches],
            "against": None if self.against is None else self.against.name,
            "drifts": [asdict(one) for one in self.drifts],
        }


def inspect(
    path: str | Path,
    *,
    to: int | None = None,
    against: str | Path | None = None,
    engines: Collection[str] | None = None,
    kinds: Collection[str] = (),
) -> Report:
    """Read a directory, a config.json, a .gguf file or an org/name. `engines` limits whose disagreement counts;
    `kinds` are encodings of other packages to import where a model of our own names them."""
    counted = counted_engines(engines)
    resolved = _read(path, kinds)
    other = None if against is None else _read(against, kinds)
    facts = Facts(resolved)
    planned, besides = tuple(subject.planned() for subject in facts.subjects()), facts.besides()
    return Report(
        resolved=resolved,
        planned=planned,
        besides=besides,
        rows={name: _beside(planned, besides, reading) for name, reading in readings(resolved, counted).items()},
        counted=counted,
        waves=waves(resolved.plan),
        reach=None if to is None else _reach(resolved, to, path),
        against=other,
        drifts=() if other is None else drifts(resolved, other),
    )


def counted_engines(names: Collection[str] | None) -> tuple[str, ...]:
    """All that were run where none are named; an empty list and an unknown name are errors."""
    there_are = f"there are {', '.join(ENGINES)}"
    if names is None:
        return tuple(name for name in ENGINES if name not in NOT_RUN)
    if not any(names):
        raise ValueError(f"no engine is named; {there_are}; leave it out to count all")
    for name in names:
        if name not in ENGINES:
            near = get_close_matches(name, ENGINES, 1)
            raise ValueError(f"no engine {name!r}{f', did you mean {near[0]!r}?' if near else ''}; {there_are}")
    return tuple(dict.fromkeys(names))


def _reach(resolved: Resolved, to: int, path: str | Path) -> Reach:
    """With what other files of a directory say against the length."""
    found = reach(resolved, to, _named(path))
    if not Path(path).is_dir():
        return found
    return replace(found, words=(*found.words, *to_raise(Path(path), resolved.plan.stated, to)))


def _named(path: str | Path) -> str:
    """What an engine would be given: a directory, a file or an org/name; a placeholder for a config alone."""
    here = Path(path)
    if here.is_file() and here.suffix != ".gguf":
        return MODEL
    return str(path)


def _read(path: str | Path, kinds: Collection[str]) -> Resolved:
    place, name = locate(path)
    try:
        found = read(place, strict=False, kinds=kinds)
    except BadInput as error:
        if name is None:
            raise
        raise BadInput(f"{name}/{place.name}", error.field, error.problem, error.remedy) from None
    return found if name is None else replace(found, name=name)


def _beside(planned: tuple[LayerReading, ...], besides: Besides, reading: Reading) -> Row:
    if reading.refusal is not None or not planned:
        return Row(reading=reading)
    pairs = list(zip(planned, reading.layers, strict=True))
    apart = max(ratio(ours.frequencies, theirs.frequencies) for ours, theirs in pairs)
    apart_long = max(ratio(ours.stretched, theirs.stretched) for ours, theirs in pairs)
    gains_differ = any(
        not close(ours.rotary_gain, theirs.rotary_gain) or not close(ours.logit_gain, theirs.logit_gain)
        for ours, theirs in pairs
    )
    found = {note.about for note in reading.notes if note.counts}
    found |= {FREQUENCIES} if apart != 1 or apart_long != 1 else set()
    found |= {GAINS} if gains_differ else set()
    if reading.besides is not None:
        theirs = reading.besides.aspects()
        found |= {name for name, ours in besides.aspects().items() if ours != theirs[name]}
    return Row(
        reading=reading,
        apart=apart,
        apart_long=apart_long,
        gains_differ=gains_differ,
        departs=tuple(name for name in ASPECTS if name in found and name not in reading.unknown),
    )


def _row(row: Row) -> dict[str, Any]:
    """JSON has no infinity: null stands where one of two frequencies is 0, or where there are not as many."""
    reading = row.reading
    return {
        "engine": reading.engine,
        "version": reading.version,
        "refusal": reading.refusal,
        "agrees": row.agrees,
        "departs": list(row.departs),
        "not_compared": list(reading.unknown),
        "frequencies_apart": row.apart if math.isfinite(row.apart) else None,
        "frequencies_apart_at_extended_length": row.apart_long if math.isfinite(row.apart_long) else None,
        "switch": reading.switch,
        "length": reading.length,
        "ignored": list(reading.ignored),
        "disagreements": [asdict(note) for note in reading.notes],
        "layers": [asdict(layer) for layer in reading.layers],
        "besides": None if reading.besides is None else asdict(reading.besides),
    }
