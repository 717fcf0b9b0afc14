"""One generated table: two models in one process, eager and compiled, with and without autocast, one token, one
sequence, packed and padded, with and without a cache; for every encoding and every preset, against the plain answer of
one eager model that reads one document in one pass.

What went wrong here before was never one of these alone. Positions begin far from 0 wherever the encoding has no table.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor

from ropewalk import positions
from ropewalk.models import PRESETS, Memory, Transformer, TransformerConfig, preset
from ropewalk.positions import PAD, Positions
from tests.closeness import assert_close
from tests.encodings.rows import ROWS

SIZES: dict[str, Any] = {"vocabulary": 40, "width": 32, "heads": 2, "layers": 1, "hidden": 32}
FAR, LIMIT, NEAR_LIMIT = 3000, 3040, 64


@dataclass(frozen=True)
class Subject:
    """Two models of one shape: the same weights where the encoding can differ, other weights where it cannot."""

    name: str
    first: TransformerConfig
    second: TransformerConfig
    far: bool = True

    def __str__(self) -> str:
        return self.name

    def models(self) -> list[Transformer]:
        made = []
        for number, config in enumerate((self.first, self.second)):
            torch.manual_seed(number if self.first == self.second else 0)
            model = Transformer(config).eval()
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    torch.nn.init.normal_(parameter, std=0.35)
            made.append(model)
        return made

    @property
    def start(self) -> int:
        return FAR if self.far else 7

    @property
    def limit(self) -> int:
        return LIMIT if self.far else NEAR_LIMIT


def _encoding_subjects() -> Iterator[Subject]:
    for row in ROWS:
        settings = {"kind": row.kind, **row.settings}
        if settings.get("sections"):
            continue  # on several axes there is no text; tests/encodings has those
        if row.kind == "learned":
            settings["longest"] = NEAR_LIMIT
        other = dict(settings)
        if row.kind in ("rope", "xpos", "sinusoidal"):
            other["base"] = 700.0
        sizes = {**SIZES, "head_width": 16, "tie": False, "std": 0.3}
        first, second = (TransformerConfig(**sizes, encoding=encoding) for encoding in (settings, other))
        yield Subject(str(row), first, second, far=row.kind not in ("learned", "scalar"))


def _preset_subjects() -> Iterator[Subject]:
    for name in PRESETS:
        changes = {**SIZES, "key_heads": 1} if name == "llama" else dict(SIZES)
        if name in ("bert", "gpt2"):
            changes["encoding"] = {"kind": "learned", "longest": NEAR_LIMIT}
        first = preset(name, **changes)
        other = {**changes, "encoding": {"kind": "rope", "base": 700.0}} if name == "llama" else changes
        yield Subject(f"preset {name}", first, preset(name, **other), far=name not in ("bert", "gpt2"))


SUBJECTS = [*_encoding_subjects(), *_preset_subjects()]


@dataclass
class Case:
    """Tokens of a batch, where they are, and its documents: (sequence, places, tokens, source)."""

    tokens: Tensor
    at: Positions
    documents: list[tuple[int, Tensor, Tensor, Tensor]]
    chunks: list[slice] = field(default_factory=list)
    source: Tensor | None = None
    source_at: Positions | None = None


def case(shape: str, subject: Subject) -> Case:
    generator = torch.Generator().manual_seed(5)

    def text(length: int) -> Tensor:
        return torch.randint(0, SIZES["vocabulary"], (length,), generator=generator)

    lengths = {"token": [[1]], "sequence": [[9]], "packed": [[4, 5], [6, 3]], "padded": [[9], [4]]}[shape]
    if shape == "padded":
        at = positions.padded([row[0] for row in lengths], side="left")
    elif shape == "packed":
        at = positions.packed(lengths)
    else:
        at = positions.plain(lengths[0][0])
    token = at.segment != PAD
    place = torch.where(token, at.index + subject.start, 0)
    # A sequence in one piece stays known as such; the others are what a user makes of bare integers.
    at = (
        positions.plain(lengths[0][0], start=subject.start, limit=subject.limit)
        if shape in ("token", "sequence")
        else Positions(place, place, at.segment, subject.limit)
    )
    tokens, documents = torch.zeros(at.shape, dtype=torch.int64), []
    source = torch.zeros_like(tokens)
    for row, sizes in enumerate(lengths):
        for number, length in enumerate(sizes):
            where = (at.segment[row] == number).nonzero()[:, 0]
            mine, its_source = text(length), text(length)
            tokens[row, where], source[row, where] = mine, its_source
            documents.append((row, where, mine, its_source))
    length = at.shape[1]
    ends = [0, *range(length - 2, length + 1)] if length > 3 else [0, length]
    chunks = [slice(a, b) for a, b in pairwise(ends)]
    return Case(tokens, at, documents, chunks, source, at)


@torch.no_grad()
def alone(model: Transformer, subject: Subject, tokens: Tensor, source: Tensor) -> Tensor:
    """What one eager model says of one document in one plain pass."""
    at = positions.plain(len(tokens), start=subject.start, limit=subject.limit)
    told: dict[str, Any] = {"source": source[None], "source_at": at} if two_stacks(model) else {}
    return model(tokens[None], at, **told)[0]


def two_stacks(model: Transformer) -> bool:
    return model.encoder is not None and model.decoder is not None


@torch.no_grad()
def said(model: Transformer, run: Any, given: Case, *, cached: bool) -> Tensor:
    """The logits of a batch, in one pass or in chunks over a cache."""
    told: dict[str, Any] = {"source": given.source, "source_at": given.source_at} if two_stacks(model) else {}
    if not cached:
        return run(given.tokens, given.at, **told)
    memory = Memory(*model.encode(given.source, given.source_at)) if two_stacks(model) else None
    cache = model.cache(len(given.tokens), given.at.shape[1], limit=given.at.limit, memory=memory)
    steps = [(given.tokens[:, some], given.at.take(some)) for some in given.chunks]
    return torch.cat([(run if at.shape[1] == 1 else model)(some, at, cache=cache) for some, at in steps], dim=1)


SHAPES = ("packed", "padded", "sequence", "token")


def check(
    subject: Subject, *, compiled: bool, autocast: bool, schedules: tuple[bool, ...] = (False, True), **how: Any
) -> None:
    """schedules: without a cache, with one, or both. A compiled model decodes token by token after an eager prefill, as
    `generate(compiled=True)` does."""
    models = subject.models()
    torch._dynamo.reset()
    runs = [torch.compile(model, backend="eager", **how) if compiled else model for model in models]
    for shape in SHAPES:
        given = case(shape, subject)
        wanted = [[alone(model, subject, *document[2:]) for document in given.documents] for model in models]
        for cached in schedules:
            if cached and models[0].decoder is None:
                continue
            for model, run, answers in zip(models, runs, wanted, strict=True):
                with torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
                    got = said(model, run, given, cached=cached).float()
                for (row, where, *_), want in zip(given.documents, answers, strict=True):
                    name = f"{subject} {shape} cached={cached}"
                    if autocast:  # rounding spreads over many features; another position or document moves them all
                        apart = (got[row, where] - want).norm() / want.norm()
                        assert apart < 0.06, f"{name}: {apart:.3f} of the answer apart"
                    else:
                        assert_close(name, want, got[row, where], 2e-5 * want.abs().max().item())


AUTOCAST = pytest.mark.parametrize("autocast", [False, True], ids=["float32", "autocast"])
WHOLE = {"t5", "rope", "xpos", "preset llama"}


def quick(names: set[str]) -> list[Any]:
    """These run with every change; compiling for the rest of the table takes minutes (-m slow)."""
    return [pytest.param(s, marks=() if str(s) in names else pytest.mark.slow, id=str(s)) for s in SUBJECTS]


@AUTOCAST
@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_eager(subject: Subject, autocast: bool) -> None:
    check(subject, compiled=False, autocast=autocast)


@pytest.mark.parametrize("subject", quick(WHOLE))
def test_compiled_whole(subject: Subject) -> None:
    check(subject, compiled=True, autocast=False, schedules=(False,), fullgraph=True)


STEPS = [
    pytest.param(
        subject,
        autocast,
        id=f"{subject}-{'autocast' if autocast else 'float32'}",
        marks=() if (str(subject), autocast) in {("rope", True), ("chain-learned-t5", False)} else pytest.mark.slow,
    )
    for subject in SUBJECTS
    for autocast in (False, True)
]


@pytest.mark.parametrize(("subject", "autocast"), STEPS)
def test_compiled(subject: Subject, autocast: bool) -> None:
    with torch._dynamo.config.patch(recompile_limit=64):
        check(subject, compiled=True, autocast=autocast)
