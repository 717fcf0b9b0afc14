"""`ropewalk compare`: a study, run and told."""

from __future__ import annotations

import json as json_text
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ropewalk.cli.compare.words import not_done, show
from ropewalk.cli.output import WRONG, Json, Quiet, examples, guarded, note, say_error, typed, write_json, write_table

if TYPE_CHECKING:
    from ropewalk.compare.study import Study
    from ropewalk.trials.jobs import Workers

EPILOG = examples(
    "ropewalk compare study.yaml --dry-run             # list the trials and their cost",
    "ropewalk compare study.yaml --workers 1 --out studies/mine",
)


@guarded
def compare(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="STUDY", help="Read the study from this YAML file: a recipe, its arms, the measurements."
        ),
    ],
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Override a setting of the study.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep trials and results here; by default, next to the study.")
    ] = None,
    on: Annotated[
        str, typer.Option(metavar="local|ray", help="Run trials on this machine (local) or on a Ray cluster (ray).")
    ] = "local",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Run this many trials at once; by default, one per core.")
    ] = None,
    shard: Annotated[
        str, typer.Option(metavar="I/N", help="Run only shard I of N; for job arrays of any scheduler.")
    ] = "0/1",
    most: Annotated[int | None, typer.Option("--trials", min=1, help="Stop after this many trials.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the trials and their cost, and exit.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train several models that differ in one thing, and report which is better, at what, and how certain that is.

    Each trial is identified by a hash of everything it depends on and is never run twice: the same command resumes a
    stopped study, and adding an arm or a seed runs only what is new. Arms that are not comparable are refused.
    """
    from ropewalk.compare.driver import Shard
    from ropewalk.compare.study import load_study

    if on not in ("local", "ray"):
        raise typer.BadParameter(f"{on!r} is neither local nor ray", param_hint="'--on'")
    with typed():
        mine = Shard.read(shard)
    study, folder = load_study(file, changes), out or file.with_suffix("")
    if dry_run:
        _say_plan(study, folder, workers, json)
        return
    found = run_study(study, folder, on_workers("ray" if on == "ray" else "local", workers), mine, most, quiet or json)
    if json:
        write_json(found)
        if said := not_done(found):
            note(said)
    else:
        show(found, folder, quiet)


def on_workers(on: Literal["local", "ray"], count: int | None) -> Workers:
    from ropewalk.trials.jobs import Workers

    # Trials have one thread each unless the study says otherwise; a thread pool per process would fight for cores.
    return Workers(count or os.cpu_count() or 1, on, {"OMP_NUM_THREADS": "1"})


def run_study(study: Study, out: Path, workers: Workers, shard: Any, most: int | None, silent: bool) -> dict[str, Any]:
    from ropewalk.cli.compare.live_table import table_of_trials
    from ropewalk.compare.driver import run
    from ropewalk.compare.result import compared
    from ropewalk.compare.run_trial import Stopped
    from ropewalk.compare.tables import write_tables
    from ropewalk.report.comparison.page import page
    from ropewalk.train.checkpoint.store import SaveFailed
    from ropewalk.train.guard.lease import LeaseLost, LeaseTaken

    try:
        with table_of_trials(silent) as watcher:
            plan, results = run(study, out, workers, shard, watcher, most)
    except Stopped as stop:
        note(str(stop))
        # As a shell reports the signal.
        raise typer.Exit(128 + stop.signal if stop.signal else WRONG) from None
    except (LeaseLost, SaveFailed) as error:
        say_error(str(error))
        raise typer.Exit(WRONG) from None
    except LeaseTaken as error:
        raise ValueError(str(error)) from None
    found = compared(plan, results, out)
    # Shards that end together write one each.
    partial = out / f"study.json.{os.getpid()}.part"
    partial.write_text(json_text.dumps(found, indent=1, allow_nan=False), encoding="utf-8")
    partial.replace(out / "study.json")
    write_tables(found, out / "csv")
    (out / "report.html").write_text(page(study_name(out), found), encoding="utf-8")
    return found


def study_name(out: Path) -> str:
    return out.absolute().name


def _say_plan(study: Study, out: Path, workers: int | None, json: bool) -> None:
    from ropewalk.compare.cost import expected, said_before
    from ropewalk.compare.driver import results_in
    from ropewalk.compare.plan import Plan

    plan, results = Plan(study), results_in(out)
    needed, missing = plan.needed(results), plan.missing(results)
    if json:
        seconds = expected(missing, results)[0] if missing else 0.0
        each = [{"hash": one.hash, "name": one.name, "done": one.hash in results} for one in needed]
        write_json({"trials": each, "seconds": seconds})
        return
    write_table(("trial", "name", ""), [(t.hash, t.name, "done" if t.hash in results else "") for t in needed])
    if missing:
        note(said_before(needed, missing, results, on_workers("local", workers).count))
