"""`ropewalk generate`: text from a prompt, token by token."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.cli.output import AllowKind, Json, Quiet, examples, guarded, note, write_json

if TYPE_CHECKING:
    from ropewalk.checkpoints.resolve.resolved import Resolved
    from ropewalk.checkpoints.tokens.tokenizer import Stream, Tokenizer
    from ropewalk.models import Transformer

INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""

MOST_BYTES = 100 << 20

EPILOG = examples(
    'ropewalk generate MODEL --prompt "Once upon a time" --max-tokens 16',
    'ropewalk generate MODEL --prompt "The sea is" --prompt "The sky is" --max-tokens 8 --temperature 0',
    "ropewalk generate MODEL --file story.txt --max-tokens 8 --seed 1 --json",
)


class Precision(StrEnum):
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


@guarded
def generate(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Load this model: a directory or a .gguf file.")],
    prompt: Annotated[
        list[str] | None, typer.Option(help="Use this text as the prompt; may be repeated for a batch.")
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH", help="Read a prompt from this file, unchanged; - is standard input; may be repeated."
        ),
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Generate at most this many tokens per prompt.")] = 128,
    temperature: Annotated[
        float, typer.Option(min=0, help="Divide logits by this; at 0, always take the most likely token.")
    ] = 0.7,
    top_k: Annotated[int | None, typer.Option(min=1, help="Sample from this many of the most likely tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Sample from the fewest tokens whose probabilities sum to at least this.")
    ] = None,
    min_p: Annotated[
        float | None, typer.Option(help="Sample from tokens at least this likely relative to the most likely one.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Use this seed for the first prompt and the next one for each further prompt; by default, random.",
        ),
    ] = None,
    dtype: Annotated[Precision | None, typer.Option(help="Compute in this dtype; by default, the file's.")] = None,
    allow_kind: AllowKind = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Generate text from a prompt.

    With one prompt, text is printed as it is generated; with several, each text is printed below its prompt when all
    are done. Prompts are not changed: they may contain a chat model's markers (<|im_start|>). An encoder-decoder reads
    the prompt and writes the answer. Ctrl-C stops and keeps what was generated (exit code 130).
    """
    prompts = [*(prompt or []), *map(_read, file or [])]
    if not prompts:
        raise typer.BadParameter("no prompt: give --prompt TEXT or --file PATH")
    tokenizer, resolved = _open(path, allow_kind or ())
    ids = [tokenizer.encode(text) for text in prompts]
    start = _start(resolved)
    first = _seed() if seed is None else seed

    from ropewalk.checkpoints.load.model import load

    model = load(path, dtype=dtype and dtype.value, kinds=allow_kind or ())
    _warn(model, 1 if start is not None else max(map(len, ids)), max_tokens)
    options: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature}
    options |= {"top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": first, "stop": tokenizer.stops}
    run = Run(tokenizer, prompts, ids, first, start is not None)
    shown = len(prompts) == 1 and not json
    began = time.perf_counter()
    run.all(model, options if start is None else {**options, "start": start}, aloud=shown)
    if json:
        write_json([run.entry(row) for row in range(len(prompts))])
    elif not shown:
        blocks = [run.text(row) if quiet else f"[{row + 1}] {_line(prompts[row])}\n{run.text(row)}" for row in run.rows]
        typer.echo(_safe("\n\n".join(blocks)))
    if sys.stderr.isatty() and not quiet and not json:
        count, seconds = sum(map(len, run.new)), time.perf_counter() - began
        note(f"{count:,} tokens in {seconds:.1f} s, {count / seconds:.1f} per second; seed {first}")
    if run.interrupted:
        raise typer.Exit(INTERRUPTED)


class Run:
    """A batch of texts as they grow, and why each ended."""

    def __init__(
        self, tokenizer: Tokenizer, prompts: list[str], ids: list[list[int]], seed: int, answers: bool
    ) -> None:
        self.tokenizer, self.prompts, self.ids, self.seed, self.answers = tokenizer, prompts, ids, seed, answers
        self.rows = range(len(prompts))
        self.new: list[list[int]] = [[] for _ in prompts]
        self.interrupted = False

    def all(self, model: Transformer, options: dict[str, Any], *, aloud: bool) -> None:
        from ropewalk.models.generate import generate as steps

        stream = self.stream(0)
        try:
            for step in steps(model, self.ids, **options):
                for row, token in enumerate(step):
                    if token is not None:
                        self.new[row].append(token)
                        if aloud:
                            typer.echo(_safe(stream.push(token)), nl=False)
        except KeyboardInterrupt:
            self.interrupted = True
        if aloud:
            typer.echo(_safe(stream.finish()))

    def stream(self, row: int) -> Stream:
        """A decoder's text continues its prompt: a first space counts. An answer is a text of its own."""
        return self.tokenizer.stream(() if self.answers else self.ids[row])

    def text(self, row: int) -> str:
        stream = self.stream(row)
        return "".join([stream.push(token) for token in self.new[row]]) + stream.finish()

    def entry(self, row: int) -> dict[str, Any]:
        new = self.new[row]
        stopped = bool(new) and new[-1] in self.tokenizer.stops
        return {
            "prompt": self.prompts[row],
            "prompt_tokens": len(self.ids[row]),
            "tokens": new,
            "text": self.text(row),
            # An encoder-decoder counts the positions of its answer, of which the start token has the first.
            "positions": len(new) + (1 if self.answers else len(self.ids[row])),
            "seed": self.seed + row,
            "stop": "stop token" if stopped else "interrupted" if self.interrupted else "max tokens",
        }


def _open(path: str, kinds: Collection[str]) -> tuple[Tokenizer, Resolved]:
    """What can be refused before the weights are read."""
    from ropewalk.checkpoints.resolve.read import read
    from ropewalk.checkpoints.tokens.tokenizer import of

    resolved = read(Path(path), kinds=kinds)
    if resolved.stack == "encoder":
        raise ValueError(
            f"{path}: the model is an encoder, which does not generate text. Give a decoder or an encoder-decoder"
        )
    if resolved.refusal is not None:
        raise ValueError(
            f"{path}: ropewalk can inspect it but not load it: {resolved.refusal}. Generate with transformers, "
            f"vLLM or llama.cpp; to see whether they agree on its positions, run ropewalk inspect {path}"
        )
    return of(path), resolved


def _start(resolved: Resolved) -> int | None:
    """The first token that an encoder-decoder writes; None of a decoder."""
    if resolved.stack == "decoder":
        return None
    from ropewalk.checkpoints.tokens.ends import answer_start

    found = answer_start(resolved.config)
    if found is None:
        raise ValueError(f"{resolved.where}: decoder_start_token_id is missing; it is the first token of an answer")
    return found


def _read(name: str) -> str:
    from ropewalk.checkpoints.files.strict_json import read_bytes

    data = sys.stdin.buffer.read() if name == "-" else read_bytes(Path(name), MOST_BYTES)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: byte {error.start} is not UTF-8; a prompt is text") from None


def _warn(model: Transformer, longest: int, max_tokens: int) -> None:
    known = model.plan.longest
    if known is not None and longest + max_tokens > known:
        note(
            f"up to {longest + max_tokens:,} positions, but the model was trained for {known:,}: "
            "quality may degrade beyond that"
        )


def _seed() -> int:
    """One that can be typed again."""
    import random

    return random.SystemRandom().randrange(2**31)


def _line(text: str, most: int = 72) -> str:
    words = " ".join(text.split())
    return words if len(words) <= most else words[: most - 3] + "..."


def _safe(text: str) -> str:
    """A model can say anything, a terminal's control sequences too; those are shown, not obeyed."""
    if not sys.stdout.isatty():
        return text
    return "".join(c if c in "\n\t" or ord(c) >= 0xA0 or 0x20 <= ord(c) < 0x7F else f"\\x{ord(c):02x}" for c in text)
