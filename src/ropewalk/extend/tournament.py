"""Which way to read longer texts is best for this model on these texts, and whether any is better than cropping.

    candidates -> [skipped positions] -> search -> select -> judge -> verdict
                                                [ramps, from all formulas on] ---^

Each arrow is on documents of its own. All that is measured is kept in
the run's directory under the hash of what it is, so a run that was killed continues, and ends with the same result.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ropewalk.evaluate.battery import far_from
from ropewalk.evaluate.passage import Cannot
from ropewalk.extend.asking import Asking, OutOfTime
from ropewalk.extend.candidates import Candidate, Rope
from ropewalk.extend.candidates.base import SINKS
from ropewalk.extend.judging import (
    ASKED,
    LOSSES_ALONE,
    Judged,
    Verdict,
    decide,
    judge,
    over_leaving,
    sentence,
    settle,
    with_needles,
)
from ropewalk.extend.rounds import FINALISTS, Round, plain, skipped
from ropewalk.extend.search.searched import Passes, Searched, need, search
from ropewalk.extend.sets import LEAST, Sets
from ropewalk.extend.tune.tuned import Tuned
from ropewalk.system import lock

MEASUREMENTS, LOCK, RESULT = "measurements.jsonl", "lock", "result.json"


@dataclass(frozen=True)
class Result:
    engine: str
    model: str
    rope: Rope
    near: int
    tail_tokens: int
    sets: Sets
    tried: list[Candidate]
    not_tried: dict[str, str]
    """Candidates that this rotation does not have, and those that no engine would compute, with the reason."""
    rounds: list[Round]
    judged: dict[str, Judged]
    not_measured: list[str]
    verdict: Verdict
    searched: Searched | None = None
    """What a search found, which is one of the finalists."""
    tuned: Tuned | None = None
    """What training bought."""
    computed_with: list[dict[str, str]] = field(default_factory=list)
    """The machines and versions that measured."""

    @property
    def sentence(self) -> str:
        return sentence(self.verdict, self.judged)

    @property
    def winner(self) -> Candidate | None:
        """None: nothing is to be written."""
        found = self.judged.get(self.verdict.winner)
        return None if found is None or found.candidate.scaling is None else found.candidate

    def to_dict(self) -> dict[str, Any]:
        rope, over = self.rope, over_leaving(self.verdict, self.judged)
        return {
            "engine": self.engine,
            "digest": self.model,
            "trained": rope.trained,
            "to": rope.to,
            "near": self.near,
            "tail_tokens": self.tail_tokens,
            "rope": {"base": rope.base, "width": rope.width},
            "rule": self.sets.rule,
            "sets": self.sets.to_dict(),
            "left_out": self.sets.left_out,
            "candidates": [{**one.to_dict(), "divisors": list(rope.divisors(one.scaling))} for one in self.tried],
            "not_tried": self.not_tried,
            "rounds": [one.to_dict() for one in self.rounds],
            "judged": {name: one.to_dict() for name, one in self.judged.items()},
            "not_measured": self.not_measured,
            "computed_with": self.computed_with,
            "searched": None if self.searched is None else self.searched.to_dict(),
            "tuned": None if self.tuned is None else self.tuned.to_dict(),
            "verdict": {
                "kind": self.verdict.kind,
                "winner": self.verdict.winner,
                "best": self.verdict.best,
                "tied": self.verdict.tied,
                "proven": self.verdict.proven,
                "own": self.verdict.own,
                "over_leaving": None if over is None else over.to_dict(),
                "sentence": self.sentence,
            },
        }


def lengths_of(rope: Rope, tail: int) -> list[int]:
    """Contexts to judge at: half of what the checkpoint reads as it is and all of it, the trained length, the wanted
    one, and half of that."""
    reads, to = rope.reads, rope.to
    usual = {reads // 2, reads, rope.trained, to // 2, to} if to > reads else {to // 4, to // 2, to}
    if rope.scaling is not None:  # up to that, LongRoPE and dynamic rotate as they were trained
        usual.add(rope.trained)
    found = sorted(length for length in usual if tail < length <= to)
    near = far_from(reads, found) if found else to
    if (room := near - SINKS) <= tail:
        raise ValueError(
            f"--tail {tail:,} leaves no text before it in a crop to {near:,} tokens, {SINKS} sinks among them; give "
            f"fewer than {room:,}"
        )
    return found


def run(
    asking: Asking,
    rope: Rope,
    sets: Sets,
    candidates: Sequence[Candidate],
    encode: Callable[[str], Sequence[int]] | None,
    *,
    tail_tokens: int = 512,
    cheap: bool = False,
    search_passes: int | None = None,
    not_tried: dict[str, str] | None = None,
    asked: int = ASKED,
    details: bool = True,
    ended: Callable[[Round], None] = lambda found: None,
) -> Result:
    """encode: of the model's tokenizer, without special tokens, for needles; None: no needles. search_passes: how many
    passes of the full length are for divisors that no formula gives; None: there is no search. asked: documents to
    judge on into which needles are put. details: whether to measure what the verdict is made of too. ended: is told
    each round when it ends."""
    lengths = lengths_of(rope, tail_tokens)
    near = far_from(rope.reads, lengths)
    shared = {"tail": tail_tokens, "near": near}
    beside = [one for one in candidates if one.text != "whole"]
    left = {one.name: one for one in candidates if one.text == "whole"}
    if not left:
        raise ValueError("no candidate reads the whole text, so there is nothing to choose from")
    if search_passes is not None:
        need()
        Passes.of(asking, sets, min(FINALISTS + rope.own, len(left)), encode, given=search_passes, tail=tail_tokens)
    rounds: list[Round] = []
    not_measured: list[str] = []

    def keep(found: Round) -> None:
        nonlocal left
        if rope.own:  # a change must be better than none, so that is judged however it did before
            as_it_is = [name for name, one in left.items() if one.scaling is None and name not in found.kept]
            found = replace(found, kept=[*found.kept, *as_it_is])
        rounds.append(found)
        ended(found)
        left = {name: one for name, one in left.items() if name in found.kept}

    if cheap:
        try:
            if len(left) <= 2 * FINALISTS:
                raise Cannot(f"{len(left)} candidates are too few for a round that leaves out half of them")
            keep(skipped(asking, left, sets.search, rope, **shared))
        except Cannot as error:
            not_measured.append(f"skipped positions: {error}")
    if len(left) > FINALISTS:
        few = sets.search[: -(-len(sets.search) // 4)]
        keep(plain(asking, f"search at {rope.to:,}", left, few, 2 * FINALISTS, **shared))
    if len(left) > FINALISTS:
        half = sets.select[: max(LEAST, len(sets.select) // 2)]
        keep(plain(asking, f"select at {rope.to:,}", left, half, FINALISTS, **shared))
    tried, found_by_search = list(candidates), None
    if search_passes is not None:
        order = _ranked([one for one in candidates if one.text == "whole"], rounds)
        found_by_search = search(
            asking, rope, sets, order, left, encode, passes=search_passes, tail=tail_tokens
        )  # fmt: skip
        left[found_by_search.candidate.name] = found_by_search.candidate
        tried.append(found_by_search.candidate)
    finals = [*left.values(), *beside]

    def result(judged: dict[str, Judged], verdict: Verdict, *skips: str) -> Result:
        stored = asking.stored
        return Result(
            stored.name, stored.model, rope, near, tail_tokens, sets, tried, dict(not_tried or {}), rounds,
            judged, [*not_measured, *skips], verdict, found_by_search,
        )  # fmt: skip

    losses = judge(asking, finals, sets.judge, near=near, lengths=lengths, tail_tokens=tail_tokens)
    if not details:
        return result(losses, decide(losses, own=rope.own), LOSSES_ALONE)
    try:
        measured, skips = with_needles(asking, losses, sets.judge, encode, near=near, seed=sets.seed, asked=asked)
        judged, verdict, more = settle(asking, measured, sets.judge, near=near, tail_tokens=tail_tokens, own=rope.own)
    except OutOfTime as error:
        error.so_far = result(losses, decide(losses, own=rope.own), f"out of time at {error}")
        raise
    return result(judged, verdict, *skips, *more)


def _ranked(candidates: Sequence[Candidate], rounds: Sequence[Round]) -> list[Candidate]:
    """By the last round that each was in, and by its loss there."""

    def place(one: Candidate) -> tuple[int, float]:
        last = max((number for number, each in enumerate(rounds) if one.name in each.losses), default=-1)
        return -last, rounds[last].losses[one.name] if last >= 0 else 0.0

    return sorted(candidates, key=place)


@contextmanager
def alone(directory: Path) -> Iterator[Path]:
    """The directory of a run, which is this process's until the end."""
    directory.mkdir(parents=True, exist_ok=True)
    handle = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            lock(handle)
        except BlockingIOError:
            raise ValueError(f"another run is at work in {directory}; wait for it, or give another --work") from None
        yield directory
    finally:
        os.close(handle)


def save(directory: Path, found: dict[str, Any]) -> Path:
    """The result, whole or not at all."""
    partial, target = directory / f".{RESULT}.partial", directory / RESULT
    partial.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(target)
    return target
