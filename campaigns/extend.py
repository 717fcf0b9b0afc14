"""How should a model read a longer text? The tournament of `ropewalk extend` on real models, in pieces.

    ropewalk data fetch long-english --out DATA
    OMP_NUM_THREADS=2 python -m campaigns.extend MODEL --to N --name NAME --text DATA/long-english.jsonl [--draw 1]

The result is campaigns/results/extend-NAME-N.json, with the page beside it. A run ends after --minutes, 25 unless
given, and the same command continues it, until the exit code is not 3; till then its rounds, passes and seconds are in
WORK/extend-NAME-N.unfinished.json. Every pass is kept in campaigns/measurements, so that a run of many hours continues
on another machine. --draw takes other documents to judge on: the verdict should be the same, or a tie, over several of
them. --search and --tune are those of `ropewalk extend`.

--scaling judges that one alone, against cropping. --losses leaves out what a verdict is made of, which takes as long
again: needles, the cost on short text, the loss with foreign text and by position.

--assume compares one change with none, at the model's own length too: YaRN for a model that was trained for less than
this one. Needles are then put into every document to judge on.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import bars
from campaigns import pieces
from ropewalk.checkpoints.resolve.native import MODEL_TYPE
from ropewalk.checkpoints.resolve.read import read
from ropewalk.cli.scaling import named_scaling
from ropewalk.evaluate.statistics import Interval, paired
from ropewalk.extend.asking import OutOfTime
from ropewalk.extend.choose import choose, rotation
from ropewalk.extend.judging import ASKED, between, found_between
from ropewalk.extend.tournament import Result
from ropewalk.extend.tune.tuned import Tuning
from ropewalk.report.extension.page import page
from ropewalk.system import peak_memory

# All that a likelihood depends on, beside what its key names (the weights, the tokens, the scaling, the dtype): passes
# of two versions are not mixed.
LIKELIHOODS = tuple(
    "src/ropewalk/" + name
    for name in (
        *("evaluate/engines", "evaluate/checkpoint.py", "evaluate/passage.py", "evaluate/store.py", "scaling"),
        *("encodings", "rotation", "attention", "models", "nn", "phase.py", "positions.py", "plan.py", "settings.py"),
        *("torch_private.py", *("checkpoints/" + one for one in ("load", "files", "resolve", "families"))),
        "checkpoints/architectures",
        "checkpoints/engines/facts.py",
    )
)
# And a verdict.
SOURCES = (
    "campaigns/extend.py",
    *LIKELIHOODS,
    *("src/ropewalk/" + name for name in ("extend", "evaluate", "checkpoints/tokens", "trials")),
    *("src/ropewalk/checkpoints/" + name for name in ("inspect", "engines", "export")),
)
MEASUREMENTS = pieces.REPOSITORY / "campaigns" / "measurements"
JUDGES = 16
MEMORY = 6.0
"""GiB that a run may take."""
PIECE = 30.0
"""Minutes that a piece may take."""
MINUTES = {2: 90.0, 4: 240.0}
"""That a run may take in all, to so many times the trained length."""


class Pieces:
    """What each piece of a run took, a line of JSON for each: {"seconds", "passes", "GiB"}."""

    def __init__(self, file: Path) -> None:
        self.file, self.began, self.passes = file, time.monotonic(), 0

    def end(self) -> None:
        """Of this piece, whatever ended it."""
        took = {"seconds": round(time.monotonic() - self.began, 1), "passes": self.passes}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a", encoding="utf-8") as out:
            out.write(json.dumps({**took, "GiB": round((peak_memory() or 0) / 2**30, 3)}) + "\n")

    def all(self) -> list[dict[str, float]]:
        if not self.file.exists():
            return []
        return [json.loads(line) for line in self.file.read_text(encoding="utf-8").splitlines()]

    def bars(self, ratio: float, *, timed: bool = True) -> dict[str, Any]:
        """ratio: of the wanted length to the trained one. timed: a search and a training have no time of their own."""
        every = self.all()
        whole = next((minutes for times, minutes in MINUTES.items() if ratio <= times), max(MINUTES.values()))
        most = {
            **({"minutes in all": (sum(one["seconds"] for one in every) / 60, whole)} if timed else {}),
            "minutes of the longest piece": (max(one["seconds"] for one in every) / 60, PIECE),
            "GiB": (max(one["GiB"] for one in every), MEMORY),
        }
        return {name: bars.bar(value, bound, at_least=False) for name, (value, bound) in most.items()}


def compared(found: Result) -> dict[str, Interval]:
    """Each change with none, and what was searched with the formula that the documents to select on call the best;
    paired by document, and by pass with needles. Positive numbers are gains."""
    finals = {name: one for name, one in found.judged.items() if one.candidate.text == "whole"}
    left = next((name for name, one in finals.items() if one.candidate.scaling is None), None)
    pairs = [] if left is None else [(name, left) for name in finals if name != left]
    if found.searched is not None:
        select = {name: value for name, value in found.searched.select.items() if name in finals}
        pairs.append((found.searched.candidate.name, min(select, key=select.__getitem__)))
    intervals: dict[str, Interval] = {}
    for one, other in dict.fromkeys(pairs):
        intervals[f"loss, {one} better than {other}"] = paired(between(finals[one], finals[other]))
        if shares := found_between(finals[one], finals[other]):
            intervals[f"needles, {one} minus {other}"] = paired(shares)
    return intervals


def unfinished(file: Path, rounds: list[dict[str, Any]], took: Pieces, where: str) -> None:
    """What there is of a run when a piece of it ends. rounds: as many as this piece came to, from the first on; one
    that ended sooner than the last leaves what is known."""
    known = json.loads(file.read_text(encoding="utf-8"))["rounds"] if file.exists() else []
    every = took.all()
    said = {
        "where": where,
        "passes": sum(one["passes"] for one in every),
        "seconds": round(sum(one["seconds"] for one in every), 1),
        "rounds": max(known, rounds, key=len),
        "took": every,
    }
    pieces.keep(file, said)


def native(model: Path) -> bool:
    """Whether it is a model of ropewalk's own, for which there is nothing to write."""
    return read(model).model_type == MODEL_TYPE


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("model", type=Path)
    options.add_argument("--to", type=int, required=True, help="tokens")
    options.add_argument("--trained", type=int, help="take this for the trained length; the config's unless given")
    options.add_argument("--name", required=True, help="of the result, extend-NAME-N.json")
    options.add_argument("--text", type=Path, required=True, help="documents, as .jsonl")
    options.add_argument("--documents", type=int, default=JUDGES, help=f"to judge on, {JUDGES} unless given")
    options.add_argument("--draw", type=int, default=0, help="which documents to judge on, 0 unless given")
    options.add_argument("--tail", type=int, default=512, help="scored tokens, 512 unless given")
    options.add_argument("--dtype", default="bfloat16", help="bfloat16 unless given, as such checkpoints are served")
    options.add_argument("--minutes", type=float, default=25.0, help="no pass is begun after this; 25 unless given")
    options.add_argument("--work", type=Path, default=MEASUREMENTS, help="where passes are kept")
    options.add_argument("--out", type=Path, default=pieces.RESULTS, help="where the result goes")
    options.add_argument("--search", type=int, metavar="PASSES", help="search beside the formulas")
    options.add_argument("--tune", type=float, metavar="MINUTES", help="train the winner for so long")
    alone = options.add_mutually_exclusive_group()
    alone.add_argument("--assume", type=int, metavar="N", help="judge YaRN from N tokens alone, beside no change")
    alone.add_argument("--scaling", metavar="KIND", help="judge this one alone, for N over the trained length")
    options.add_argument("--losses", action="store_true", help="measure nothing but the verdict")
    options.add_argument("--needles", type=int, help=f"documents with needles; {ASKED} unless given, all with --assume")
    options.add_argument("--json", action="store_true", help="print the result as JSON")
    given = options.parse_args()
    name = f"extend-{given.name}-{given.to}" + (f"-draw{given.draw}" if given.draw else "")
    name += (f"-search-{given.search}" if given.search else "") + (f"-tune-{given.tune:g}" if given.tune else "")
    name += "".join(
        f"-{option}-{getattr(given, option)}"
        for option in ("assume", "scaling", "trained", "documents", "tail", "dtype", "needles")
        if getattr(given, option) != options.get_default(option)
    )
    name += "-losses" if given.losses else ""
    known = pieces.digest(SOURCES)
    # A draw shares what was measured on the documents to search and to select on, a search all that was measured.
    work = given.work / f"{given.name}-{given.to}-{pieces.digest(LIKELIHOODS)}"
    # Of this result: draws share the folder.
    took = Pieces(work / f"{name}.pieces.jsonl")

    def progress(stage: str, done: int, total: int) -> None:
        took.passes += 1
        print(f"{time.monotonic() - took.began:6.0f} s  {stage}: {done} of {total}", file=sys.stderr, flush=True)

    only = None
    if kind := "yarn" if given.assume else given.scaling:
        trained = given.assume or rotation(given.model, given.to, given.trained).trained
        only = named_scaling(kind, given.to / trained, trained)
    asked = given.needles or (given.documents if given.assume else ASKED)
    rounds: list[dict[str, Any]] = []
    partial, where = given.work / f"{name}.unfinished.json", "stopped"
    try:
        found = choose(
            given.model, given.to, [given.text], work, trained=given.trained, judges=given.documents,
            number=given.draw, tail=given.tail, dtype=given.dtype, minutes=given.minutes, progress=progress,
            search=given.search, tuning=Tuning(minutes=given.tune) if given.tune else None, only=only, asked=asked,
            details=not given.losses,
            ended=lambda found: rounds.append(found.to_dict()),
            say=lambda said: print(said, file=sys.stderr),
        )  # fmt: skip
    except OutOfTime as error:
        where = str(error)
        print(f"{error}; the same command continues", file=sys.stderr)
        return pieces.UNFINISHED
    finally:
        took.end()
        unfinished(partial, rounds, took, where)
    partial.unlink()
    print(found.sentence, file=sys.stderr)
    result = {"model": given.model.name, **found.to_dict(), "native": native(given.model), "written": None}
    command = f"OMP_NUM_THREADS=2 python -m campaigns.extend MODEL --to {given.to} --name {given.name}"
    command += f" --text {given.text.name} --documents {given.documents} --draw {given.draw} --tail {given.tail}"
    command += f" --dtype {given.dtype}" + (f" --trained {given.trained}" if given.trained else "")
    command += f" --assume {given.assume}" if given.assume else ""
    command += f" --scaling {given.scaling}" if given.scaling else ""
    command += " --losses" if given.losses else ""
    command += f" --needles {given.needles}" if given.needles else ""
    command += f" --search {given.search}" if given.search else ""
    command += f" --tune {given.tune:g}" if given.tune else ""
    said = {
        "command": command,
        "bars": {
            "documents to judge on, at least": bars.bar(len(found.sets.judge), JUDGES, at_least=True),
            **took.bars(given.to / found.rope.trained, timed=not given.search and not given.tune),
        },
        "measured": {"passes": sum(one["passes"] for one in took.all())}
        | {f"gain, {one}": judged.gain.mean for one, judged in found.judged.items()},
        "intervals": {name: one.to_dict() for name, one in compared(found).items()},
        "verdict": found.sentence + ("" if found.tuned is None else f" {found.tuned.sentence}"),
        "took": took.all(),
        "result": result,
        "versions": bars.versions(()),
        "sources": known,
    }
    given.out.mkdir(parents=True, exist_ok=True)
    pieces.keep(given.out / f"{name}.json", said)
    (given.out / f"{name}.html").write_text(page(given.name, result), encoding="utf-8")
    return bars.tell(said, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
