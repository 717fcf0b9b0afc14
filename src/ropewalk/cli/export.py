"""`ropewalk export`: a checkpoint in the format another engine loads, proven equal to what it was made from."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from ropewalk.cli.output import WRONG, AllowKind, Json, Quiet, examples, guarded, say_error, write, write_json

EPILOG = examples(
    "ropewalk export MODEL --format hf exported",
    "ropewalk export MODEL --format hf smaller --dtype bfloat16 --json",
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
    path: Annotated[str, typer.Argument(metavar="PATH", help="A model's directory, or a .gguf file.")],
    out: Annotated[str, typer.Argument(metavar="OUT", help="Write this directory or file; it must not exist.")],
    format: Annotated[
        Form, typer.Option(help="Write hf, a directory for transformers, or gguf, a file for llama.cpp.")
    ],
    dtype: Annotated[
        Stored | None,
        typer.Option(help="Store weights in this dtype; the default is the source's, or float32 for a quantized one."),
    ] = None,
    allow_kind: AllowKind = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Convert a checkpoint to another format, and prove the result equal.

    What was written is read back, and its positions and logits compared with the source's, before it is put at OUT.
    Where they differ nothing is written and the exit code is 1. The source is never changed, and an existing OUT is
    never overwritten. Positions that the other format cannot express are refused (3). Chat templates, special
    tokens, license and sampling defaults are kept; what the other format has no place for is named.
    """
    from ropewalk.checkpoints.export.convert import NotProven
    from ropewalk.checkpoints.export.convert import export as exported

    try:
        proof = exported(path, out, format=format.value, dtype=dtype and dtype.value, kinds=allow_kind or ())
    except NotProven as error:
        say_error(f"{path}: {error}; nothing was kept")
        raise typer.Exit(WRONG) from None
    if json:
        write_json({"path": path, "out": out, "format": format.value, **proof.to_dict()})
    elif quiet:
        write(out)
    else:
        write(f"{out}\n{proof}")
