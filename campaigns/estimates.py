"""What `ropewalk estimate` says of a step, against runs: the memory of a process, and the messages of ranks.

    OMP_NUM_THREADS=1 python -m campaigns.estimates

Memory: each case is trained for four steps by `ropewalk train`, or by torchrun on two ranks, with an evaluation and an
asynchronous save every second step, malloc as it is by default; the most that the first rank held is the truth. The
constants of the estimate were chosen on the cases of FITTED; the error is told of the others, JUDGED, which differ in
width, depth, length, vocabulary, precision, encoding, stack, optimizer and data. Messages: `campaigns.collectives`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import bars
from campaigns import pieces
from ropewalk.data.prepare.sample import sample
from ropewalk.overrides import load
from ropewalk.train.config import Recipe
from ropewalk.train.metrics import read
from ropewalk.train.plan.estimate import estimate, mesh_of

MEDIAN, WORST = 0.10, 0.30
SOURCES = (
    "src/ropewalk/attention",
    "src/ropewalk/distributed",
    "src/ropewalk/train/loop.py",
    "src/ropewalk/train/plan",
    "campaigns/collectives.py",
    "campaigns/estimates.py",
)
ALL = [
    *("train.steps=4", "train.evaluate.every=2", "train.evaluate.tokens=2048", "train.save.every=2"),
    *("model.fused=false", "model.heads=4"),
]


class Case(NamedTuple):
    mesh: str
    data: str
    """text, pairs or copy."""
    length: int
    width: int
    layers: int
    batch: int
    more: str = ""

    @property
    def changes(self) -> list[str]:
        sizes = {"data.length": self.length, "model.width": self.width, "model.layers": self.layers}
        return [*(f"{key}={size}" for key, size in (sizes | {"train.batch": self.batch}).items()), *self.more.split()]


FITTED = {
    "fitted: one layer": Case("dp=1", "copy", 64, 64, 1, 256),
    "fitted: text": Case("dp=1", "text", 512, 256, 4, 2048),
    "fitted: FSDP 2": Case("dp=2", "text", 512, 256, 4, 2048),
    "fitted: FSDP 2, recomputed": Case("dp=2", "text", 512, 256, 4, 2048, "train.recompute=true"),
    "fitted: CP 2": Case("cp=2", "text", 512, 256, 4, 2048),
    "fitted: TP 2": Case("tp=2", "text", 512, 256, 4, 2048),
}
JUDGED = {
    "width 128": Case("dp=1", "copy", 128, 128, 2, 1024),
    "width 256, ALiBi": Case("dp=1", "text", 512, 256, 4, 2048, "model.encoding=alibi"),
    "T5, length 256": Case("dp=1", "text", 256, 192, 3, 2048, "model.encoding=t5"),
    "learned, bfloat16": Case(
        "dp=1",
        "text",
        256,
        256,
        4,
        2048,
        "model.encoding.kind=learned model.encoding.longest=256 train.precision=bfloat16",
    ),
    "sinusoidal, recomputed": Case("dp=1", "text", 512, 320, 5, 2048, "model.encoding=sinusoidal train.recompute=true"),
    "KERPLE, window": Case("dp=1", "text", 1024, 128, 3, 2048, "model.encoding=kerple model.window=128"),
    "FIRE, length 128": Case("dp=1", "copy", 128, 96, 2, 512, "model.encoding=fire"),
    "KERPLE, length 1024": Case("dp=1", "text", 1024, 128, 3, 1024, "model.encoding=kerple"),
    "FIRE, length 1024": Case("dp=1", "text", 1024, 128, 3, 1024, "model.encoding=fire"),
    "T5, length 2048": Case("dp=1", "text", 2048, 128, 3, 2048, "model.encoding=t5"),
    "FIRE, length 2048": Case("dp=1", "text", 2048, 128, 3, 2048, "model.encoding=fire"),
    "no encoding, 12 layers": Case("dp=1", "copy", 64, 128, 12, 2048, "model.encoding=none"),
    "length 2048, bfloat16": Case("dp=1", "text", 2048, 128, 2, 2048, "train.precision=bfloat16"),
    "two passes, Muon": Case("dp=1", "text", 256, 256, 4, 2048, "train.micro=1024 train.optimizer.kind=muon"),
    "vocabulary 24,576": Case("dp=1", "text", 256, 128, 2, 1024, "model.vocabulary=24576"),
    "encoder": Case("dp=1", "text", 256, 192, 4, 2048, "model.stack=encoder"),
    "encoder-decoder": Case("dp=1", "pairs", 64, 192, 3, 2048, "model.stack=encoder-decoder data.source_length=64"),
    "width 512, 6 layers, dropout": Case("dp=1", "text", 512, 512, 6, 1024, "model.dropout.residual=0.1"),
    "2 ranks: FSDP, ALiBi, bfloat16": Case(
        "dp=2", "text", 512, 256, 4, 2048, "model.encoding=alibi train.precision=bfloat16"
    ),
    "2 ranks: FSDP, T5, two passes": Case("dp=2", "text", 256, 192, 3, 2048, "train.micro=512 model.encoding=t5"),
    "2 ranks: CP, width 128": Case("cp=2", "copy", 512, 128, 2, 2048),
    "2 ranks: TP, width 320, Muon": Case("tp=2", "text", 256, 320, 4, 2048, "train.optimizer.kind=muon"),
    "2 ranks: CP, KERPLE, recomputed": Case(
        "cp=2", "text", 1024, 256, 3, 2048, "model.encoding=kerple train.recompute=true"
    ),
}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=25.0, help="no case is begun after this; 25 unless given")
    options.add_argument("--out", type=Path, default=pieces.RESULTS / "estimates.json", help="where cases are kept")
    options.add_argument("--json", action="store_true", help="print the result as JSON")
    given = options.parse_args()
    known, end = pieces.digest(SOURCES), time.monotonic() + 60 * given.minutes
    done = pieces.before(given.out, known)
    with tempfile.TemporaryDirectory(prefix="ropewalk-estimates-") as made:
        for name in [*FITTED, *JUDGED, *messages()]:
            if name in done:
                continue
            if time.monotonic() > end:
                print(f"{name} and what follows is left; the same command goes on", file=sys.stderr)
                return pieces.UNFINISHED
            memory = FITTED | JUDGED
            found = held(memory[name], Path(made)) if name in memory else counted(name)
            done[name] = found | {"sources": known}
            pieces.keep(given.out, result(done, known))
            print(f"{name}: {spoken(found)}", file=sys.stderr, flush=True)
    return bars.tell(result(done, known), as_json=given.json)


def messages() -> list[str]:
    from campaigns.collectives import CASES

    return [f"messages: {name}" for name in CASES]


def spoken(found: dict[str, Any]) -> str:
    if "ratio" not in found:
        return "equal" if found["estimated"] == found["counted"] else f"differ: {found}"
    return f"{found['predicted']['peak'] >> 20:,} MiB said, {found['measured'] >> 20:,} held, {found['ratio']:.3f}"


def held(case: Case, folder: Path) -> dict[str, Any]:
    """Bytes at the peak of the first rank, as estimated and as they were."""
    kind = {"copy": "task"}.get(case.data, case.data)
    changes = [*ALL, f"data.kind={kind}", *case.changes]
    changes += ["data.task=copy", "data.vocabulary=64"] if kind == "task" else [f"data.path={data(case.data, folder)}"]
    if kind == "task":
        changes.append("model.vocabulary=64")
    elif "model.vocabulary" not in case.more:
        changes.append("model.vocabulary=4096")
    sides, ranks = mesh_of(case.mesh)
    said = estimate(load(Recipe, None, changes), sides, ranks)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    with tempfile.TemporaryDirectory(dir=folder) as made:
        recipe, out = Path(made) / "recipe.yaml", Path(made) / "run"
        recipe.write_text("{}", encoding="utf-8")
        mesh = [f"mesh.{name}={size}" for name, size in sides.model_dump().items() if size]
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
        train = ["-m", "ropewalk", "train", str(recipe), *changes, *mesh, "--out", str(out), "--quiet"]
        subprocess.run(
            [sys.executable, *torchrun, *train],
            env=environment | {"OMP_NUM_THREADS": "1"},
            check=True,
            stdout=sys.stderr,
        )
        truth = max(record["memory"] for record in read(out / "metrics.jsonl")["train"])
    return {
        "mesh": case.mesh,
        "changes": f"{case.data}: {' '.join(case.changes)}",
        "predicted": said.memory,
        "measured": truth,
        "ratio": round(said.memory["peak"] / truth, 4),
        "besides tensors of a step": truth - said.measured.peak,
    }


def data(kind: str, folder: Path) -> Path:
    return folder / kind if (folder / kind).exists() else sample(kind, folder / kind)  # type: ignore[arg-type]


def counted(name: str) -> dict[str, Any]:
    case = name.removeprefix("messages: ")
    command = [sys.executable, "-m", "campaigns.collectives", case]
    done = subprocess.run(command, cwd=pieces.REPOSITORY, stdout=subprocess.PIPE, text=True, check=False)
    return json.loads(done.stdout)[case]


def result(done: dict[str, Any], known: str) -> dict[str, Any]:
    apart = {ranks: errors(done, ranks) for ranks in (1, 2)}
    together = [error for found in apart.values() for error in found]
    wrong = [name for name in messages() if name in done and done[name]["estimated"] != done[name]["counted"]]
    measured: dict[str, Any] = {}
    for ranks, found in apart.items():
        measured[f"cases not fitted, ranks {ranks}"] = len(found)
        if found:
            measured[f"median error, ranks {ranks}"] = round(statistics.median(found), 4)
            measured[f"worst error, ranks {ranks}"] = round(max(found), 4)
    counts = [done[name] for name in messages() if name in done]
    return {
        "command": "OMP_NUM_THREADS=1 python -m campaigns.estimates",
        "bars": {
            "memory, cases not fitted: median error": bars.bar(
                statistics.median(together or [1]), MEDIAN, at_least=False
            ),
            "memory, cases not fitted: worst error": bars.bar(max(together or [1]), WORST, at_least=False),
            "messages: cases that differ": bars.bar(len(wrong), 0, at_least=False),
        },
        "measured": measured | {"cases whose messages were counted": len(counts)},
        "versions": bars.versions(()),
        "sources": known,
        "pieces": done,
    }


def errors(done: dict[str, Any], ranks: int) -> list[float]:
    """Of the cases that nothing was fitted on."""
    mine = [name for name in JUDGED if name in done and mesh_of(JUDGED[name].mesh)[1] == ranks]
    return [abs(done[name]["ratio"] - 1) for name in mine]


if __name__ == "__main__":
    sys.exit(main())
