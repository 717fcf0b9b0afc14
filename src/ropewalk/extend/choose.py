"""A tournament for a checkpoint: its candidates, its documents, its directory, and the checkpoint left as it was."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from ropewalk.checkpoints.engines.facts import Facts
from ropewalk.checkpoints.files.sniff import meant
from ropewalk.checkpoints.inspect.lengths import counted_from, scaled_layer
from ropewalk.checkpoints.load.native import Trained
from ropewalk.checkpoints.resolve.native import MODEL_TYPE
from ropewalk.checkpoints.resolve.read import read
from ropewalk.checkpoints.tokens.tokenizer import of
from ropewalk.evaluate.battery import far_from
from ropewalk.evaluate.checkpoint import digest
from ropewalk.evaluate.engines.ours import scaled as with_scaling
from ropewalk.evaluate.store import Stored
from ropewalk.extend.asking import Asking, Elsewhere, Opening, OutOfTime, Progress, forget
from ropewalk.extend.candidates import Candidate, Rope, formulas, listed, without
from ropewalk.extend.candidates.base import SEARCHED, by_reason, scaled
from ropewalk.extend.judging import ASKED
from ropewalk.extend.machine import kept as kept_with
from ropewalk.extend.rounds import Round
from ropewalk.extend.search.searched import need
from ropewalk.extend.sets import Sets, draw
from ropewalk.extend.tournament import MEASUREMENTS, Result, alone, lengths_of, run, save
from ropewalk.extend.tune.tuned import Tuning
from ropewalk.extend.write import served
from ropewalk.scaling import Linear, Scaling
from ropewalk.trials.jobs import Workers

HERE = Workers()
ENGINES = ("ropewalk", "transformers")
"""What computes any scaling, at any positions, with needles."""
JUDGES = 16
"""Documents to judge on: the fewest that tell known effects from noise."""


def check_engine(path: str | Path, engine: str) -> None:
    """Raises where an engine cannot measure a checkpoint, as far as its config tells."""
    if engine not in ENGINES:
        raise ValueError(f"--engine {engine!r}: a tournament is measured with {' or '.join(ENGINES)}")
    resolved = read(path)
    if engine == "ropewalk" and resolved.refusal is not None:
        raise ValueError(f"ropewalk does not load {path}: {resolved.refusal}; add --engine transformers")
    if engine != "ropewalk" and resolved.model_type == MODEL_TYPE:
        raise ValueError(f"{path} is a model of ropewalk's own, which {engine} does not load; leave out --engine")


def rotation(path: str | Path, to: int, trained: int | None = None) -> Rope:
    """What candidates for a checkpoint are made from."""
    plan = read(path).plan
    layer = scaled_layer(plan)
    known = trained or (None if layer is None else counted_from(plan, layer))
    if known is None:
        raise ValueError("the config does not state the trained length; add --trained N")
    if layer is None or layer.base is None or layer.rotary_width is None or len(layer.ladders) != 1:
        raise ValueError(f"{path}: no layer rotates by the frequencies of one base, so no scaling can be chosen for it")
    if layer.scaling is not None and layer.scaling.kind == "proportional":
        raise ValueError(f"{path}: its full layers have proportional RoPE, which no scaling here extends")
    if to < known:
        raise ValueError(f"--to {to:,} is shorter than the trained length, {known:,}; there is nothing to extend")
    if plan.longest is not None and to < plan.longest:
        raise ValueError(f"--to {to:,} is shorter than the {plan.longest:,} tokens that the config of {path} states")
    return Rope(layer.base, layer.rotary_width, known, to, layer.scaling, plan.longest)


def choose(
    path: str | Path,
    to: int,
    texts: Sequence[Path],
    work: Path,
    *,
    trained: int | None = None,
    judges: int = JUDGES,
    number: int = 0,
    tail: int = 512,
    dtype: str | None = None,
    engine: str = "ropewalk",
    workers: Workers = HERE,
    minutes: float | None = None,
    cheap: bool = False,
    search: int | None = None,
    only: Scaling | None = None,
    asked: int = ASKED,
    details: bool = True,
    tuning: Tuning | None = None,
    shown: bool = False,
    progress: Progress = lambda stage, done, total: None,
    say: Callable[[str], None] = lambda text: None,
    ended: Callable[[Round], None] = lambda found: None,
) -> Result:
    """work: a directory of this run, which the same call continues. number: which draw of documents to judge on.
    engine: one of `ENGINES`.
    minutes: `OutOfTime` is raised after so many. search: passes of the full length for a search, or none. only:
    the one scaling that is judged. asked: documents into which needles are put. details: whether to measure what the
    verdict is made of too. tuning: training of the winner, and shown: with a bar. ended: is told each round when it
    ends."""
    check_engine(path, engine)
    rope = rotation(path, to, trained)
    if tuning is not None:
        if engine != "ropewalk":
            raise ValueError(f"--tune trains with ropewalk, and so measures with it; leave out --engine {engine}")
        if to <= rope.trained:
            raise ValueError(f"--tune is for more than the trained length, {rope.trained:,} tokens; give a longer --to")
        if find_spec("grain") is None:
            raise ModuleNotFoundError("grain is not installed", name="grain")
        dtype = dtype or "float32"
        if dtype not in ("float32", "bfloat16"):
            raise ValueError(f"--dtype {dtype}: --tune trains, and measures, in float32 or bfloat16")
        tuning = replace(tuning, precision=dtype)
    end = None if minutes is None else time.monotonic() + 60 * minutes
    if search is not None:
        need()
        _can_be_listed(path, rope)
    candidates, refused = servable(path, rope, only)
    not_tried = refused if only is not None else without(rope) | refused
    if only is not None and not rope.own:
        not_tried = {"leave": f"--scaling names one, and {rope.to:,} tokens are more than the checkpoint is for"}
    if only is None and all(one.scaling is None for one in candidates):
        why = "; ".join(by_reason(refused))
        raise ValueError(f"none of the {len(refused)} scalings could be written for {path}: {why}")
    if only is not None and only.kind in refused:
        raise ValueError(f"no engine would compute {only.kind} from {path}: {refused[only.kind]}")
    if tuning is not None:
        _can_be_trained(path, rope, [*candidates, *([] if search is None else [_list(rope)])], tuning)
    near = far_from(rope.reads, lengths_of(rope, tail))
    forget()  # the files at a path may have changed since this process opened them
    with alone(work):
        threads = None if workers.here else max(1, (os.cpu_count() or 1) // workers.count)
        opening = Opening(str(path), name=engine, dtype=dtype, threads=threads)
        # Threads are a worker's alone: this process trains and proves with all of them.
        computes, encode = replace(opening, threads=None).engine(), of(meant(Path(path))).encode_document
        opening = replace(opening, expected=computes.model)
        if not workers.here:  # they hold the model, and this process only asks
            computes = Elsewhere(computes.name, computes.model, computes.trained, computes.vocabulary)
            forget()
        computed_with = kept_with(work, say)
        sets = draw(texts, encode, longest=to, near=near, tail=tail, judge=judges, number=number)
        say(sets.rule)
        # Known before anything is measured, which takes hours.
        kept, alike = ({}, 0) if tuning is None else _to_train_on(texts, sets, encode)
        for why, names in by_reason(not_tried).items():
            say(f"not tried: {', '.join(names)}: {why}")
        stored = Stored(computes, work / MEASUREMENTS)
        # Loading and drawing took some of it.
        left = None if end is None else end - time.monotonic()
        with closing(Asking(stored, opening, workers, seconds=left, progress=progress)) as asking:
            try:
                found = run(
                    asking, rope, sets, candidates, encode, tail_tokens=tail, cheap=cheap, search_passes=search,
                    not_tried=not_tried, asked=asked, details=details, ended=ended,
                )  # fmt: skip
            except OutOfTime as error:
                if error.so_far is not None:
                    error.so_far = replace(error.so_far, computed_with=computed_with)
                raise
        found = replace(found, computed_with=computed_with)
        weights = computes.model
        if tuning is not None:
            from ropewalk.extend.tune.tune import tune

            del computes, stored, asking
            forget()  # training needs the memory
            save(work, found.to_dict())
            try:
                tuned = tune(
                    Path(path), found, kept, alike, work, tuning, encode,
                    opening=opening, workers=workers, end=end, details=details, shown=shown, progress=progress,
                )  # fmt: skip
            except OutOfTime as error:
                error.so_far = error.so_far or found
                raise
            found = replace(found, tuned=tuned)
        if digest(meant(Path(path))) != weights:
            raise ValueError(f"{path} was changed while it was measured; start again with another --work")
        save(work, found.to_dict())
    return found


def servable(path: str | Path, rope: Rope, only: Scaling | None = None) -> tuple[list[Candidate], dict[str, str]]:
    """The formulas that at least one engine computes from what would be written, and why not for the others. only: a
    scaling in place of the formulas, which leaving as it is competes with only at a length that is read already."""
    by = served(path, rope.to)
    kept, refused = [], {}
    every = formulas(rope)
    if only is not None:
        every = [one for one in every if one.text != "whole" or (one.scaling is None and rope.own)]
        every.append(scaled(only.kind, "as it was given", only, rope))
    for one in every:
        reasons = {} if one.scaling is None else by(one.scaling)
        if reasons and None not in reasons.values():
            refused[one.name] = next(iter(reasons.values())) or ""
        else:
            kept.append(one)
    return kept, refused


def _to_train_on(
    texts: Sequence[Path], sets: Sets, encode: Callable[[str], Sequence[int]]
) -> tuple[dict[str, str], int]:
    from ropewalk.extend.tune.texts import to_train_on

    return to_train_on(texts, [*sets.judge, *sets.select, *sets.search], encode)


def _can_be_trained(path: str | Path, rope: Rope, candidates: Sequence[Candidate], tuning: Tuning) -> None:
    """What is trained must fit into memory and have a form to be written in, with the scaling of whatever wins."""
    from ropewalk.extend.tune.training import fits, recipe
    from ropewalk.train.start.kept import family_config
    from ropewalk.train.start.source import open_source

    scalings = {one.name: one.scaling for one in candidates if one.scaling is not None}
    if not scalings:
        raise ValueError(f"--tune: no scaling can be written into {path}, so there is none to train with; leave it out")
    fits(recipe(meant(Path(path)), rope, Linear(factor=rope.ratio), Path(), tuning))  # whichever it is
    source = open_source(path)
    if source.checkpoint is None:
        return
    windows_scale = Facts(source.checkpoint.resolved).windows_scale
    for name, scaling in scalings.items():
        try:
            family_config(source.checkpoint, with_scaling(source.config, scaling, windows_scale), Trained(rope.to))
        except ValueError as error:
            raise ValueError(
                f"--tune: after training, {name} could not be written: {error}; leave out --tune"
            ) from error


def _can_be_listed(path: str | Path, rope: Rope) -> None:
    """A search ends with a divisor for each pair, which must be read by an engine."""
    one = _list(rope)
    assert one.scaling is not None
    reasons = served(path, rope.to)(one.scaling)
    if None not in reasons.values():
        why = next(iter(reasons.values()))
        raise ValueError(f"--search: no engine would compute a divisor for each pair from {path} ({why}); leave it out")


def _list(rope: Rope) -> Candidate:
    """As a search may find it."""
    pairs = rope.width // 2
    return listed(SEARCHED, "", [1 + i / pairs for i in range(pairs)], 1.01, rope)
