"""A checkpoint in another form: read, written beside its place, read back, proven equal, and only then put in place.

    export("SmolLM2.gguf", "SmolLM2-hf", format="hf")                      what transformers loads
    export("SmolLM2-hf", "SmolLM2.gguf", format="gguf", dtype="float16")   what llama.cpp loads

What is at OUT is whole and proven, or there is no OUT. The source is opened for reading alone and must be the same at
the end as at the start.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.export import place, prove
from ropewalk.checkpoints.export.prove import NotProven, Proof
from ropewalk.checkpoints.export.vocabulary import compare as compare_tokenizers
from ropewalk.checkpoints.export.vocabulary import compare_about
from ropewalk.checkpoints.load.model import DTYPES
from ropewalk.checkpoints.load.stream import Checkpoint, Rounding, open_checkpoint, shards

Form = Literal["hf", "gguf"]
WRITTEN = ("float32", "float16", "bfloat16")
HASHED = 1 << 20
"""Files up to this size are compared by their hash too; weights by size and time."""


def export(
    path: str | Path, out: str | Path, *, format: Form, dtype: str | None = None, kinds: Collection[str] = ()
) -> Proof:
    """Write the checkpoint at `path` as a model directory or a GGUF file, and prove it equal.

    dtype: of the tensors; without it they keep theirs, and weights of a quantised file become float32.
    kinds: encodings of other packages to import where a model of our own names them, to say why it is not written.
    """
    if format not in get_args(Form):
        raise ValueError(
            f"no format {format!r}: there are hf (a directory for transformers) and gguf (a file for llama.cpp)"
        )
    if dtype is not None and dtype not in WRITTEN:
        raise ValueError(f"dtype {dtype!r} is not written; there are {', '.join(WRITTEN)}")
    source = open_checkpoint(path, kinds)
    target = place.free(Path(out), source.path, format)
    stamps = Stamps.of(source)
    with place.beside(target) as made:
        stored, change = _write(source, made, format, dtype)
        proof = _prove(source, made, stored, change, dtype)
        stamps.check(source)
    return proof


def _write(
    source: Checkpoint, out: Path, format: Form, dtype: str | None
) -> tuple[dict[str, torch.dtype], Rounding | None]:
    """What each tensor is stored as, and what that does to its values where it rounds them."""
    given = source.dtypes()
    if format == "hf":
        # A second copy of a tensor is rounded as the first is: it must equal that.
        given |= {copy: dtype for copy, dtype in source.rest().items() if source.copies.get(copy) in given}
    asked = given if dtype is None else dict.fromkeys(given, DTYPES[dtype])
    if format == "hf":
        from ropewalk.checkpoints.export.hf import write_hf

        out.mkdir()
        write_hf(source, out, asked)
        stored = asked
    else:
        from ropewalk.checkpoints.export.gguf import stored_as, write_gguf

        stored = stored_as(source, asked)
        write_gguf(source, out, stored)
    rounded = {name for name in given if torch.promote_types(given[name], stored[name]) != stored[name]}

    def change(name: str, tensor: Tensor) -> Tensor:
        return tensor.to(stored[name]) if name in rounded else tensor

    return stored, change if rounded else None


def _prove(
    source: Checkpoint, out: Path, stored: dict[str, torch.dtype], change: Rounding | None, dtype: str | None
) -> Proof:
    try:
        written = open_checkpoint(out)
    except ValueError as error:
        raise NotProven(f"what was written cannot be read back: {error}") from error
    prove.compare_tensors(source, written, change)
    ulps, notes = prove.compare_plans(source.resolved.plans, written.resolved.plans)
    try:
        tokenizer = compare_tokenizers(source, written)
        metadata, left_out = compare_about(source, written)
    except ValueError as error:
        raise NotProven(str(error)) from error
    layouts = tuple(_layout(checkpoint) for checkpoint in (source, written))
    kinds = [str(value).removeprefix("torch.") for value in stored.values()]
    named = dtype or max(dict.fromkeys(kinds), key=kinds.count)
    difference, rounding, texts = 0.0, None, prove.texts(source)
    for text in texts:
        before = prove.logits(source, text, change)
        after = prove.logits(written, text)
        worst = prove.compare_logits(before, after, reordered=layouts[0] != layouts[1])
        difference = max(difference, worst)
        if change is not None:
            plain = prove.logits(source, text)
            rounding = max(rounding or 0.0, prove.compare_rounding(plain, before, named))
    plan = source.resolved.plan
    return Proof(
        tensors=len(source.names),
        parameters=sum(source.model.get_parameter(name).numel() for name in source.found),
        dtype=named,
        layouts=(layouts[0], layouts[1]),
        frequency_ulps=ulps,
        lengths={name: getattr(plan, name) for name in ("trained", "stated", "extended", "table")},
        tokens=sum(text.tokens.numel() for text in texts),
        farthest=max(int(text.at.index.max()) for text in texts),
        difference=difference,
        rounding=rounding,
        tokenizer=tokenizer,
        metadata=metadata,
        left_out=left_out,
        notes=notes,
    )


def _layout(checkpoint: Checkpoint) -> str:
    found = dict.fromkeys(layer.layout for layer in checkpoint.resolved.plan.layers if layer.layout is not None)
    return " and ".join(found) or "-"


@dataclass(frozen=True)
class Stamps:
    """What the source's files looked like when they were first read."""

    files: dict[Path, tuple[int, int, str]]

    @classmethod
    def of(cls, source: Checkpoint) -> Stamps:
        texts = sorted(path for kind in ("*.json", "*.jinja", "*.md") for path in source.path.glob(kind))
        return cls({path: _stamp(path) for path in ([source.path] if source.gguf else [*shards(source.path), *texts])})

    def check(self, source: Checkpoint) -> None:
        for path, before in self.files.items():
            if not path.exists() or _stamp(path) != before:
                raise BadInput(
                    path, "source", "changed while it was read", "wait until it is written, then export again"
                )


def _stamp(path: Path) -> tuple[int, int, str]:
    status = path.stat()
    text = hashlib.sha256(path.read_bytes()).hexdigest() if status.st_size <= HASHED else ""
    return status.st_size, status.st_mtime_ns, text
