"""Trains what a tournament chose, and judges it again on the same documents."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

from ropewalk.checkpoints.export.convert import export
from ropewalk.checkpoints.files.sniff import meant
from ropewalk.evaluate.statistics import paired
from ropewalk.evaluate.store import Stored
from ropewalk.extend.asking import Asking, Opening, OutOfTime, Progress
from ropewalk.extend.candidates import Candidate
from ropewalk.extend.judging import ASKED, LOSSES_ALONE, Judged, judge, settle, unchanged, with_needles
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
    details: bool,
    shown: bool,
    progress: Progress,
) -> Tuned:
    """kept, alike: texts to train on by their digest, and how many were left out as near copies. end: of the time, by
    `time.monotonic`. details: as in a tournament."""
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
    name, near, tail = "tuned", found.near, found.tail_tokens

    def tuned(one: Judged, *not_measured: str) -> Tuned:
        about = f"{untuned.candidate.name}, trained for {steps:,} steps with skipped positions, arXiv 2309.10400"
        candidate = replace(untuned.candidate, name=name, about=about)
        judged = replace(one, candidate=candidate, tail=against(one, untuned))
        kind, over = decide(judged, untuned, one.gains, left_as_it_is(found))
        return Tuned(
            untuned.candidate.name, steps, seconds, len(kept), model, engine.model, judged, over, paired(one.gains),
            kind, [*not_measured], alike,
        )  # fmt: skip

    stored = Stored(engine, folder / MEASUREMENTS)
    with closing(Asking(stored, own, workers, seconds=left, progress=progress)) as asking:
        losses = judge(
            asking, [Candidate(name, "")], found.sets.judge, lengths=untuned.tail.lengths, tail_tokens=tail, near=near
        )
        if not details:
            return tuned(losses[name], LOSSES_ALONE)
        try:
            finals, skips = with_needles(
                asking, losses, found.sets.judge, encode, near=near, seed=found.sets.seed, asked=_asked(untuned)
            )
            measured, _, more = settle(asking, finals, found.sets.judge, near=near, tail_tokens=tail)
        except OutOfTime as error:
            error.so_far = replace(found, tuned=tuned(losses[name], f"out of time at {error}"))
            raise
    return tuned(measured[name], *skips, *more)


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
