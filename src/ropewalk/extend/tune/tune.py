"""Trains what a tournament chose, and judges it again on the same documents."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ropewalk.checkpoints.export.convert import export
from ropewalk.checkpoints.files.sniff import meant
from ropewalk.evaluate.statistics import paired
from ropewalk.evaluate.store import Stored
from ropewalk.extend.asking import Asking, Opening, Progress
from ropewalk.extend.candidates import Candidate
from ropewalk.extend.judging import ASKED, Judged, judge, settle, unchanged
from ropewalk.extend.tournament import MEASUREMENTS, Result
from ropewalk.extend.tune.texts import write_data
from ropewalk.extend.tune.training import recipe, trained
from ropewalk.extend.tune.tuned import Tuned, Tuning, against, decide
from ropewalk.scaling import NTK, Scaling
from ropewalk.trials.jobs import Workers


def start_of(found: Result) -> Judged:
    """What is trained: the winner, or where nothing is to be written the best that changes frequencies."""
    if found.winner is not None:
        return found.judged[found.winner.name]
    able = [one for one in found.judged.values() if one.candidate.scaling is not None]
    if not able:
        raise ValueError("no finalist has a scaling to train with; name one with --scaling")
    return max(able, key=lambda one: one.gain.mean)


def left_as_it_is(found: Result) -> Judged | None:
    """The model without a change, where that won or is a finalist whatever it does: then training must beat it too."""
    if found.verdict.kind == "leave":
        return found.judged[found.verdict.winner]
    return unchanged(found.judged) if found.verdict.own else None


def tune(
    path: Path,
    found: Result,
    kept: Mapping[str, str],
    alike: int,
    work: Path,
    tuning: Tuning,
    encode: Callable[[str], Sequence[int]],
    *,
    opening: Opening,
    workers: Workers,
    end: float | None,
    shown: bool,
    progress: Progress,
) -> Tuned:
    """kept, alike: texts to train on by their digest, and how many were left out as near copies. end: of the time, by
    `time.monotonic`."""
    untuned = start_of(found)
    scaling = untuned.candidate.scaling
    assert scaling is not None
    folder = work / f"tune-{_named(found, untuned.candidate, tuning, kept)}"
    write_data(kept, path, folder / "data")
    asked = recipe(meant(path), found.rope, scaling, folder / "data", tuning)
    model, steps, seconds = trained(asked, folder, tuning, end=end, shown=shown)
    own = replace(opening, path=str(model), expected=None)
    engine = replace(own, threads=None).engine()
    own = replace(own, expected=engine.model)
    left = None if end is None else end - time.monotonic()
    # The written config has the scaling: the model is judged as it will be read.
    name = "tuned"
    given: dict[str, Any] = {"near": found.near, "tail_tokens": found.tail_tokens}
    stored = Stored(engine, folder / MEASUREMENTS)
    with closing(Asking(stored, own, workers, seconds=left, progress=progress)) as asking:
        finals, skips = judge(
            asking, [Candidate(name, "")], found.sets.judge, encode,
            lengths=untuned.tail.lengths, seed=found.sets.seed, asked=_asked(untuned), **given,
        )  # fmt: skip
        measured, _, more = settle(asking, finals, found.sets.judge, **given)
    about = f"{untuned.candidate.name}, trained for {steps:,} steps with skipped positions, arXiv 2309.10400"
    candidate = replace(untuned.candidate, name=name, about=about)
    judged = replace(measured[name], candidate=candidate, tail=against(measured[name], untuned))
    own_gains = measured[name].gains
    kind, over = decide(judged, untuned, own_gains, left_as_it_is(found))
    return Tuned(
        untuned.candidate.name, steps, seconds, len(kept), model, engine.model, judged, over, paired(own_gains), kind,
        [*skips, *more], alike,
    )  # fmt: skip


def _asked(untuned: Judged) -> int:
    """Documents into which needles were put before, so that shares of as many are compared."""
    return len(untuned.needles[-1].found) if untuned.needles else ASKED


def checkpoint(tuned: Tuned, source: Path) -> Path:
    """The tuned model in the form of the source, to be written from."""
    if meant(source).is_dir():
        return tuned.model
    file = tuned.model.with_name("model.gguf")
    if not file.exists():
        export(tuned.model, file, format="gguf")
    return file


def applied(tuned: Tuned) -> Scaling:
    """What is left to apply to that checkpoint: NTK is a larger base, and its config has that already."""
    scaling = tuned.judged.candidate.scaling
    assert scaling is not None
    return NTK(factor=1.0) if isinstance(scaling, NTK) else scaling


def _named(found: Result, start: Candidate, tuning: Tuning, kept: Collection[str]) -> str:
    """Of what is trained, how and on which texts: another run does not continue it."""
    said = [found.model, start.to_dict(), found.rope.to, found.rope.trained, sorted(kept), asdict(tuning)]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]
