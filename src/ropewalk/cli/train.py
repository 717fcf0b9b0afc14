"""`ropewalk train`: a recipe, run."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.amounts import counted, duration
from ropewalk.cli.output import (
    ENVIRONMENT,
    WRONG,
    AllowKind,
    Json,
    Quiet,
    RecipeChanges,
    RecipeFile,
    examples,
    guarded,
    note,
    say_error,
    write,
    write_json,
    write_table,
)
from ropewalk.cli.recipes import located

if TYPE_CHECKING:
    from ropewalk.train.config import Recipe
    from ropewalk.train.run import Result

INTERRUPTED = 130

EPILOG = examples(
    "ropewalk train decoder --fast                 # test every part, in seconds",
    "ropewalk train decoder --dry-run              # print the cost",
    "ropewalk train decoder --fast model.encoding=alibi --out runs/alibi",
)


@guarded
def train(
    file: RecipeFile,
    changes: RecipeChanges = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="SRC",
            help="Start from the weights of this checkpoint: a model directory, a .gguf file or a run.",
        ),
    ] = None,
    out: Annotated[
        str | None, typer.Option(metavar="DIR", help="Write the run to this folder; by default, runs/NAME.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume from the newest complete checkpoint.")] = False,
    fast: Annotated[
        bool,
        typer.Option("--fast", help="Test with two steps of a small copy of the model: train, save, resume, evaluate."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the cost of the run, and exit.")] = False,
    allow_drift: Annotated[
        bool, typer.Option("--allow-drift", help="Resume even if the recipe, data or versions differ.")
    ] = False,
    device: Annotated[
        str | None,
        typer.Option(metavar="cpu|cuda", help="Train on this device; by default, a GPU if there is one."),
    ] = None,
    allow_kind: AllowKind = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a model from a recipe, from scratch or from a checkpoint (fine-tuning, continued training).

    It runs in one process, or in eight with `torchrun --nproc-per-node 8 -m ropewalk train ...`, arranged by the
    recipe's mesh. Everything is written to the run's folder, measurements to metrics.jsonl. Ctrl-C or SIGTERM saves and
    stops, and --resume continues as if the run had not stopped.
    """
    from ropewalk.train.start.recipe import load_recipe

    if fast and (resume or allow_drift):
        raise typer.BadParameter("--fast begins a run of its own; leave out --resume and --allow-drift")
    folder = Path(out) if out else Path("runs") / (f"{Path(file).stem}-fast" if fast else Path(file).stem)
    kinds = allow_kind or []
    recipe = load_recipe(located(file), changes or [], start=start, run=None if fast else folder, kinds=kinds)
    if dry_run:
        _say_cost(recipe, json)
        return
    from ropewalk.distributed.world import NoDevice
    from ropewalk.train.checkpoint.recorded_writer import NO_ROOM
    from ropewalk.train.checkpoint.store import NotFinite, SaveFailed
    from ropewalk.train.guard.faults import Fault
    from ropewalk.train.guard.lease import LeaseLost, LeaseTaken

    try:
        result = _run(recipe, folder, resume, fast, allow_drift, device, kinds, shown=not quiet and not json)
    except (Fault, NotFinite, SaveFailed, LeaseLost) as error:
        say_error(str(error))
        raise typer.Exit(WRONG) from None
    except NoDevice as error:
        say_error(f"{error}: --device cpu")
        raise typer.Exit(ENVIRONMENT) from None
    except LeaseTaken as error:
        raise ValueError(str(error)) from None
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        say_error(str(error))
        raise typer.Exit(ENVIRONMENT) from None
    if result is None:
        return
    if json:
        write_json({"out": str(result.out), "step": result.step, "steps": result.steps, "valid": result.valid})
    elif not quiet:
        _say(result)
    if not result.finished:
        from ropewalk.checkpoints.files.run_folder import export_line

        said = f"stopped at step {result.step:,} of {result.steps:,}; continue with --resume"
        note(f"{said}, or write its model: {export_line(result.out)}")
        raise typer.Exit(INTERRUPTED if result.signal == signal.SIGINT else 0)


def _run(
    recipe: Recipe,
    folder: Path,
    resume: bool,
    fast: bool,
    allow_drift: bool,
    device: str | None,
    kinds: list[str],
    *,
    shown: bool,
) -> Result | None:
    """What came of it, on the first rank."""
    import os
    from importlib.util import find_spec

    if find_spec("grain") is None:
        raise ModuleNotFoundError("grain is not installed", name="grain")
    if device is None:
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
    if fast:
        from ropewalk.train.fast import clear
        from ropewalk.train.fast import fast as run_fast

        if int(os.environ.get("RANK", "0")) == 0:
            clear(folder)
        result = run_fast(recipe, folder, device=device, shown=shown, kinds=kinds)
    else:
        from ropewalk.train.run import train as run

        result = run(recipe, folder, resume=resume, allow_drift=allow_drift, device=device, shown=shown, kinds=kinds)
    return result if int(os.environ.get("RANK", "0")) == 0 else None


def _say(result: Result) -> None:
    valid = result.valid
    at = "" if valid.get("step", result.step) == result.step else f" at step {valid['step']:,}"
    said = f"validation{at} {valid['loss']:.4f} nats per token" if valid else "not measured"
    if bits := valid.get("bits_per_byte"):
        said += f", {bits:.4f} bits per byte"
    write(f"step {result.step:,} of {result.steps:,}: {said}")
    if valid.get("by_position"):
        shown = [(f"{part['from']:,}", f"{part['loss']:.4f}") for part in valid["by_position"]]
        write("")
        write_table(("from position", f"loss{at}"), shown)
    write("")
    write(f"record     {result.out / 'metrics.jsonl'}")
    if result.export is not None:
        write(f"model      {result.export}")


def _steps(found: dict[str, Any]) -> str:
    rows, passes = counted(found["rows"], "sequence"), counted(found["passes"], "pass", "passes")
    return f"{found['steps']:,} of {rows} in {passes}"


def _say_cost(recipe: Recipe, json: bool) -> None:
    from ropewalk.train.plan.estimate import dry_run

    found: dict[str, Any] = dry_run(recipe)
    if json:
        write_json(found)
        return
    from ropewalk.cli.estimate import size
    from ropewalk.yaml_text import to_yaml

    write(to_yaml(found["recipe"]))
    memory = [(f"memory, {part}", size(count)) for part, count in found["memory"].items()]
    rows = [
        ("parameters", f"{found['parameters']:,}"),
        ("steps", _steps(found)),
        ("operations per step", f"{found['flops']['step'] / 1e12:,.2f} TFLOP"),
        *memory,
        ("matrix products here", f"{found['peak_flops_per_second'] / 1e9:,.0f} GFLOP/s, measured"),
        ("time", f"about {duration(found['hours'] * 3600)}, at 30 % of that speed"),
    ]
    write_table(("one process, this machine", ""), rows)
    if found["assumed"]:
        write(found["assumed"])
