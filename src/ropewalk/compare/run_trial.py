"""One trial: a training that resumes where it was, and its measurement. The result is a file named by the trial's hash.

OUT/trials/HASH.json        done; never written twice
OUT/runs/TRAINING/          under way, or killed; removed when done
OUT/models/TRAINING/        the trained weights and trained.json, how they were: measured otherwise, they are not
                            trained again
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import torch

from ropewalk.checkpoints.load.model import load
from ropewalk.compare import measure_tasks, measure_text
from ropewalk.compare.trials import Trial, outside, parameters
from ropewalk.data.config import TaskSetData, TextData
from ropewalk.train.checkpoint.store import NotFinite
from ropewalk.train.config import Recipe
from ropewalk.train.guard.drift import Drift
from ropewalk.train.guard.faults import Fault
from ropewalk.train.metrics import read
from ropewalk.train.plan.cost import step_flops
from ropewalk.train.plan.sizes import sizes
from ropewalk.train.run import train, versions
from ropewalk.yaml_text import to_yaml


class Stopped(RuntimeError):
    """A signal ended a trial; the same command continues it."""

    def __init__(self, said: str, signal: int | None = None) -> None:
        super().__init__(said)
        self.signal = signal


def file_of(out: Path, hash: str) -> Path:
    return out / "trials" / f"{hash}.json"


def run_trial(out: str, trial: Trial) -> str:
    """Does a trial unless it is done; its hash."""
    name, folder = trial.hash, Path(out)
    if file_of(folder, name).is_file():
        return name
    before = torch.get_num_threads()
    torch.set_num_threads(trial.threads)
    run, kept = folder / "runs" / trial.training, folder / "models" / trial.training
    try:
        if not (kept / "trained.json").is_file():
            _keep(trial, _trained(trial, run), run, kept)
        _write(file_of(folder, name), _measured(trial, kept))
    finally:
        torch.set_num_threads(before)
    shutil.rmtree(run, ignore_errors=True)
    return name


def _keep(trial: Trial, trained: dict[str, Any], run: Path, kept: Path) -> None:
    """trained.json comes last: without it the rest counts for nothing."""
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    if trained["diverged"] is None and trial.share == 1:  # of a search nothing is measured
        shutil.copytree(run / "export", kept / "export")
    _write(kept / "trained.json", trained)


def _trained(trial: Trial, run: Path) -> dict[str, Any]:
    sources, began = _sources(), time.perf_counter()
    diverged = _train(trial.recipe, run, outside(trial.recipe.model))
    spent = time.perf_counter() - began
    records = read(run / "metrics.jsonl")
    cut = sizes(trial.recipe.train, trial.recipe.data.length, 1)
    steps = {record["step"]: record for record in records["train"]}
    curve = {record["step"]: record["loss"] for record in records["valid"]}
    seconds = sorted(record["seconds"] for record in steps.values())
    return {
        "rate": trial.recipe.train.peak(trial.recipe.model.width),
        "parameters": parameters(trial.recipe.model),
        "steps": cut.steps,
        "tokens": cut.steps * cut.batch,
        "step_flops": step_flops(trial.recipe.model, cut.rows, cut.length),
        "diverged": diverged,
        "loss": curve.get(cut.steps),
        "curve": sorted(curve.items()),
        "versions": versions() | {"sources": sources},
        "timing": {
            # Validation and saving are in what this process spent, and not in the steps of one that was killed.
            "train": max(spent, sum(seconds)),
            # What else the machine does only adds to a step, so that the fast ones are what it takes.
            "step": seconds[len(seconds) // 10] if seconds else None,
            "memory": max((record["memory"] or 0 for record in steps.values()), default=0),
            "host": socket.gethostname(),
        },
    }


def _measured(trial: Trial, kept: Path) -> dict[str, Any]:
    trained = json.loads((kept / "trained.json").read_text(encoding="utf-8"))
    began = time.perf_counter()
    measured = None
    if trained["diverged"] is None and trial.measure is not None:
        model, data = load(kept / "export", kinds=outside(trial.recipe.model)), trial.recipe.data
        if isinstance(data, TaskSetData):
            measured = measure_tasks.measure(model, data, trial.measure)
        else:
            assert isinstance(data, TextData)
            measured = measure_text.measure(model, data, trial.measure)
    ended = {"measure": time.perf_counter() - began, "ended": time.time()}
    return {
        "hash": trial.hash,
        "part": trial.part,
        "arm": trial.arm,
        "seed": trial.seed,
        "factor": trial.factor,
        "share": trial.share,
        **trained,
        "measured": measured,
        "timing": trained["timing"] | ended,
    }


@cache
def _sources() -> str:
    """Of the package as it is here: trials of two versions in one study are seen in its report."""
    package = Path(__file__).parents[1]
    found = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        found.update(file.read_bytes())
    return found.hexdigest()[:12]


def _train(recipe: Recipe, run: Path, kinds: list[str]) -> dict[str, Any] | None:
    """What went wrong where a training diverged, which is a result; None where it did not."""
    mesh = recipe.mesh
    ranks = mesh.dp_replicate * (mesh.dp_shard or 1) * mesh.cp * mesh.tp
    try:
        if ranks > 1:
            return _by_torchrun(recipe, run, ranks, kinds)
        if not (result := train(recipe, run, resume=True, kinds=kinds)).finished:
            said = f"stopped at step {result.step:,} of {result.steps:,}; the same command continues it"
            raise Stopped(said, result.signal)
    except Drift as error:
        raise error.within("trial", run) from None
    except (Fault, NotFinite) as error:
        return {"why": type(error).__name__, "said": str(error).partition("\n")[0]}
    return None


def _by_torchrun(recipe: Recipe, run: Path, ranks: int, kinds: list[str]) -> dict[str, Any] | None:
    """A trial of several processes on this machine."""
    run.mkdir(parents=True, exist_ok=True)
    file = run / "trial.yaml"
    file.write_text(to_yaml(recipe.model_dump(mode="json")), encoding="utf-8")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command = [*launch, "-m", "ropewalk", "train", str(file), "--resume", "--quiet", "--out", str(run)]
    command += [part for kind in kinds for part in ("--allow-kind", kind)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.returncode:
        return None
    faults = [one for one in read(run / "metrics.jsonl")["event"] if one["what"] == "not finite"]
    if not faults:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return {"why": "Fault", "said": f"step {faults[-1]['step']}: not finite"}


def _write(file: Path, result: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.{os.getpid()}.part")
    with partial.open("w", encoding="utf-8") as out:
        json.dump(result, out, indent=1, allow_nan=False)
        out.flush()
        os.fsync(out.fileno())
    partial.replace(file)
