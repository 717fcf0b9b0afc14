"""However a text is fed, it is the same text: C12 to C18, C38."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ropewalk.conformance.checks import check
from ropewalk.conformance.checks.biases import FLAT, flat
from ropewalk.conformance.findings import Findings, NotApplicable
from ropewalk.conformance.places import start_near
from ropewalk.conformance.surround import Pass, Surround, views
from ropewalk.conformance.target import Target

NEEDS = ("rotation|bias|forward",)
UNIT = "of the logits' size"
L = 14


def ids_for(model: Pass, found: Findings, length: int = L, batch: int = 1, more: int = 0) -> Tensor:
    return torch.randint(model.vocabulary, (batch, length), generator=found.generator(more))


def same(found: Findings, name: str, got: Tensor, want: Tensor, positions: Tensor, why: str, model: Pass) -> None:
    """Logits (1, L, ...) or (1, H, L, K) against those of one pass."""
    size = want.abs().amax()
    dim = 2 if isinstance(model, Surround) else 1
    # Around a target's rotate all is float64; a model of its own adds in float32, in another order.
    bound = found.bound if isinstance(model, Surround) else found.bounds[-1]
    found.compare(f"{name}, {model.name}", got, want, bound, positions.flatten(), dim=dim, scale=size, why=why)


def fed(model: Pass, ids: Tensor, positions: Tensor | None, cuts: list[int]) -> Tensor:
    """The logits of a text fed in pieces that end at these places."""
    dim = 2 if isinstance(model, Surround) else 1
    pieces: list[Tensor] = []
    cache: Any = None
    for start, end in zip([0, *cuts], [*cuts, ids.shape[1]], strict=True):
        where = None if positions is None else positions[:, start:end]
        logits, cache = model(ids[:, start:end], where, None, cache)  # type: ignore[arg-type]
        pieces.append(logits)
    return torch.cat(pieces, dim)


def schedules(target: Target, found: Findings, cuts: list[int], why: str) -> None:
    for view in views(target):
        model = view()
        ids = ids_for(model, found)
        for wanted in (0, 1_000):
            start = start_near(target.spec, wanted, L)
            positions = torch.arange(start, start + L)[None]
            whole = view()(ids, positions)[0]
            same(found, f"from position {start:,}", fed(view(), ids, positions, cuts), whole, positions, why, model)
        if not isinstance(model, Surround):
            # Most callers leave positions to the model: it must find them itself.
            positions = torch.arange(L)[None]
            whole = view()(ids, positions)[0]
            same(found, "positions left out", fed(view(), ids, None, cuts), whole, positions, why, model)


@check("C12", "token-by-token decoding matches one pass", bound=(1e-5, 1e-4), unit=UNIT, needs=NEEDS)
def decoding(target: Target, found: Findings) -> None:
    why = "a token fed alone, after its predecessors, is not where it was in one pass"
    schedules(target, found, list(range(4, L)), why)


@check("C13", "chunked prefill matches one pass", bound=(1e-5, 1e-4), unit=UNIT, needs=NEEDS)
def chunks(target: Target, found: Findings) -> None:
    schedules(target, found, [5, 8, 12], "a chunk is not where it was in one pass")


@check("C14", "after eviction, positions do not come from the cache length", bound=(1e-5, 1e-4), unit=UNIT, needs=NEEDS)
def evicted(target: Target, found: Findings) -> None:
    """Keys kept at the start and at the end of a longer text: six rows in the cache, the next position is 51."""
    for view in views(target):
        model = view()
        ids = ids_for(model, found, 9)
        start = start_near(target.spec, 48, 8)
        positions = torch.tensor([[0, 1, 2, start, start + 1, start + 2, start + 3, start + 4, start + 5]])
        why = "the next position is taken from the number of keys in the cache"
        if decodes(view, ids, torch.arange(9)[None], found):
            whole = view()(ids, positions)[0]
            if target.spec.kind != "other" and torch.equal(whole, view()(ids, torch.arange(9)[None])[0]):
                if flat(target.spec, target.build()):
                    raise NotApplicable(FLAT)
                found.require("positions that are given", False, "they change nothing: the model counts its own")
                continue
            same(found, "decoding past a gap", fed(view(), ids, positions, [6, 7, 8]), whole, positions, why, model)
        if isinstance(model, Surround):
            continue
        if not target.has("evict"):
            found.note("it offers no evict: where it goes on by itself after an eviction was not looked at")
            continue
        if not decodes(view, ids, None, found):
            continue
        # Keys that stay have seen those that go, so that only the same cache can be compared: positions given, or not.
        got, want = (after_eviction(view(), ids, given) for given in (False, True))
        same(found, "positions left out after an eviction", got, want, torch.arange(6, 9)[None], why, model)


def decodes(
    view: Any, ids: Tensor, positions: Tensor | None, found: Findings, cuts: tuple[int, ...] = (6, 7, 8)
) -> bool:
    """Whether it reads this text in pieces where nothing was evicted: if not, that is C12's or C13's matter."""
    model, places = view(), torch.arange(ids.shape[1])[None]
    whole, got = view()(ids, places)[0], fed(model, ids, positions, list(cuts))
    if not (right := alike(found, got, whole, model)):
        found.note(f"decoding plain text is wrong already: see {'C12' if len(cuts) > 1 else 'C13'}")
    return right


def alike(found: Findings, got: Tensor, want: Tensor, model: Pass) -> bool:
    bound = found.bound if isinstance(model, Surround) else found.bounds[-1]
    return float((got - want).abs().amax() / want.abs().amax()) <= bound


def after_eviction(model: Pass, ids: Tensor, given: bool, each: int = 1) -> Tensor:
    """The logits of three tokens, so many at a time, after six of which the middle two were dropped."""
    _, cache = model(ids[:, :6], torch.arange(6)[None])
    cache = model.target.evict(model.built, cache, torch.tensor([0, 1, 4, 5]))
    pieces = []
    for n in range(6, 9, each):
        logits, cache = model(ids[:, n : n + each], torch.arange(n, n + each)[None] if given else None, None, cache)
        pieces.append(logits)
    return torch.cat(pieces, 1)


@check("C38", "chunks after an eviction match single tokens", bound=(1e-5, 1e-4), unit=UNIT, needs=NEEDS)
def chunks_after_eviction(target: Target, found: Findings) -> None:
    """As C14, for several tokens at once: an engine may find their positions on another path."""
    for view in views(target):
        model = view()
        ids = ids_for(model, found, 9)
        start = start_near(target.spec, 48, 8)
        positions = torch.tensor([[0, 1, 2, *range(start, start + 6)]])
        why = "the positions of a chunk are taken from the number of keys in the cache"
        if not decodes(view, ids, torch.arange(9)[None], found, (6,)):
            continue
        whole = view()(ids, positions)[0]
        if alike(found, fed(view(), ids, positions, [6, 7, 8]), whole, model):
            same(found, "a chunk past a gap", fed(view(), ids, positions, [6]), whole, positions, why, model)
        else:
            found.note("single tokens past a gap are wrong already: see C14")
        if isinstance(model, Surround) or not target.has("evict"):
            continue
        want, single = (after_eviction(view(), ids, given) for given in (True, False))
        after = torch.arange(6, 9)[None]
        got = after_eviction(view(), ids, True, each=3)
        same(found, "a chunk after an eviction", got, want, after, why, model)
        if not decodes(view, ids, None, found, (6,)):
            continue
        if not alike(found, single, want, model):
            found.note("single tokens after an eviction are wrong already: see C14")
            continue
        got = after_eviction(view(), ids, False, each=3)
        same(found, "a chunk after an eviction, positions left out", got, want, after, why, model)


@check("C15", "crossing the trained length: cached matches uncached", bound=(1e-5, 1e-4), unit=UNIT, needs=NEEDS)
def crossing(target: Target, found: Findings) -> None:
    spec = target.spec
    trained = spec.trained
    if trained is None:
        raise NotApplicable("no scaling with a trained length is declared")
    if spec.longest is not None and spec.longest < trained + L:
        raise NotApplicable(f"its longest position {spec.longest:,} is not past the trained length {trained:,}")
    why = "keys cached before the trained length were rotated under frequencies that no longer hold"
    for view in views(target):
        model = view()
        start = max(trained - L // 2, 0)
        ids = ids_for(model, found)
        positions = torch.arange(start, start + L)[None]
        cuts = list(range(3, L))
        whole = view()(ids, positions)[0]
        same(found, f"across {trained:,}", fed(view(), ids, positions, cuts), whole, positions, why, model)
        if trained <= 256 and not isinstance(model, Surround):
            ids = ids_for(model, found, trained + 8)
            positions = torch.arange(trained + 8)[None]
            whole = view()(ids, positions)[0]
            got = fed(view(), ids, positions, list(range(trained - 8, trained + 8)))
            same(found, f"from 0 across {trained:,}", got, whole, positions, why, model)


def padded(target: Target, found: Findings, side: str) -> None:
    """Two rows of 14 and 9 tokens, the shorter filled up; each must read as it does alone."""
    seen = False
    for view in views(target):
        model = view()
        if not model.takes_documents:
            found.note("its forward takes no documents, so that padding cannot be told to it")
            continue
        seen = True
        ids = ids_for(model, found, L, 2)
        short = 9
        keep = torch.arange(L - short, L) if side == "left" else torch.arange(short)
        positions, documents = torch.arange(L).repeat(2, 1), torch.zeros(2, L, dtype=torch.int64)
        documents[1] = -1
        documents[1, keep] = 0
        positions[1] = 0
        positions[1, keep] = torch.arange(short)
        logits = view()(ids, positions, documents)[0]
        dim = 2 if isinstance(model, Surround) else 1
        why = f"a row padded on the {side} reads otherwise than alone"
        for row, places in ((0, torch.arange(L)), (1, keep)):
            where = torch.arange(len(places))[None]
            alone = view()(ids[row : row + 1, places], where)[0]
            got = logits[row : row + 1].index_select(dim, places)
            same(found, f"{'shorter' if row else 'longer'} row", got, alone, where, why, model)
        if side == "left":
            after_padding(found, view, ids, positions, documents, keep, why)
    if not seen:
        raise NotApplicable("its forward takes no documents, so that padding cannot be told to it")


def after_padding(
    found: Findings, view: Any, ids: Tensor, positions: Tensor, documents: Tensor, keep: Tensor, why: str
) -> None:
    """One more token for each row, from the cache."""
    model = view()
    _, cache = model(ids, positions, documents)
    more = ids_for(model, found, 1, 2, more=1)
    nexts = torch.tensor([[L], [len(keep)]])
    try:
        logits = model(more, nexts, torch.zeros(2, 1, dtype=torch.int64), cache)[0]
    except NotImplementedError as error:
        found.note(f"decoding after padding: {error}")
        return
    whole = torch.cat([ids[1:, keep], more[1:]], dim=1)
    alone = view()(whole, torch.arange(len(keep) + 1)[None])[0]
    last = alone[:, :, -1:] if isinstance(model, Surround) else alone[:, -1:]
    same(found, "decoding after it", logits[1:], last, nexts[1:], why, model)


@check("C16", "left padding does not change results", bound=(1e-5, 1e-4), unit=UNIT, needs=NEEDS)
def left(target: Target, found: Findings) -> None:
    padded(target, found, "left")


@check("C17", "right padding does not change results", bound=(1e-5, 1e-4), unit=UNIT, needs=NEEDS)
def right(target: Target, found: Findings) -> None:
    padded(target, found, "right")


@check("C18", "packed documents do not attend to each other", bound=(1e-5, 1e-4), unit=UNIT, needs=NEEDS)
def packed(target: Target, found: Findings) -> None:
    seen = False
    for view in views(target):
        model = view()
        if not model.takes_documents:
            continue
        seen = True
        ids, dim = ids_for(model, found, L, 2), 2 if isinstance(model, Surround) else 1
        # Two rows cut at other places: the positions of one row must not do for the other.
        lengths = ((6, 8), (9, 5))
        positions = torch.stack([torch.cat([torch.arange(n) for n in row]) for row in lengths])
        documents = torch.stack([torch.repeat_interleave(torch.arange(2), torch.tensor(row)) for row in lengths])
        logits = view()(ids, positions, documents)[0]
        for b, row in enumerate(lengths):
            parts = zip(ids[b : b + 1].split(row, 1), logits[b : b + 1].split(row, dim), strict=True)
            for number, (own, got) in enumerate(parts):
                where = torch.arange(own.shape[1])[None]
                why = "a document reads otherwise when another is packed with it"
                same(found, f"row {b}, document {number}", got, view()(own, where)[0], where, why, model)
    if not seen:
        raise NotApplicable("its forward takes no documents, so that packing cannot be told to it")
