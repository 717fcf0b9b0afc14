"""`ropewalk extend`: the best way to longer texts, chosen by measuring or named, then written and proved."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ropewalk.amounts import amount
from ropewalk.cli.extend.words import show, show_written, written_data
from ropewalk.cli.extend.writing import WRITTEN, beside, check, made_here, until_proved, weights_of, write_and_prove
from ropewalk.cli.output import (
    WRONG,
    Json,
    Quiet,
    can_be_written,
    examples,
    guarded,
    note,
    say_error,
    write,
    write_json,
)
from ropewalk.cli.scaling import local, named_scaling, status_line, tokens

if TYPE_CHECKING:
    from ropewalk.extend.tournament import Result
    from ropewalk.extend.tune.tuned import Tuning
    from ropewalk.scaling import Scaling

EPILOG = examples(
    "ropewalk extend MODEL longer --to 256 --text texts --documents 2 --tail 32 --quiet   # choose by measuring",
    "ropewalk extend MODEL longer --to 256 --text texts --documents 2 --tail 32 --html longer.html --quiet",
    "ropewalk extend MODEL longer --to 512 --scaling yarn",
    "ropewalk extend MODEL linear --to 512 --scaling linear --no-proof --json",
)
CHOOSING = {
    "--work": "work", "--documents": "documents", "--tail": "tail", "--budget": "budget", "--on": "on",
    "--workers": "workers", "--cheap": "cheap", "--search": "search", "--dtype": "dtype", "--html": "html",
}  # fmt: skip
"""Options of a tournament, which a named scaling has no use for."""
REACHING = ("yarn", "linear", "ntk")
"""Kinds of which a factor says how far they reach."""
AMONG_SEVERAL = {"--cheap": "cheap", "--search": "search"}
"""Those that it has no use for where it is trained and judged."""


@guarded
def extend(
    context: typer.Context,
    path: Annotated[str, typer.Argument(metavar="MODEL", help="Extend this model: a directory or a .gguf file.")],
    out: Annotated[
        str | None,
        typer.Argument(
            metavar="OUT",
            help="Write this directory or .gguf file, which must not exist; by default, MODEL-N in the current "
            "directory.",
        ),
    ] = None,
    *,
    to: Annotated[
        str, typer.Option("--to", metavar="N", help="Extend to this many tokens (16384, 128k; a k is 1,000).")
    ],
    text: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            help="Choose on these documents: .txt, .md, .jsonl, or directories; may be repeated. With --scaling, prove "
            "the result on this text; by default, on one that comes with ropewalk.",
        ),
    ] = None,
    scaling: Annotated[
        str | None,
        typer.Option(
            metavar="KIND", help="Write this scaling (yarn, linear, ntk, llama3) instead of choosing by measuring."
        ),
    ] = None,
    factor: Annotated[
        float | None, typer.Option(min=1, help="Scale by this factor; by default, N divided by the trained length.")
    ] = None,
    trained: Annotated[
        str | None, typer.Option(metavar="N", help="Assume this trained length; by default, the config's.")
    ] = None,
    documents: Annotated[
        int, typer.Option(min=2, help="Judge on this many documents; choosing needs half as many more.")
    ] = 16,
    tail: Annotated[int, typer.Option(min=8, help="Score this many tokens at the end of each document.")] = 512,
    work: Annotated[
        Path | None,
        typer.Option(metavar="DIRECTORY", help="Keep measurements and the result here; by default, OUT.work."),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(metavar="MINUTES", min=0, help="Stop after this many minutes; run the same command to continue."),
    ] = None,
    on: Annotated[
        Literal["local", "ray"],
        typer.Option(help="Run the workers on this machine (local) or on a Ray cluster (ray)."),
    ] = "local",
    workers: Annotated[int, typer.Option(min=1, help="Measure in this many processes.")] = 1,
    cheap: Annotated[
        bool,
        typer.Option(
            "--cheap/--no-cheap",
            help="Start with a cheap round of skipped positions, whose ranking is used only if it agrees with the full "
            "length; it saves little if few documents are judged.",
        ),
    ] = False,
    search: Annotated[
        int | None,
        typer.Option(
            metavar="PASSES",
            min=1,
            help="Search for better frequency divisors than any formula gives, in at most this many full-length passes "
            '(such as 336); needs pip install "ropewalk[search]".',
        ),
    ] = None,
    tune: Annotated[
        str | None,
        typer.Option(
            metavar="STEPS|MINUTESmin",
            help="Train the winner, or --scaling, on sequences of the trained length with skipped positions, for this "
            "many steps (200) or minutes (30min), and judge it again.",
        ),
    ] = None,
    dtype: Annotated[str | None, typer.Option(metavar="DTYPE", help="Compute in float32 or bfloat16.")] = None,
    engine: Annotated[
        Literal["ropewalk", "transformers"],
        typer.Option(
            help="Measure, and compute what the proof compares with, by this engine; transformers has architectures "
            "that ropewalk does not load."
        ),
    ] = "ropewalk",
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also write a self-contained HTML page to this file, in English and Chinese."
        ),
    ] = None,
    gguf: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also write the model as this GGUF file, in float32, and prove it with llama.cpp."
        ),
    ] = None,
    proof: Annotated[
        bool,
        typer.Option("--proof/--no-proof", help="Run the engines at the new length and compare their likelihoods."),
    ] = True,
    vllm: Annotated[
        Path | None, typer.Option(metavar="PYTHON", help="Also prove it with vLLM, in the environment of this python.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Choose by measuring how a model reads longer texts, write the result, and prove that engines compute it.

    Without --scaling, every known scaling is measured on your documents in two rounds, and the best three are judged on
    held-out documents. The verdict may be that cropping is as good, or that the model is best left as it is; then
    nothing is written. With --scaling, that one is written. OUT has the form of MODEL: a directory with a changed
    config.json, or a .gguf file with changed keys and the same weights, bit for bit; --gguf adds a file for llama.cpp
    to a directory. The exit code is 1 if an engine computes something else, or if the budget runs out before the
    verdict.
    """
    if vllm is not None and not proof:
        raise typer.BadParameter("it is only for the proof; leave out --no-proof", param_hint="'--vllm'")
    _found_before_hours_are_spent(html, vllm)
    from ropewalk.extend.choose import check_engine
    from ropewalk.extend.write import free

    ways: dict[str, Any] = {"gguf": gguf, "vllm": vllm, "silent": quiet or json, "engine": engine}
    longest = tokens(to, "--to")
    known = tokens(trained, "--trained") if trained else None
    local(path, "extend")
    chosen = None if scaling is None else _named(path, scaling, factor, known, longest)
    tuning = None if tune is None else _tuning(tune)
    if chosen is not None:
        _only_choosing(context, CHOOSING if tuning is None else AMONG_SEVERAL)
    if chosen is not None and tuning is None:
        if out is None:
            raise typer.BadParameter("say where to write: ropewalk extend MODEL OUT --scaling ...", param_hint="OUT")
        sample = _sample() if not text else _beginning(text, longest)
        if proof:
            check_engine(path, engine)
            with until_proved(path, out, longest, gguf) as noted:
                written, proofs = write_and_prove(path, out, chosen, longest, sample, **noted, **ways)
        else:
            free(path, out, gguf)
            written, proofs = write_and_prove(path, out, chosen, longest, None, **ways)
        if json:
            write_json(written_data(written, proofs, chosen, longest))
        elif quiet:
            write(str(written.path))
        else:
            show_written(written, proofs, chosen, longest, proof)
        check(written, proofs, gguf)
        return
    if factor is not None and chosen is None:
        raise typer.BadParameter("--factor needs a scaling; add --scaling yarn", param_hint="'--factor'")
    if not text:
        raise typer.BadParameter(
            "choosing and judging need documents: add --text PATH, or give --scaling without --tune",
            param_hint="'--text'",
        )
    place, own = out or _usual(path, longest), _own(path)
    kept = work or beside(place)
    if own and gguf is not None:
        raise typer.BadParameter(
            f"{path} is one of ropewalk's own models, for which nothing is written; leave out --gguf"
        )
    decide: dict[str, Any] = {
        "trained": known, "judges": documents, "tail": tail, "dtype": dtype, "engine": engine, "cheap": cheap,
        "search": search, "only": chosen, "tuning": tuning,
    }  # fmt: skip
    options = repr((longest, sorted(map(str, text)), decide))
    if not own and not made_here(kept, place, gguf, lambda: {"weights": weights_of(path), "options": options}):
        free(path, place, gguf)
    result = _choose(
        path, longest, text, kept, silent=quiet or json, minutes=budget, on=on, count=workers, **decide
    )  # fmt: skip
    told = not quiet and not json
    if told:
        show(result)  # now: writing and proving take minutes, and may fail
    written, proofs = None, []
    source, taken, applied = _taken(path, result)
    if applied is not None and not own:
        sample = _sample() if proof else None
        run = {"weights": result.model, "options": options}
        written, proofs = write_and_prove(
            source, place, applied, longest, sample, noted=kept / WRITTEN, run=run, **ways
        )  # fmt: skip
    said: dict[str, Any] = {"model": path, **result.to_dict(), "native": own, "written": None}
    if written is not None and taken is not None:
        said["written"] = written_data(written, proofs, taken, longest)
    if html is not None:
        from ropewalk.report.extension.page import page

        html.write_text(page(Path(path).name, said), encoding="utf-8")
    if json:
        write_json(said)
    elif quiet:
        write(result.sentence)
        if result.tuned is not None:
            write(result.tuned.sentence)
    elif taken is not None:
        write("")
        if written is not None:
            show_written(written, proofs, taken, longest, proof)
        elif source != path:
            write(f"This is one of ropewalk's own models. The tuned model is {source}")
        else:
            write(f"This is one of ropewalk's own models. In its config, set scaling to {taken.model_dump_json()}")
    if written is not None:
        check(written, proofs, gguf)


def _found_before_hours_are_spent(html: Path | None, vllm: Path | None) -> None:
    can_be_written(html, "--html", "extend.html")
    if vllm is not None:
        from ropewalk.evaluate.engines.vllm import version

        try:
            version(vllm)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="'--vllm'") from None


def _tuning(said: str) -> Tuning:
    """200 is steps, 30min is minutes."""
    from ropewalk.extend.tune.tuned import Tuning

    number = said.strip().removesuffix("min").strip()
    try:
        found = Tuning(minutes=float(number)) if said.strip().endswith("min") else Tuning(steps=int(amount(number)))
    except ValueError:
        found = Tuning()
    if not 0 < (found.steps or found.minutes or 0) < math.inf:
        raise typer.BadParameter(
            f"{said!r}: write steps, such as 200, or minutes, such as 30min", param_hint="'--tune'"
        )
    return found


def _taken(path: str, result: Result) -> tuple[str, Scaling | None, Scaling | None]:
    """From which checkpoint is written, with which scaling, and what of that is still to be applied; None: nothing."""
    if result.tuned is not None and result.tuned.kind == "take":
        from ropewalk.extend.tune.tune import applied, checkpoint

        tuned = result.tuned
        return str(checkpoint(tuned, Path(path))), tuned.judged.candidate.scaling, applied(tuned)
    scaling = None if result.winner is None else result.winner.scaling
    return path, scaling, scaling


def _choose(
    path: str, to: int, text: list[Path], work: Path, *, silent: bool, on: Any, count: int, **more: Any
) -> Result:
    from ropewalk.extend.asking import OutOfTime
    from ropewalk.extend.choose import choose
    from ropewalk.trials.jobs import Workers

    with status_line(silent) as show_line:

        def progress(stage: str, done: int, total: int) -> None:
            show_line(f"{stage}: {done:,} of {total:,}")

        def say(words: str) -> None:
            if not silent:
                note(words)

        try:
            return choose(
                path, to, text, work, workers=Workers(count, on), progress=progress, say=say, shown=not silent, **more
            )
        except OutOfTime as error:
            show_line("")
            say_error(f"not finished when the budget ran out ({error}); run the same command to continue")
            if (known := error.so_far) is not None:
                say(f"so far: {known.sentence}")
                if known.tuned is not None:
                    say(f"so far: {known.tuned.sentence}")
            raise typer.Exit(WRONG) from None


def _only_choosing(context: typer.Context, options: dict[str, str]) -> None:
    """An option of the tournament beside --scaling would be ignored, or choose another one: it is refused."""
    for option, name in options.items():
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(
                f"{option} is for choosing a scaling, and --scaling names one; leave one of them out"
            )


def _named(path: str, kind: str, factor: float | None, trained: int | None, to: int) -> Scaling:
    from ropewalk.checkpoints.inspect.lengths import counted_from, scaled_layer
    from ropewalk.checkpoints.resolve.read import read

    plan = read(path).plan
    layer = scaled_layer(plan)
    known = trained or (plan.stated if layer is None else counted_from(plan, layer))
    if known is None:
        raise ValueError("the config does not state the trained length; add --trained N")
    assumed = trained is not None and trained < to
    if plan.longest is not None and to <= plan.longest and factor is None and not assumed:
        raise ValueError(
            f"--to {to:,} is not longer than the {plan.longest:,} tokens of {path}; to scale it all the same, say from "
            "which length: --trained N"
        )
    if factor is not None and kind in REACHING and factor * known < to:
        note(
            f"a factor of {factor:g} reaches {round(factor * known):,} tokens from {known:,}, fewer than --to {to:,}; "
            f"leave out --factor for {to / known:.4g}"
        )
    return named_scaling(kind, factor or to / known, known, None if layer is None else layer.scaling)


def _usual(path: str, to: int) -> str:
    name = Path(path).resolve().name
    return f"{name.removesuffix('.gguf')}-{to}{'.gguf' if name.endswith('.gguf') else ''}"


def _own(path: str) -> bool:
    from ropewalk.checkpoints.resolve.native import MODEL_TYPE
    from ropewalk.checkpoints.resolve.read import read

    return read(path).model_type == MODEL_TYPE


def _beginning(paths: list[Path], tokens: int) -> str:
    """The documents in order, until there is text enough for this many tokens."""
    from ropewalk.evaluate.documents import texts

    found: list[str] = []
    left = 16 * tokens  # characters; tokens are shorter in the mean
    for _, text in texts(paths):
        found.append(text)
        left -= len(text)
        if left <= 0:
            break
    return "\n\n".join(found)


def _sample() -> str:
    from importlib.resources import files

    return files("ropewalk.data.sample").joinpath("english.txt").read_text(encoding="utf-8")
