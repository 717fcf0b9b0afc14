"""`ropewalk extend`: a checkpoint with a scaling for longer texts, written and proved."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.amounts import amount
from ropewalk.cli.output import WRONG, Json, Quiet, examples, guarded, say_error, write, write_json, write_table
from ropewalk.cli.scaling import named_scaling, status_line

if TYPE_CHECKING:
    from ropewalk.extend.prove import Proof
    from ropewalk.extend.write import Written
    from ropewalk.scaling import Scaling

EPILOG = examples(
    "ropewalk extend MODEL longer --to 512 --scaling yarn",
    "ropewalk extend MODEL linear --to 512 --scaling linear --no-proof --json",
)


@guarded
def extend(
    path: Annotated[str, typer.Argument(metavar="MODEL", help="A model directory or a .gguf file.")],
    out: Annotated[str, typer.Argument(metavar="OUT", help="Write this directory or .gguf file; it must not exist.")],
    to: Annotated[str, typer.Option("--to", metavar="N", help="Write it for texts of this many tokens (16384, 128k).")],
    scaling: Annotated[
        str, typer.Option(metavar="KIND", help="Scale RoPE's frequencies by yarn, linear, ntk or llama3.")
    ],
    factor: Annotated[
        float | None, typer.Option(min=1, help="Scale by this factor; by default, N over the trained length.")
    ] = None,
    trained: Annotated[
        str | None, typer.Option(metavar="N", help="Take this for the trained length; by default, the config's.")
    ] = None,
    text: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Prove it on this text; by default, on one that comes with it.")
    ] = None,
    proof: Annotated[
        bool, typer.Option("--proof/--no-proof", help="Compare the likelihoods of engines at the new length.")
    ] = True,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a checkpoint with a scaling for longer texts, and prove that engines compute it.

    The scaling is the one you name: measure it first, with `ropewalk eval MODEL --scaling yarn --factor 2`. OUT has the
    form of MODEL: a directory with a changed config.json, or a .gguf file with changed keys and the same weights, bit
    for bit. The exit code is 1 where an engine computes something else.
    """
    from ropewalk.checkpoints.resolve.read import read
    from ropewalk.extend.write import write as write_checkpoint

    longest = int(amount(to))
    plan = read(path).plan
    known = int(amount(trained)) if trained else plan.trained or plan.stated
    if known is None:
        raise ValueError("the config does not say how long the model was trained; write --trained N")
    chosen = named_scaling(scaling, factor or longest / known, known)
    written = write_checkpoint(path, out, chosen, longest)
    found: list[Proof] = []
    if proof:
        from ropewalk.extend.prove import prove

        sample = _sample() if text is None else text.read_text(encoding="utf-8")
        with status_line(quiet or json) as show:
            found = prove(Path(path), written.path, chosen, longest, sample, progress=show)
    if json:
        write_json(_data(written, found, chosen))
    elif quiet:
        write(str(written.path))
    else:
        _show(written, found, chosen, longest, proof)
    for one in filter(lambda one: one.failed, found):
        say_error(f"{one.engine} does not compute what was meant; {written.path} is left for you to look at")
        raise typer.Exit(WRONG)


def _sample() -> str:
    from importlib.resources import files

    return files("ropewalk.data.sample").joinpath("english.txt").read_text(encoding="utf-8")


def _data(written: Written, found: list[Proof], scaling: Scaling) -> dict[str, Any]:
    return {
        "path": str(written.path),
        "scaling": scaling.model_dump(mode="json"),
        "engines": written.engines,
        "left_out": list(written.left_out),
        "proofs": [asdict(one) | {"failed": one.failed} for one in found],
    }


def _show(written: Written, found: list[Proof], scaling: Scaling, to: int, proof: bool) -> None:
    write(f"{written.path}: {scaling} for {to:,} tokens")
    for name, why in written.engines.items():
        write(f"  {name:<14} {'reads it as meant' if why is None else why}")
    if written.left_out:
        write(f"  not copied: {', '.join(written.left_out)}")
    write("")
    if not proof:
        write("not proved: --no-proof was given")
    rows = []
    for one in found:
        if one.not_run is not None:
            rows.append((one.engine, "-", "-", f"not run: {one.not_run}"))
        else:
            says = f"within {one.bound:g} of" if not one.failed else f"more than {one.bound:g} from"
            rows.append((one.engine, f"{one.mean:.1e}", f"{one.most:.1e}", f"{says} {one.against}"))
    if rows:
        write_table(("engine", "mean", "one token", f"nats by which the last tokens of {to:,} differ"), rows)
    write("")
    name = shlex.quote(str(written.path))
    if written.path.is_dir():
        write(f"vLLM       vllm serve {name} --max-model-len {to}")
        write(f"SGLang     python -m sglang.launch_server --model-path {name} --context-length {to}")
        write(f"llama.cpp  ropewalk export {name} --format gguf OUT.gguf; llama-server -m OUT.gguf -c {to}")
    else:
        write(f"llama.cpp  llama-server -m {name} -c {to}")
        write(f"others     ropewalk export {name} --format hf OUT")
