"""Does it matter that angles are exact? The loss of two real models under exact, float32 and bfloat16 angles.

    python -m tests.real.fetch smollm2 tinyllama
    ropewalk data fetch long-english --out data/long-english
    python -m campaigns.exactness data/long-english/long-english.jsonl [--minutes 25] [--json]

SmolLM2-135M (trained at 8,192 tokens) and TinyLlama-1.1B (at 2,048) read long English documents, each document under
every arm of `campaigns.exactness_arms`: at the trained length, at twice that with YaRN, and from positions far beyond,
since scores depend on distances and the loss should not change there. The weights are what their GGUF files hold
(Q4_1, IQ2_XXS), computed in float32 and in bfloat16.

What is compared is the mean loss of the same tokens, so each document gives one difference from exact angles from
position 0. Intervals are Student's t over these differences, 95 %; with few documents they are wide. A piece is one
document in one cell. A run that was ended goes on where it was; all of it takes about an hour on two cores.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import bars
from campaigns import pieces
from campaigns.exactness_arms import TRAINED, Cell, documents, run

TWO = ("exact", "float32")
CELLS = (
    Cell("smollm2", 2048, "float32", 3, far=(10**6, 10**7, 10**8)),
    Cell("tinyllama", 2048, "float32", 3, arms=("exact", "float32", "frequencies", "angles")),
    Cell("smollm2", 8192, "float32", 2, arms=("exact", "float32", "angles")),
    Cell("smollm2", 2048, "bfloat16", 3, far=(10**6, 10**8)),
    Cell("tinyllama", 2048, "bfloat16", 2, arms=TWO),
    Cell("tinyllama", 4096, "float32", 2, factor=2, arms=TWO),
    Cell("smollm2", 8192, "bfloat16", 2, arms=TWO),
    Cell("smollm2", 16384, "float32", 2, factor=2, arms=TWO),
)
"""Run shortest texts first; of equal ones, the most important: a pass costs what its length and its model cost."""
T975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365}
"""Student's t at 97.5 %, by degrees of freedom."""
SOURCES = (
    "campaigns/exactness_arms.py",
    "src/ropewalk/phase.py",
    "src/ropewalk/encodings/rope.py",
    "src/ropewalk/rotation/__init__.py",
)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("texts", type=Path, help="a .jsonl file of documents")
    options.add_argument("--minutes", type=float, default=25.0, help="no piece is begun after this; 25 unless given")
    options.add_argument("--out", type=Path, default=pieces.RESULTS / "exactness.json", help="where pieces are kept")
    options.add_argument("--json", action="store_true", help="print the result as JSON")
    given = options.parse_args()
    known = pieces.digest(SOURCES)
    done = pieces.before(given.out, known)
    texts = list(itertools.islice(documents(given.texts), max(cell.documents for cell in CELLS)))
    end = time.monotonic() + 60 * given.minutes
    order = [(n, cell) for n in range(len(texts)) for cell in CELLS if n < cell.documents]
    for number, cell in sorted(order, key=lambda one: one[1].length):
        key = f"{cell.name}, document {number}"
        if key not in done:
            if time.monotonic() > end:
                print(f"{key} and what follows is left; the same command goes on", file=sys.stderr)
                return pieces.UNFINISHED
            began = time.monotonic()
            digest, text = texts[number]
            found = piece(cell, text) | {"document": digest, "seconds": round(time.monotonic() - began, 1)}
            done[key] = found
            pieces.keep(given.out, result(done, known))
        print(f"{key}: {done[key]['seconds']} s", file=sys.stderr, flush=True)
    return bars.tell(result(done, known), as_json=given.json)


def piece(cell: Cell, text: str) -> dict[str, Any]:
    import torch

    import ropewalk as rw
    from ropewalk.checkpoints.tokens import tokenizer
    from tests.real import fetch

    path = fetch.model(cell.model)
    tokens = torch.tensor(tokenizer.of(path).encode(text)[: cell.length])
    if len(tokens) < cell.length:
        raise SystemExit(f"a document of {len(tokens):,} tokens; {cell.length:,} are needed: raise LONG_ENOUGH")
    return {"passes": run(cell, rw.load(path, dtype=cell.dtype), tokens)}


def result(done: dict[str, Any], known: str) -> dict[str, Any]:
    found = {cell.name: table(cell, done) for cell in CELLS}
    return {
        "command": "python -m campaigns.exactness DOCUMENTS",
        "bars": verdicts(found),
        "measured": found,
        "unit": "nats per token: of exact angles, and what is added to that",
        "interval": "Student's t over documents, 95 %; the same tokens in every arm",
        "versions": bars.versions(("transformers",)),
        "sources": known,
        "pieces": done,
    }


def table(cell: Cell, done: dict[str, Any]) -> dict[str, Any]:
    every = [done[key]["passes"] for n in range(cell.documents) if (key := f"{cell.name}, document {n}") in done]
    if not every:
        return {"documents": 0}
    exact = [passes["exact from 0"]["nats"] for passes in every]
    rows: dict[str, Any] = {"documents": len(every), "exact": round(statistics.fmean(exact), 4)}
    for name in list(every[0])[1:]:
        apart = [passes[name]["nats"] - own for passes, own in zip(every, exact, strict=True)]
        rows[name] = interval(apart) | {"token": statistics.fmean(passes[name]["token"] for passes in every)}
    return rows


def interval(apart: Sequence[float]) -> dict[str, float | None]:
    """The mean, and what is to both sides of it in the 95 % interval; a single document has none."""
    mean = statistics.fmean(apart)
    if len(apart) < 2:
        return {"added": mean, "within": None}
    return {"added": mean, "within": T975[len(apart) - 1] * statistics.stdev(apart) / math.sqrt(len(apart))}


def verdicts(found: dict[str, Any]) -> dict[str, Any]:
    """Bars on the ends of intervals, in thousandths of a nat."""

    def ends(arm: str, start: str, *, dtype: str = "float32", long: bool | None = None) -> list[tuple[float, float]]:
        cells = [cell for cell in CELLS if cell.dtype == dtype and cell.factor == 1]
        if long is not None:
            cells = [cell for cell in cells if (cell.length > TRAINED[cell.model]) == long]
        rows = [
            row for cell in cells if (row := found[cell.name].get(f"{arm} from {start}")) and row["within"] is not None
        ]
        return [(1000 * (row["added"] - row["within"]), 1000 * (row["added"] + row["within"])) for row in rows]

    def farthest(each: list[tuple[float, float]]) -> float:
        return max((max(abs(low), abs(high)) for low, high in each), default=math.inf)

    def least(each: list[tuple[float, float]]) -> float:
        return min((low for low, _ in each), default=-math.inf)

    trained = ends("float32", "0", long=False)
    return {
        "float32 angles inside the trained length, from exact, at most": bars.bar(
            farthest(trained), 1.0, at_least=False
        ),
        "exact angles from position 100,000,000, at most": bars.bar(
            farthest(ends("exact", "100,000,000")), 1.0, at_least=False
        ),
        "float32 angles from position 100,000,000, at least": bars.bar(
            least(ends("float32", "100,000,000")), 100.0, at_least=True
        ),
        "positions and angles in bfloat16 inside the trained length, at least": bars.bar(
            least(ends("angles", "0", long=False)), 10.0, at_least=True
        ),
    }


if __name__ == "__main__":
    sys.exit(main())
