"""`ropewalk estimate`: what a recipe would cost on a mesh of any size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.amounts import counted, duration
from ropewalk.cli.output import (
    WRONG,
    Json,
    Quiet,
    RecipeChanges,
    RecipeFile,
    examples,
    guarded,
    write,
    write_json,
    write_table,
)
from ropewalk.cli.recipes import located

if TYPE_CHECKING:
    from ropewalk.train.plan.estimate import Estimate

ON_CPU = (10, 27)
"""Per cent by which the memory of runs on a CPU differs that nothing was fitted on, in the median and at worst: see
campaigns/results/estimates.json."""
EPILOG = examples(
    "ropewalk estimate decoder --mesh dp=4",
    "ropewalk estimate decoder --mesh dp=2,cp=2 --gpu h100",
)


@guarded
def estimate(
    file: RecipeFile,
    changes: RecipeChanges = None,
    mesh: Annotated[
        str,
        typer.Option(
            metavar="SIDES", help="Arrange the ranks in this mesh, such as dp=128,tp=8,cp=4 (also dp_replicate)."
        ),
    ] = "dp=1",
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="a100|h100|h200|b200", help="Also estimate time and cost on this GPU, and whether it fits."
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Estimate the memory, compute and communication of one rank, without the hardware.

    The training code runs on meta tensors, in a simulated process group of the mesh's size. With --gpu, the command
    also estimates time and cost and, if the run does not fit, finds the smallest change that makes it fit (exit code
    1). Times assume 45 % of the GPU's stated peak speed and do not include stragglers or restarts.
    """
    from ropewalk.train.plan.estimate import estimate as count
    from ropewalk.train.plan.estimate import mesh_of, smaller
    from ropewalk.train.start.recipe import load_recipe

    recipe = load_recipe(located(file), changes or [])
    sides, ranks = mesh_of(mesh)
    found = count(recipe, sides, ranks, gpu)
    better = smaller(recipe, sides, ranks, gpu) if gpu is not None and found.fits is False else None
    if json:
        change = None if better is None else {"change": better[0], **_data(better[1])}
        write_json({**_data(found), "smallest_change": change})
    else:
        _say(found, quiet)
        if found.fits is False:
            write("")
            write(
                f"It fits with {better[0]}."
                if better
                else "None of the changes tried makes it fit: use more or larger GPUs."
            )
    if found.fits is False:
        raise typer.Exit(WRONG)


def _data(found: Estimate) -> dict[str, Any]:
    return {
        "ranks": found.ranks,
        "parameters": found.parameters,
        "assumed": found.assumed,
        "steps": found.cut.steps,
        "batch_tokens": found.cut.batch,
        "passes": found.cut.passes,
        "memory": found.memory,
        "flops_of_a_rank": found.measured.flops,
        "traffic": [traffic.__dict__ for traffic in found.measured.traffic],
        "device": found.device,
        "fits": found.fits,
        "step_seconds": found.step_seconds,
        "hours": found.hours,
        "dollars": found.dollars,
        "planned_in_seconds": round(found.measured.seconds, 1),
    }


def _say(found: Estimate, quiet: bool) -> None:
    cut, measured = found.cut, found.measured
    fits = {None: "", True: f", fits {found.device}", False: f", does not fit {found.device}"}[found.fits]
    weights = f"{found.parameters / 1e9:,.2f} B" if found.parameters >= 1e9 else f"{found.parameters / 1e6:,.1f} M"
    write(f"{weights} weights on {counted(found.ranks, 'rank')}: {size(found.memory['peak'])} per rank{fits}")
    steps, passes = counted(cut.steps, "step"), counted(cut.passes, "pass", "passes")
    write(f"{steps} of {cut.batch:,} tokens, {passes} of {cut.micro} x {cut.length:,} per rank")
    if found.step_seconds is not None and found.hours is not None and found.dollars is not None:
        whole = duration(found.hours * 3600)
        write(f"{found.step_seconds:,.2f} s per step, {whole}, about {found.dollars:,.0f} dollars")
    if found.assumed is not None:
        write(found.assumed)
    if quiet:
        return
    write("")
    write_table(("memory per rank", ""), [(part, size(held)) for part, held in found.memory.items()])
    if found.device is None:
        write("This estimate is for a CPU; measured runs differ by {} % in the median, {} % at worst.".format(*ON_CPU))
    write("")
    rows = [
        (
            each.axis,
            each.operation,
            f"{each.calls:,}",
            size(each.bytes),
            f"{found.message_seconds.get(each.axis, 0):.2f} s",
        )
        for each in measured.traffic
    ]
    headings = ("messages on axis", "operation", "calls", "bytes", "total for this axis")
    write_table(headings if found.device else headings[:-1], rows if found.device else [row[:-1] for row in rows])
    write("")
    write(f"{measured.flops / 1e12:,.2f} TFLOP per rank per step (estimated in {measured.seconds:.1f} s)")


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}"
        count /= 1024
    return f"{count:,.2f} GiB"
