"""`ropewalk export`: a checkpoint in the format another engine loads, proven equal to what it was made from; and models
out of a run's checkpoints."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ropewalk.cli.output import WRONG, AllowKind, Json, Quiet, examples, guarded, say_error, write, write_json

EPILOG = examples(
    "ropewalk export MODEL --format hf exported",
    "ropewalk export MODEL --format hf smaller --dtype bfloat16 --json",
    "ropewalk export RUN exported                  # a run of `ropewalk train`, stopped or finished",
    "ropewalk export RUN mean --average 2          # the mean of its last two checkpoints",
    "ropewalk export RUN first.gguf --format gguf --step 1",
)


class Form(StrEnum):
    hf = "hf"
    gguf = "gguf"


class Stored(StrEnum):
    float32 = "float32"
    float16 = "float16"
    bfloat16 = "bfloat16"


@guarded
def export(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="Convert this model: a directory, a .gguf file, or a run of `ropewalk train`."
        ),
    ],
    out: Annotated[str, typer.Argument(metavar="OUT", help="Write this directory or file, which must not exist.")],
    format: Annotated[
        Form | None,
        typer.Option(
            help="Write hf, a directory for transformers, or gguf, a file for llama.cpp. Required unless PATH is a "
            "run; by default, a run is written in the form that `ropewalk train` writes at its end."
        ),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Use a run's checkpoint of this step; by default, the newest."),
    ] = None,
    average: Annotated[
        int | None,
        typer.Option(min=1, metavar="K", help="Average a run's last K checkpoints, up to --step if given."),
    ] = None,
    dtype: Annotated[
        Stored | None,
        typer.Option(help="Store weights in this dtype; by default, the source's, or float32 if it is quantized."),
    ] = None,
    allow_kind: AllowKind = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Convert a checkpoint to another format and prove that the result is equal, or write the model of a stopped run.

    The result is read back, and its positions and logits are compared with the source's, before it is moved to OUT. If
    they differ, nothing is written and the exit code is 1. The source is never changed, and an existing OUT is never
    overwritten. Positions that the other format cannot express are refused (exit code 3). Chat templates, special
    tokens, license and sampling defaults are kept; what the other format has no place for is listed.

    From a run (runs/NAME), finished or not, it writes one checkpoint or the mean of several, in one process whatever
    the run's mesh. Checkpoints are verified before they are read.
    """
    from ropewalk.checkpoints.export.prove import NotProven
    from ropewalk.checkpoints.files.run_folder import has_export, is_run
    from ropewalk.checkpoints.files.sniff import kind_of, meant

    place, chosen, form = Path(path), (step, average) != (None, None), None if format is None else format.value
    options: dict[str, Any] = {"dtype": dtype and dtype.value, "kinds": allow_kind or ()}
    # With a format and nothing chosen, a run stands for its export as everywhere.
    of_run = is_run(place) and (chosen or form is None or not has_export(place))
    if not of_run:
        if kind_of(meant(place)) == "directory" and not (meant(place) / "config.json").exists():
            raise ValueError(f"{path} is neither a model nor a run: it has no config.json and no checkpoints folder")
        if chosen:
            raise typer.BadParameter(
                f"{path} is not a run of `ropewalk train`, and --step and --average choose among a run's checkpoints"
            )
        if form is None:
            raise typer.BadParameter("--format is missing: add --format hf or --format gguf")
    elif form is None and dtype is not None:
        raise typer.BadParameter("--dtype needs --format; without --format, weights are written as they were trained")
    try:
        if of_run:
            from ropewalk.train.checkpoint.saved_model import export_run

            done: Any = export_run(place, Path(out), step=step, average=average or 1, format=form, **options)
        else:
            from ropewalk.checkpoints.export.convert import export as exported

            assert form is not None
            done = exported(path, out, format=form, **options)
    except NotProven as error:
        say_error(f"{path}: {error}; nothing was written")
        raise typer.Exit(WRONG) from None
    if json:
        write_json({"path": path, "out": out, "format": form, **done.to_dict()})
    elif quiet:
        write(out)
    else:
        write(f"{out}\n{done}")
