"""`ropewalk eval`: does a model use its context?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.cli.output import (
    AllowKind,
    Json,
    Quiet,
    can_be_written,
    examples,
    guarded,
    note,
    write,
    write_json,
    write_table,
)
from ropewalk.cli.scaling import Left, local, named_scaling, status_line, tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ropewalk.evaluate.battery import Report
    from ropewalk.evaluate.documents import Document
    from ropewalk.evaluate.passage import Engine
    from ropewalk.scaling import Scaling

EPILOG = examples(
    "ropewalk eval MODEL --text texts --lengths 64,128 --tail 32",
    "ropewalk eval MODEL --text texts --lengths 64,128,256 --tail 32 --scaling yarn --factor 2 --json",
    "ropewalk eval MODEL --text texts --lengths 64,128 --tail 32 --html eval.html --quiet",
)
MOST = 24
"""Documents measured unless told otherwise: 16 is the fewest that tell known effects from noise."""


@guarded
def evaluate(
    path: Annotated[str, typer.Argument(metavar="MODEL", help="Measure this model: a directory or a .gguf file.")],
    text: Annotated[
        list[Path],
        typer.Option(
            metavar="PATH", help="Measure on these documents: .txt, .md, .jsonl, or directories; may be repeated."
        ),
    ],
    lengths: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...",
            help="Measure at these context lengths; by default, a quarter, half and all of the trained length and, "
            "with --factor, that many times the trained length.",
        ),
    ] = None,
    scaling: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Scale RoPE's frequencies by yarn, linear, ntk, llama3 or dynamic."),
    ] = None,
    factor: Annotated[float | None, typer.Option(min=1, help="Scale by this factor.")] = None,
    trained: Annotated[
        str | None, typer.Option(metavar="N", help="Assume this trained length; by default, the config's.")
    ] = None,
    documents: Annotated[int, typer.Option(min=2, help="Measure on at most this many documents.")] = MOST,
    tail: Annotated[int, typer.Option(min=8, help="Score this many tokens at the end of each document.")] = 512,
    dtype: Annotated[str | None, typer.Option(metavar="DTYPE", help="Compute in float32 or bfloat16.")] = None,
    store: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep measurements here; by default, in the user's cache.")
    ] = None,
    engine: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Compute with this engine: ropewalk; transformers, which has architectures that ropewalk does not "
            "load; llama.cpp, for a .gguf file, or llama.cpp:FILE if MODEL is a directory; or vllm:PYTHON, the python "
            "of an environment that has vLLM. May be repeated to compare engines; by default, ropewalk.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also write a self-contained HTML page to this file, in English and Chinese."
        ),
    ] = None,
    allow_kind: AllowKind = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure whether a model uses its context: score the same last tokens with more and more text before them.

    The baseline is cropping: dropping the far text. A gain over cropping means that the model uses the far text; the
    benefit of that text is what it costs to replace it with another document. Intervals are 95 %, over documents; fewer
    than 8 documents give no verdict. Measurements are stored by a hash of model, text and scaling, so the same command
    continues a stopped run.
    """
    from dataclasses import replace

    from ropewalk.checkpoints.files.sniff import meant
    from ropewalk.checkpoints.inspect.lengths import scaled_layer
    from ropewalk.checkpoints.resolve.read import read as read_config
    from ropewalk.checkpoints.tokens.tokenizer import of
    from ropewalk.evaluate import battery
    from ropewalk.evaluate.checkpoint import check_name, opened
    from ropewalk.evaluate.documents import read
    from ropewalk.evaluate.engines.begun import start_of
    from ropewalk.evaluate.store import Stored

    local(path, "eval")
    can_be_written(html, "--html", "eval.html")
    names = engine or ["ropewalk"]
    try:
        for name in names:
            check_name(name)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--engine'") from None
    computes, encode = opened(path, engine=names[0], dtype=dtype, kinds=allow_kind or ())
    digest, known = computes.model, tokens(trained, "--trained") if trained else computes.trained
    if known is None:
        raise ValueError("the config does not state the trained length; add --trained N")
    rotating = scaled_layer(read_config(meant(Path(path)), kinds=allow_kind or ()).plan)
    under = _scaling(scaling, factor, known, None if rotating is None else rotating.scaling)
    wanted = _lengths(lengths, known, factor, tail)
    spell = of(meant(Path(path))).decode
    found = [
        replace(one, bytes=len(spell(one.tokens.tolist()).encode()))  # `read` has the mean of the whole text
        for one in _different(read(text, encode, longest=wanted[-1], most=documents))
    ]
    if any(name.startswith("llama.cpp") for name in names):
        found = _whole_characters(found, tail, spell)

    def measured(computes: Engine, encode: Callable[[str], Sequence[int]]) -> Report:
        kept = Stored(computes, store or _cache() / f"{computes.model[:16]}.jsonl")
        with status_line(quiet or json) as show:
            left = Left()

            def progress(stage: str, done: int, total: int) -> None:
                show(left(stage, done, total))

            return battery.evaluate(
                kept, found, encode, trained=known, lengths=wanted, scaling=under, tail_tokens=tail, progress=progress
            )

    reports, first = [measured(computes, encode)], start_of(computes)
    for name in names[1:]:
        del computes  # one model in memory at a time
        computes, encode = opened(path, engine=name, dtype=dtype, kinds=allow_kind or ())
        if start_of(computes) != first:
            note(
                f"texts begin otherwise for {computes.name} (tokens {start_of(computes)}) than for {reports[0].engine} "
                f"({first}): what differs between them is not the engine alone. Give both the same tokenizer"
            )
        reports.append(measured(computes, encode))
    report = reports[0]
    engines = battery.by_engine(reports)
    said = {"model": path, "digest": digest, **report.to_dict(), "engines": engines}
    if html is not None:
        from ropewalk.report.eval_page import page

        html.write_text(page(Path(path).name, said), encoding="utf-8")
    if json:
        write_json(said)
    elif quiet:
        write(report.verdict)
    else:
        _show(report)
        if len(reports) > 1:
            _show_engines(engines)


def _scaling(kind: str | None, factor: float | None, trained: int, now: Scaling | None) -> Scaling | None:
    if kind is not None:
        return named_scaling(kind, factor, trained, now)
    if factor is not None:
        raise typer.BadParameter("--factor needs a scaling; add --scaling yarn", param_hint="'--factor'")
    return None


def _lengths(given: str | None, trained: int, factor: float | None, tail: int) -> list[int]:
    if given is not None:
        found = sorted({tokens(one, "--lengths") for one in given.split(",")})
        if found[0] <= tail:
            raise typer.BadParameter(
                f"{found[0]:,} tokens have nothing before a tail of {tail:,}; give longer ones, or a smaller --tail",
                param_hint="'--lengths'",
            )
        return found
    usual = {trained // 4, trained // 2, trained, *([round(trained * factor)] if factor else [])}
    found = sorted(length for length in usual if length > tail)
    if not found:
        raise typer.BadParameter(
            f"the {max(usual):,} tokens that are measured unless --lengths says more have nothing before a tail of "
            f"{tail:,}; give a smaller one, such as --tail {max(1, max(usual) // 8)}, or longer --lengths",
            param_hint="'--tail'",
        )
    return found


def _different(read: Sequence[Document]) -> list[Document]:
    """Each text once: the unit of every interval is the document, and a copy would count as another."""
    found: dict[bytes, Document] = {}
    for one in read:
        first = found.setdefault(one.tokens.tobytes(), one)
        if first is not one:
            note(f"skipped {one.name}: it is the same text as {first.name}")
    return list(found.values())


def _whole_characters(found: Sequence[Document], tail: int, spell: Callable[[Sequence[int]], str]) -> list[Document]:
    """Without the documents that llama.cpp cannot score, which every engine leaves out then: they are paired."""
    from ropewalk.checkpoints.tokens.tokenizer import BROKEN

    kept = []
    for one in found:
        if any(BROKEN in spell([token]) for token in one.tokens[-tail:].tolist()):
            note(
                f"skipped {one.name}: llama.cpp cannot score parts of characters, and its last {tail:,} tokens hold one"
            )
        else:
            kept.append(one)
    return kept


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ropewalk" / "eval"


def _show(report: Report) -> None:
    write(report.verdict)
    write("")
    tail = report.tail
    rows = []
    for length in tail.lengths:
        crop = f"{_mean(tail.crop[length]):.4f}" if length in tail.crop else "-"
        rows.append((f"{length:,}", crop, f"{_mean(tail.loss[length]):.4f}", str(tail.gain(length))))
    under = "as it is" if report.scaling is None else report.scaling["kind"]
    write_table(("context", "cropped", under, f"gain over cropping to {tail.best_crop:,}"), rows)
    write("")
    write(f"benefit of the far text  {tail.benefit}")
    write(f"harm of the length       {tail.harm}")
    if report.scaling is not None:
        write(f"cost on short text       {tail.short_cost}")
    if tail.far_gain is not None:
        longest = tail.crop_lengths[-1]
        over = "" if longest == tail.best_crop else f" over cropping to {longest:,}"
        some = "" if tail.far_gain.documents == len(report.documents) else f" ({tail.far_gain.documents} documents)"
        write(f"gain on far tokens       {tail.far_gain}{over}{some}")
    if report.needles:
        write("")
        found = [
            (f"{one.length:,}", f"{one.share:.0%}", "{:.0%} to {:.0%}".format(*one.interval), f"{len(one.found)}")
            for one in report.needles
        ]
        write_table(("needles at length", "found", "95 %", "texts"), found)
    write("")
    read = [
        (one.protocol, f"{one.length:,}", f"{one.stride:,}", f"{one.to_dict()['perplexity']:.3f}",
         f"{one.to_dict()['bits_per_byte']:.4f}", f"{len(one.nats)}")
        for one in report.perplexity
    ]  # fmt: skip
    if read:
        write_table(("perplexity", "window", "stride", "", "bits per byte", "texts"), read)
    for one in report.not_measured:
        write(f"not measured: {one}")
    write("")
    left = f"; left out: {', '.join(report.left_out)}" if report.left_out else ""
    count = f"losses and gains on {len(report.documents)} documents"
    write(f"{count}, nats per token, {report.engine}; {report.rule}{left}")


def _show_engines(rows: list[dict[str, Any]]) -> None:
    write("")
    shown = [
        (one["engine"], f"{one['loss']:.4f}", *(f"{one[key]['mean']:+.6f}" for key in ("apart", "gain", "short_cost")))
        for one in rows
    ]
    write_table(("engine", "loss", "difference from first", "gain", "short cost"), shown)
    for one in rows[1:]:
        for what in one["not_measured"]:
            write(f"not measured by {one['engine']}: {what}")


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
