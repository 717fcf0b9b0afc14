"""What `ropewalk estimate` says a rank will hold, against what two ranks hold.

    python -m campaigns.estimates > campaigns/results/estimates.json

Each case is trained for three steps by `torchrun --nproc-per-node 2 -m ropewalk train`; the most memory the first rank
held is the truth. What it held besides the tensors that were predicted is told too: it is the process itself. Freed
memory is given back to the system at once (MALLOC_MMAP_THRESHOLD_), or the heap's holes would be counted too. Rows are
whole texts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import bars
from ropewalk.data.prepare.sample import sample
from ropewalk.overrides import load
from ropewalk.train.config import Recipe
from ropewalk.train.metrics import read
from ropewalk.train.plan.estimate import estimate, mesh_of

WITHIN = 0.10
SOURCES = (
    "src/ropewalk/distributed",
    "src/ropewalk/train/loop.py",
    "src/ropewalk/train/plan",
    "campaigns/collectives.py",
    "campaigns/estimates.py",
)
COMMON = [
    *(
        "data.kind=text",
        "data.isolate=false",
        "data.length=1024",
        "model.vocabulary=8192",
        "model.width=384",
        "model.heads=6",
    ),
    *("model.layers=6", "model.fused=false", "train.steps=3", "train.batch=8192", "train.evaluate.every=1000000"),
    *("train.save.every=1000000", "train.evaluate.tokens=1024"),
]
CASES: dict[str, tuple[str, list[str]]] = {
    "FSDP 2": ("dp=2", []),
    "FSDP 2, recomputed": ("dp=2", ["train.recompute=true"]),
    "FSDP 2, two passes": ("dp=2", ["train.micro=2048"]),
    "CP 2": ("cp=2", ["train.batch=4096"]),
    "TP 2": ("tp=2", ["train.batch=4096"]),
    "FSDP 2, bfloat16": ("dp=2", ["train.precision=bfloat16"]),
}


def main() -> int:
    cases = {}
    for name, (mesh, changes) in CASES.items():
        recipe = load(Recipe, None, [*COMMON, *changes, "data.path=text"])
        found, truth = estimate(recipe, *mesh_of(mesh)), held(mesh, changes)
        said = found.memory
        cases[name] = {"mesh": mesh, "predicted": said, "measured": truth, "ratio": said["peak"] / truth}
        cases[name]["besides tensors"] = truth - found.measured.peak
        print(
            f"{name}: {said['peak'] / 2**20:,.0f} MiB said, {truth / 2**20:,.0f} MiB held", file=sys.stderr, flush=True
        )
    result = {
        "command": "python -m campaigns.estimates",
        "bars": {
            f"{name}: predicted apart from measured, at most": bars.bar(abs(case["ratio"] - 1), WITHIN, at_least=False)
            for name, case in cases.items()
        },
        "cases": cases,
        "changes": COMMON,
        "versions": bars.versions(()),
    }
    return bars.tell(result, as_json=True)


def held(mesh: str, changes: list[str]) -> int:
    """Bytes at the peak, of the first of two real ranks."""
    sides = [
        f"mesh.{'dp_shard' if key == 'dp' else key}={size}" for key, size in (s.split("=") for s in mesh.split(","))
    ]
    environment: dict[str, Any] = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
    with tempfile.TemporaryDirectory() as folder:
        recipe, out = Path(folder) / "recipe.yaml", Path(folder) / "run"
        recipe.write_text("{}", encoding="utf-8")
        text = f"data.path={sample('text', Path(folder) / 'text')}"
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        train = ["-m", "ropewalk", "train", str(recipe), *COMMON, *changes, *sides, text, "--out", str(out), "--quiet"]
        subprocess.run([*torchrun, *train], env=environment, check=True, stdout=sys.stderr)
        return max(record["memory"] for record in read(out / "metrics.jsonl")["train"])


if __name__ == "__main__":
    sys.exit(main())
