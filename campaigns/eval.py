"""Does YaRN x2 let a model use twice its trained length? The tail loss beside cropping, paired by document, in float32.

    ropewalk data fetch long-english DATA
    OMP_NUM_THREADS=2 python -m campaigns.eval MODEL --name NAME --text DATA/long-english.jsonl [--time]

MODEL is a directory or a .gguf file with trained length L. Of each document, the last 512 of 2L tokens are scored:
given L of them by the model as it is (cropping), given 2L by the model as it is, given L and 2L under YaRN x2, and
given 2L whose far half is another document's. The result is campaigns/results/eval-NAME.json: names and hashes of
documents, a number for each of them, intervals and the deviation of paired differences, which says how many documents a
further measurement needs. Every pass is kept in the cache as it ends: the same command continues a run that was ended.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import bars
from campaigns import pieces
from campaigns.extend import LIKELIHOODS
from ropewalk.evaluate import battery
from ropewalk.evaluate.checkpoint import opened
from ropewalk.evaluate.documents import Document, cut, texts
from ropewalk.evaluate.measures import tail
from ropewalk.evaluate.passage import Passage
from ropewalk.evaluate.statistics import Interval, paired, t_quantile
from ropewalk.evaluate.store import Stored
from ropewalk.scaling import YaRN

SOURCES = ("campaigns/eval.py", *LIKELIHOODS, "src/ropewalk/evaluate", "src/ropewalk/checkpoints/tokens")
FACTOR = 2
FEWEST = 16
WORTH = 0.01
"""Nats a token: the smallest difference that a further measurement is to tell from nothing."""


Pass = tuple[str, Passage, YaRN | None]


class Trial:
    """One model, its documents, and the passes to be made."""

    def __init__(self, model: Path, text: Path, count: int, store: Path) -> None:
        engine, encode = opened(model, dtype="float32")
        if engine.trained is None:
            raise SystemExit(f"the config of {model} does not say how long it was trained")
        self.engine = Stored(engine, store)
        self.trained, self.longest = engine.trained, FACTOR * engine.trained
        self.scaling = YaRN(factor=FACTOR, trained=self.trained)
        self.judges, self.left_out = chosen(text, encode, count, self.trained, self.longest)

    def passes(self) -> list[Pass]:
        """In the order of their worth: what cropping is compared with, for every document, before the foreign swap."""
        made: list[Pass] = []
        for document in self.judges:
            short, long = (Passage.plain(document.tokens[-n:], battery.TAIL) for n in (self.trained, self.longest))
            made += [
                ("cropped", short, None),
                ("YaRN, short", short, self.scaling),
                ("YaRN, long", long, self.scaling),
                ("as it is, long", long, None),
            ]
        swapped = (tail.swapped(self.judges, number, self.trained) for number in range(len(self.judges)))
        return made + [("YaRN, foreign", Passage.plain(each, battery.TAIL), self.scaling) for each in swapped]

    def result(self) -> dict[str, Any]:
        """From the store alone, once every pass is in it."""
        lengths = (self.trained, self.longest)
        yarn = tail.measure(
            self.engine, self.judges, near=self.trained, lengths=lengths, scaling=self.scaling, tail=battery.TAIL
        )
        crop = yarn.crop[self.trained]
        plain = [
            float(self.engine.nats(passage, scaling).mean())
            for what, passage, scaling in self.passes()
            if what == "as it is, long"
        ]
        found: dict[str, Interval] = {
            "gain over cropping, as it is": differences(crop, plain),
            "gain over cropping, YaRN": yarn.gain(self.longest),
            "benefit of the far text, YaRN": yarn.benefit,
            "harm of the length, YaRN": yarn.harm,
            "cost on short text, YaRN": yarn.short_cost,
            "YaRN over as it is, long": differences(plain, yarn.loss[self.longest]),
        }
        if yarn.far_gain is not None:
            found["gain on far tokens, YaRN"] = yarn.far_gain
        means = {
            f"cropped to {self.trained:,}": crop,
            f"as it is, {self.longest:,}": plain,
            f"YaRN, {self.trained:,}": yarn.loss[self.trained],
            f"YaRN, {self.longest:,}": yarn.loss[self.longest],
            f"YaRN, {self.longest:,}, foreign": yarn.foreign,
        }
        return {
            "bars": {"documents, at least": bars.bar(len(self.judges), FEWEST, at_least=True)},
            "measured": {f"nats, {name}": float(np.mean(each)) for name, each in means.items()}
            | {name: each.mean for name, each in found.items()},
            "intervals": {
                name: each.to_dict() | {f"documents for {WORTH} nats": needed(each.deviation)}
                for name, each in found.items()
            },
            "protocol": {
                "engine": self.engine.name,
                "model": self.engine.model,
                "trained": self.trained,
                "scaling": self.scaling.model_dump(mode="json"),
                "tail": battery.TAIL,
                "documents": "in the order of their SHA-256; the first 2L tokens of each",
                "rule": battery.rule(self.longest, self.trained, battery.TAIL, self.trained),
                "left out by the rule": self.left_out,
                "intervals": "95 %, Student's t over documents",
            },
            "documents": [
                {"name": one.name, "sha256": one.digest, **{what: each[number] for what, each in means.items()}}
                for number, one in enumerate(self.judges)
            ],
        }


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("model", type=Path)
    options.add_argument("--name", required=True, help="of the result, eval-NAME.json")
    options.add_argument("--text", type=Path, required=True, help="documents, as .jsonl")
    options.add_argument("--documents", type=int, default=FEWEST, help=f"{FEWEST} unless given")
    options.add_argument("--minutes", type=float, default=600.0, help="no pass is begun after this; 600 unless given")
    options.add_argument("--time", action="store_true", help="time one pass of each sort and say how long all take")
    options.add_argument("--json", action="store_true", help="print the result as JSON")
    given = options.parse_args()
    known = pieces.digest(SOURCES)
    store = cache() / f"campaign-{given.name}-{known}.jsonl"
    trial = Trial(given.model, given.text, given.documents, store)
    if not measured(trial, 60 * given.minutes, timed=given.time):
        return pieces.UNFINISHED
    command = f"OMP_NUM_THREADS=2 python -m campaigns.eval MODEL --name {given.name} --text {given.text.name}"
    command += "" if given.documents == FEWEST else f" --documents {given.documents}"
    said = {"command": command, **trial.result(), "versions": bars.versions(()), "sources": known}
    pieces.keep(pieces.RESULTS / f"eval-{given.name}.json", said)
    return bars.tell(said, as_json=given.json)


def measured(trial: Trial, seconds: float, *, timed: bool) -> bool:
    """Whether every pass is in the store."""
    every = trial.passes()
    took: dict[str, list[float]] = {}
    first = {what: passage.digest for what, passage, _ in reversed(every)}
    threads, began = torch.get_num_threads(), time.monotonic()
    for number, (what, passage, scaling) in enumerate(every, 1):
        if timed and passage.digest != first[what]:
            continue
        if time.monotonic() - began > seconds:
            print("what follows is left; the same command continues", file=sys.stderr)
            return False
        # Processor time, so that whatever else the machine does is not counted.
        before, start = trial.engine.computed, time.process_time()
        trial.engine.nats(passage, scaling)
        if trial.engine.computed == before:
            continue
        took.setdefault(what, []).append((time.process_time() - start) / threads)
        left = sum(np.mean(took.get(each, took[what])) for each, _, _ in every[number:]) / 60
        print(f"{number} of {len(every)}, {what}: {took[what][-1]:.1f} s, {left:.0f} min left", file=sys.stderr)
    if timed:
        whole = sum(np.mean(took[what]) for what, _, _ in every if what in took)
        print(f"{len(every)} passes, about {whole / 60:.0f} min on {threads} threads of an idle machine")
    return not timed


def differences(more: Sequence[float], less: Sequence[float]) -> Interval:
    return paired([a - b for a, b in zip(more, less, strict=True)])


def needed(deviation: float) -> int:
    """Documents at which the interval of a mean is no wider than WORTH on either side."""
    normal = statistics.NormalDist().inv_cdf(0.975)
    count = max(2, math.ceil((normal * deviation / WORTH) ** 2))
    # Student's t is wider; past a thousand documents it is the normal distribution.
    while count < 1000 and t_quantile(0.975, count - 1) * deviation / math.sqrt(count) > WORTH:
        count += 1
    return count


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ropewalk" / "eval"


def chosen(
    text: Path, encode: Callable[[str], Sequence[int]], count: int, trained: int, longest: int
) -> tuple[list[Document], list[str]]:
    """Judge documents in the order of their hash, which draws them from the whole corpus, whoever wrote them."""
    judges: list[Document] = []
    left_out: list[str] = []
    known: set[bytes] = set()
    for name, each in sorted(texts([text]), key=lambda one: hashlib.sha256(one[1].encode()).digest()):
        document = cut(name, each, encode, longest)
        if document is None or document.tokens.tobytes() in known:
            continue
        known.add(document.tokens.tobytes())
        if battery.is_judge(document, longest, trained, battery.TAIL):
            judges.append(document)
        else:
            left_out.append(name)
        if len(judges) == count:
            return judges, left_out
    raise SystemExit(f"{text} has {len(judges)} documents of {longest:,} tokens with far text that can matter")


if __name__ == "__main__":
    sys.exit(main())
