"""Mistakes in the code that trains, each made in a copy of the sources, and the test that fails with it.

    python -m campaigns.train_mutants [--minutes 25] [--json]

The first trial is the copy without a mistake, on which every test named here passes. Each of the others changes one
expression, and runs the tests nearest to it by pytest until one fails. The bar: no mistake that changes a result and
that all of them pass.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import bars
from campaigns import pieces

PLAIN, SURVIVAL = "tests/train/test_plain_torch.py::test_{}", "tests/train/test_survival.py::test_{}"
STEP, FAULTS = PLAIN.format("a_step_is_what_the_recipe_says"), PLAIN.format("faults_are_remembered_over_a_resume")
ASKED = PLAIN.format("recomputation_and_compilation_are_done_where_they_are_asked_for")
GATHERED = "tests/train/test_worlds.py::test_weights_are_not_left_gathered_by_a_measurement"
RANKS = "tests/train/test_start.py::test_two_ranks_start_as_one[FSDP 2]"
LIMIT = 900
"""Seconds that the tests of a trial may take."""


class Mutant(NamedTuple):
    name: str
    file: str
    """Below src/ropewalk."""
    right: str
    wrong: str
    tests: tuple[str, ...]
    same: str | None = None
    """Why it changes no result, of one that does not: then all tests must pass."""


LOOP, RUN, STORE = "train/loop.py", "train/run.py", "train/checkpoint/store.py"
AUTOCAST = (
    "with autocast(self.world, {}):\n                dropout_key = dropout_key_of(part, self.config.seed, self.step)\n"
)
AUTOCAST += "                loss ="
EVALUATED = (
    'self.learner.train()\n        {}if self.metrics is not None:\n            self.metrics.write({{"kind": "valid"'
)
KEPT = 'kept (faults.policy: stop)")\n            {}return "good"'

MUTANTS = (
    Mutant("clip ignored", LOOP, "self.config.clip or math.inf", "math.inf", (STEP,)),
    Mutant("label smoothing ignored", LOOP, "smoothing=self.config.label_smoothing", "smoothing=0.0", (STEP,)),
    Mutant("schedule ignored", LOOP, "self.config.schedule.share(self.step + 1, self.sizes.steps)", "1.0", (STEP,)),
    Mutant("schedule off by one", LOOP, "schedule.share(self.step + 1,", "schedule.share(self.step,", (STEP,)),
    Mutant(
        "precision ignored",
        LOOP,
        AUTOCAST.format("self.config.precision"),
        AUTOCAST.format('"float32"'),
        (PLAIN.format("bfloat16_is_bfloat16"),),
    ),
    Mutant(
        "each pass divided by its own targets",
        LOOP,
        "(loss / count).backward()",
        "(loss / (part.targets * len(parts))).backward()",
        (STEP,),
    ),
    Mutant("bad batches forgotten on resume", LOOP, 'frozenset(state["bad"])', "frozenset()", (FAULTS,)),
    Mutant("watch forgotten on resume", LOOP, 'watch.load(state["watch"])', "watch.state()", (FAULTS,)),
    Mutant(
        "filler sequences counted in evaluation",
        LOOP,
        "batch.silent(row >= wanted)",
        "batch",
        (PLAIN.format("sequences_that_fill_up_a_batch_are_not_measured"),),
    ),
    Mutant(
        "no reshard after evaluation",
        LOOP,
        EVALUATED.format("self._reshard()\n        "),
        EVALUATED.format(""),
        (GATHERED,),
        "the loss calls `hidden`, which FSDP knows as a forward method of its own: the weights are sharded again when "
        "the outer one ends, with this call and without; the test looks at the weights after a measurement",
    ),
    Mutant("recompute ignored", RUN, "recompute=config.recompute", "recompute=False", (ASKED,)),
    Mutant("compile ignored", RUN, "compiled=config.compile", "compiled=False", (ASKED,)),
    Mutant(
        "export without tokenizer",
        RUN,
        "tokenizer=data.tokenizer, run=out",
        "tokenizer=None, run=out",
        (PLAIN.format("an_export_has_the_tokenizer_of_the_data"),),
    ),
    Mutant(
        "bits per byte without log 2",
        "evaluate/by_position.py",
        "size.sum() * math.log(2)",
        "size.sum()",
        ("tests/evaluate/test_by_position.py",),
    ),
    Mutant(
        "every bin shifted by one",
        "evaluate/by_position.py",
        "(index.cpu() * bins // length)",
        "(index.cpu() * bins // length + 1)",
        ("tests/evaluate/test_by_position.py",),
    ),
    Mutant(
        "Muon's scaling",
        "train/optim.py",
        '"match_rms_adamw"',
        '"original"',
        ("tests/train/test_optim.py::test_an_update_of_muon_is_as_large_as_one_of_adam",),
    ),
    Mutant(
        "gradients reduced in bfloat16",
        "distributed/apply.py",
        "reduce_dtype=torch.float32",
        "reduce_dtype=torch.bfloat16",
        ("tests/train/test_estimate.py::test_sharding_is_hidden_behind_computing_and_every_pass_is_counted",),
    ),
    Mutant("verdict not agreed: by one rank's loss", LOOP, "self.world.sum(total) / count", "total / count", (RANKS,)),
    Mutant(
        "kept spike not remembered",
        "train/guard/faults.py",
        KEPT.format("self.losses.append(loss)\n            "),
        KEPT.format(""),
        ("tests/train/test_faults.py",),
    ),
    Mutant(
        "asked not agreed",
        "train/guard/signals.py",
        "return world.agree(self.received",
        "return bool(self.received",
        (SURVIVAL.format("one_rank_that_is_asked_is_enough"),),
    ),
    Mutant(
        "no fsync of the folder",
        STORE,
        "        sync(self.folder)\n",
        "",
        ("tests/train/test_checkpoint.py::test_names_are_on_the_disk_before_they_count",),
    ),
    Mutant(
        "prune without the lease",
        STORE,
        "        if self.lease is not None:\n            self.lease.check()\n        kept",
        "        kept",
        ("tests/train/test_checkpoint.py::test_a_lease_lost_after_a_save_removes_nothing",),
    ),
    Mutant(
        "takeover race unchecked",
        "train/guard/lease.py",
        "if (now := _read(self.file)) != before:",
        "if (now := _read(self.file)) is before:",
        ("tests/train/test_lease.py::test_two_take_over_at_once",),
    ),
    Mutant(
        "schedule, batch, steps free",
        "train/guard/drift.py",
        '    "recipe.mesh",\n',
        '    "recipe.mesh", "recipe.train.schedule", "recipe.train.batch", "recipe.train.steps",\n',
        ("tests/train/test_drift.py",),
    ),
    Mutant(
        "near and far swapped",
        "train/plan/estimate.py",
        "device.near if near else device.far",
        "device.far if near else device.near",
        ("tests/train/test_estimate.py::test_messages_take_what_a_ring_takes",),
    ),
    Mutant(
        "all messages free",
        "train/plan/estimate.py",
        "rounds * traffic.bytes * (n - 1) / n",
        "0.0",
        ("tests/train/test_estimate.py::test_messages_take_what_a_ring_takes",),
    ),
)
TESTS = tuple(sorted({test for mutant in MUTANTS for test in mutant.tests}))
SOURCES = (
    "campaigns/train_mutants.py",
    *sorted({f"src/ropewalk/{mutant.file}" for mutant in MUTANTS}),
    *sorted({test.partition("::")[0] for test in TESTS}),
)


def run(start: int, count: int) -> dict[str, Any]:
    rows = [_control() if trial == 0 else _row(MUTANTS[trial - 1]) for trial in range(start, start + count)]
    return {"rows": rows, "failures": [row for row in rows if (row["killed by"] is None) != row["same"]]}


def _control() -> dict[str, Any]:
    return {"mutant": "none", "file": None, "same": True, "killed by": _failing(None, TESTS)}


def _row(mutant: Mutant) -> dict[str, Any]:
    row = {"mutant": mutant.name, "file": mutant.file, "same": mutant.same is not None}
    row |= {"why": mutant.same} if mutant.same else {}
    return {**row, "killed by": _failing(mutant, mutant.tests)}


def _failing(mutant: Mutant | None, tests: tuple[str, ...]) -> str | None:
    """The first test that fails in a copy of the repository with this mistake in it."""
    with tempfile.TemporaryDirectory(prefix="ropewalk-mutant-") as made:
        copy = Path(made)
        for part in ("src", "tests", "benchmarks", "campaigns", "pyproject.toml"):
            here = pieces.REPOSITORY / part
            shutil.copytree(here, copy / part) if here.is_dir() else shutil.copy(here, copy / part)
        if mutant is not None:
            file = copy / "src" / "ropewalk" / mutant.file
            text = file.read_text(encoding="utf-8")
            if text.count(mutant.right) != 1:
                raise ValueError(
                    f"{mutant.name}: {mutant.right!r} is {text.count(mutant.right)} times in {mutant.file}"
                )
            file.write_text(text.replace(mutant.right, mutant.wrong), encoding="utf-8")
        paths = os.pathsep.join([str(copy / "src"), str(copy)])
        environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "-p", "no:cacheprovider", *tests]
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT
        )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended in {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, flags=re.MULTILINE)
    return found[1] if found and done.returncode else None


def whole(every: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    rows = [row for piece in every for row in piece["rows"]]
    mutants = [row for row in rows if row["file"] is not None]
    return (
        {
            "mutants not run": bars.bar(len(MUTANTS) - len(mutants), 0, at_least=False),
            "mutants that change a result and survive": bars.bar(
                sum(row["killed by"] is None for row in mutants if not row["same"]), 0, at_least=False
            ),
            "tests that fail where no result is changed": bars.bar(
                sum(row["killed by"] is not None for row in rows if row["same"]), 0, at_least=False
            ),
        },
        {"mutants": len(mutants), "killed": sum(row["killed by"] is not None for row in mutants)},
    )


if __name__ == "__main__":
    sys.exit(pieces.main(__doc__, "train_mutants", run, whole, trials=len(MUTANTS) + 1, piece=1, sources=SOURCES))
